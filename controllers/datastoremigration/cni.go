package datastoremigration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/controllers/check"
)

// The CNI plugin takes the API group from its configuration on the node, and else by discovery: v3 only where no CRD of
// v1 is left. install-cni, an init container of calico-node, writes that configuration from a template: the one in
// its image, which takes the group from the variable CALICO_API_GROUP, or one that it is given. With v1, which stays
// locked, no new pod gets an address. Seen in Calico 87c15906f2, cni-plugin/pkg/install and internal/pkg/utils.
const (
	cniTemplateEnv     = "CNI_NETWORK_CONFIG"
	cniTemplateFileEnv = "CNI_NETWORK_CONFIG_FILE"
	// groupFromEnv is what install-cni replaces with the value of apiGroupEnv in any template.
	groupFromEnv = "__CALICO_API_GROUP__"

	// waiveCNI is what a person waives who has looked himself what the CNI plugin is told.
	waiveCNI = "cni-group"
)

// cniConfigMaps have the template, in Calico's manifests and of the Tigera operator. Others may not be read.
var cniConfigMaps = []string{"calico-config", "cni-config"}

// groupInTemplate finds it in what is no JSON before its variables are replaced.
var groupInTemplate = regexp.MustCompile(`"calico_api_group"\s*:\s*"([^"]*)"`)

// cniTemplate is what install-cni makes the configuration from.
type cniTemplate struct {
	// where is it, for people; configMap is the name where it is in one.
	where, configMap string
	// text is empty where it is that of the image.
	text string
	// unseen says why text is not known.
	unseen string
	// changed is when text was last changed, zero where nobody says.
	changed time.Time
}

func cniRights() []rbacv1.PolicyRule {
	return rule("get", corev1.GroupName, "configmaps", cniConfigMaps...)
}

// cniTemplateOf reads the template that calico-node's install-cni is given; nil where it has no such container: then
// somebody else configures the network of pods.
func (r *components) cniTemplateOf(ctx context.Context, pod *corev1.PodTemplateSpec) (*corev1.Container, cniTemplate, error) {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == installCNI })
	if i < 0 {
		return nil, cniTemplate{}, nil
	}
	c := &pod.Spec.InitContainers[i]
	if file := lastEnv(c, cniTemplateFileEnv); file != nil {
		return c, cniTemplate{unseen: fmt.Sprintf("its variable %s names a file", cniTemplateFileEnv)}, nil
	}
	env := lastEnv(c, cniTemplateEnv)
	switch {
	case env == nil:
		return c, cniTemplate{}, nil
	case env.ValueFrom == nil:
		return c, cniTemplate{where: "variable " + cniTemplateEnv, text: env.Value}, nil
	case env.ValueFrom.ConfigMapKeyRef == nil:
		return c, cniTemplate{unseen: fmt.Sprintf("its variable %s is from no ConfigMap", cniTemplateEnv)}, nil
	}
	ref := env.ValueFrom.ConfigMapKeyRef
	config := &corev1.ConfigMap{}
	found, err := r.component(ctx, ref.Name, config)
	switch {
	case apierrs.IsForbidden(err):
		return c, cniTemplate{unseen: fmt.Sprintf("ConfigMap %s may not be read by this account", ref.Name)}, nil
	case err != nil:
		return nil, cniTemplate{}, err
	case !found || config.Data[ref.Key] == "":
		return c, cniTemplate{unseen: fmt.Sprintf("ConfigMap %s has no %s", ref.Name, ref.Key)}, nil
	}
	return c, cniTemplate{where: fmt.Sprintf("%s of ConfigMap %s", ref.Key, ref.Name), configMap: ref.Name,
		text: config.Data[ref.Key], changed: lastChange(config, ref.Key)}, nil
}

// lastEnv of a name is the one that counts; nil where there is none with a value.
func lastEnv(c *corev1.Container, name string) *corev1.EnvVar {
	for i := range slices.Backward(c.Env) {
		if e := &c.Env[i]; e.Name == name {
			if e.Value == "" && e.ValueFrom == nil {
				return nil
			}
			return e
		}
	}
	return nil
}

// lastChange is when somebody last wrote a field of an object; zero where nobody says that it is his.
func lastChange(obj metav1.Object, field string) time.Time {
	var last time.Time
	for _, entry := range obj.GetManagedFields() {
		owns := entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+field+`"`)
		if owns && entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// group is what a template says of the API group: a name, groupFromEnv, or nothing.
func (t cniTemplate) group() string {
	if t.text == "" && t.unseen == "" {
		return groupFromEnv
	}
	group := ""
	for _, match := range groupInTemplate.FindAllStringSubmatch(t.text, -1) {
		group = match[1]
		if !strings.EqualFold(group, apiGroupValue) {
			break // one plugin that stays with v1 is enough
		}
	}
	return group
}

// decided is what the plugin is told: a group, nothing, which leaves it to its own discovery, or groupFromEnv where the
// variable decides and is not v3.
func (t cniTemplate) decided(c *corev1.Container) string {
	if group := t.group(); group != groupFromEnv {
		return group
	}
	if hasV3Env(*c) {
		return apiGroupValue
	}
	return groupFromEnv
}

// addCNI judges what the CNI plugin of new pods will use.
func (r *rollout) addCNI(node *appsv1.DaemonSet, c *corev1.Container, t cniTemplate, waived bool, waiver string) {
	component := "daemonset/" + node.Name
	why := ""
	switch group := t.decided(c); {
	case t.unseen != "":
		if waived {
			return
		}
		why = fmt.Sprintf("the CNI plugin's configuration cannot be read: %s; once its configuration has calico_api_group %s on every node, set the annotation %s", t.unseen, apiGroupValue, waiver)
	case group == groupFromEnv && slices.Contains(r.unset, component):
		return // it is said already
	case group == groupFromEnv:
		r.unset = append(r.unset, component)
		why = "variable not set in its init container " + installCNI
	case !strings.EqualFold(group, apiGroupValue):
		r.configMap, r.configMapHasGroup = t.configMap, groupInTemplate.MatchString(t.text)
		why = fmt.Sprintf("the CNI plugin stays with v1, which is locked, and gives new pods no address: %s", t.stays())
	case lastChange(node, "template").Before(t.changed):
		r.restart = append(r.restart, component)
		why = fmt.Sprintf("its pods may be older than the change of ConfigMap %s, restart them", t.configMap)
	default:
		return
	}
	r.pending = append(r.pending, fmt.Sprintf("%s (%s)", node.Name, why))
}

// stays says why the plugin does not follow the variable.
func (t cniTemplate) stays() string {
	if group := t.group(); group != "" {
		return fmt.Sprintf("%s has calico_api_group %s", t.where, group)
	}
	return t.where + " has no calico_api_group"
}

// CNICommand lets the CNI plugin take the group that install-cni is told. It changes nothing that is in force: with
// the variable unset, that is v1 as before. has tells that the template names a group, which is replaced.
func CNICommand(namespace, configMap string, has bool) string {
	change := `s|"type": *"calico",|&"calico_api_group": "` + groupFromEnv + `",|`
	if has {
		change = `s|"calico_api_group": *"[^"]*"|"calico_api_group": "` + groupFromEnv + `"|`
	}
	return fmt.Sprintf("kubectl -n %s get configmap %s -o yaml | sed '%s' | kubectl replace -f -", namespace, configMap, change)
}

// cniFollows warns before the lock of what a person has to change after it, and may change now.
func (r *components) cniFollows() check.Check {
	return check.Check{ID: "cni-group", Title: "the CNI plugin takes the API group from calico-node's variable", Run: func(ctx context.Context) ([]check.Finding, error) {
		node := &appsv1.DaemonSet{}
		found, err := r.component(ctx, calicoNode, node)
		if err != nil || !found || byTigeraOperator(node) { // which writes the template anew
			return nil, err
		}
		c, t, err := r.cniTemplateOf(ctx, &node.Spec.Template)
		if err != nil || c == nil {
			return nil, err
		}
		remedy := ""
		switch group := t.decided(c); {
		case t.unseen != "":
			return []check.Finding{{Level: check.Warning,
				Message: fmt.Sprintf("the CNI plugin's configuration cannot be read: %s", t.unseen),
				Remedy:  fmt.Sprintf("let the plugin's configuration have calico_api_group %s once v3 is open; the migration will ask you to waive %s", apiGroupValue, waiveCNI)}}, nil
		case group == groupFromEnv, strings.EqualFold(group, apiGroupValue):
			return nil, nil
		case t.configMap != "":
			remedy = ": " + CNICommand(r.namespace, t.configMap, groupInTemplate.MatchString(t.text))
		}
		return []check.Finding{{Level: check.Warning,
			Message: fmt.Sprintf("after the migration the CNI plugin would stay with v1, and new pods would get no address: %s", t.stays()),
			Remedy:  fmt.Sprintf("set \"calico_api_group\": \"%s\" there beside \"type\": \"calico\", in your manifests, too; nothing changes before CALICO_API_GROUP is set%s", groupFromEnv, remedy)}}, nil
	}}
}
