package datastoremigration

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
)

// template has the shape of one in Calico's manifests: no JSON before its variables are replaced.
func template(group string) string {
	return `{"plugins": [
    {"type": "calico", "mtu": __CNI_MTU__, "ipam": {"type": "calico-ipam"}` + group + `},
    {"type": "portmap"}]}`
}

func written(manager string, at time.Time, field string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{
		{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(`{"` + field + `":{}}`)},
		{Manager: "status", Subresource: "status", Time: &metav1.Time{Time: at.Add(time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"` + field + `":{}}`)},
	}
}

// What decides the API group of the CNI plugin, for each way of installing Calico: a new pod gets an address from what
// is written on its node, whatever the running containers of calico-node say.
func TestWhatTheCNIPluginIsTold(t *testing.T) {
	var (
		rolled = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
		v3     = group(apiGroupValue)
		from   = func(name, key string) corev1.EnvVar {
			return corev1.EnvVar{Name: cniTemplateEnv, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}}
		}
		config = func(text string) []client.Object {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: "calico-config"},
				Data: map[string]string{"cni_network_config": text}}}
		}
		manifest = from("calico-config", "cni_network_config")
		noneSaid = "calico-node (the CNI plugin stays with v1, which is locked, and gives new pods no address: "
	)
	for name, c := range map[string]struct {
		why     string
		init    []corev1.Container
		have    []client.Object
		changed time.Time // of the ConfigMap
		waived  bool
		want    rollout
		warns   string
	}{
		"not Calico's": {why: "somebody else configures the network", init: []corev1.Container{container("flexvol")}},
		"the image's":  {why: "its template takes the variable", init: []corev1.Container{container(installCNI, v3)}},
		"the image's, unset": {why: "the image's template falls back to v1", init: []corev1.Container{container(installCNI)},
			want: rollout{pending: []string{"calico-node (variable not set in its init container install-cni)"}, unset: []string{"daemonset/calico-node"}}},
		"manifest as it is": {why: "the plugin discovers, and one CRD of v1 keeps it there", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template("")),
			want:  rollout{pending: []string{noneSaid + "cni_network_config of ConfigMap calico-config has no calico_api_group)"}, configMap: "calico-config"},
			warns: "cni_network_config of ConfigMap calico-config has no calico_api_group"},
		"empty": {why: "as the operator writes before it is told: discovery, too", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template(`, "calico_api_group": ""`)),
			want:  rollout{pending: []string{noneSaid + "cni_network_config of ConfigMap calico-config has no calico_api_group)"}, configMap: "calico-config", configMapHasGroup: true},
			warns: "cni_network_config of ConfigMap calico-config has no calico_api_group"},
		"pinned to v1": {why: "whatever the variable says", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template(`, "calico_api_group": "crd.projectcalico.org/v1"`)),
			want:  rollout{pending: []string{noneSaid + "cni_network_config of ConfigMap calico-config has calico_api_group crd.projectcalico.org/v1)"}, configMap: "calico-config", configMapHasGroup: true},
			warns: "has calico_api_group crd.projectcalico.org/v1"},
		"follows the variable": {why: "as the warning before the lock asks for", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template(`, "calico_api_group": "__CALICO_API_GROUP__"`))},
		"follows, unset": {why: "the variable's default is v1", init: []corev1.Container{container(installCNI, manifest)}, have: config(template(`, "calico_api_group": "__CALICO_API_GROUP__"`)),
			want: rollout{pending: []string{"calico-node (variable not set in its init container install-cni)"}, unset: []string{"daemonset/calico-node"}}},
		"v3 itself":          {why: "the variable is not asked", init: []corev1.Container{container(installCNI, manifest)}, have: config(template(`, "calico_api_group": "projectcalico.org/v3"`))},
		"in the same second": {why: "times have seconds: what changes the ConfigMap rolls out next", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template(`, "calico_api_group": "projectcalico.org/v3"`)), changed: rolled},
		"changed after the pods": {why: "nothing restarts calico-node for a ConfigMap", init: []corev1.Container{container(installCNI, v3, manifest)}, have: config(template(`, "calico_api_group": "projectcalico.org/v3"`)), changed: rolled.Add(time.Second),
			want: rollout{pending: []string{"calico-node (its pods may be older than the change of ConfigMap calico-config, restart them)"}, restart: []string{"daemonset/calico-node"}}},
		"in the variable itself": {why: "there is no ConfigMap to change", init: []corev1.Container{container(installCNI, v3, corev1.EnvVar{Name: cniTemplateEnv, Value: template("")})},
			want: rollout{pending: []string{noneSaid + "variable CNI_NETWORK_CONFIG has no calico_api_group)"}}, warns: "variable CNI_NETWORK_CONFIG has no calico_api_group"},
		"two plugins, one of v1": {why: "each asks for itself", init: []corev1.Container{container(installCNI, v3, corev1.EnvVar{Name: cniTemplateEnv, Value: template(`, "calico_api_group": "crd.projectcalico.org/v1"`) + template(`, "calico_api_group": "projectcalico.org/v3"`)})},
			want: rollout{pending: []string{noneSaid + "variable CNI_NETWORK_CONFIG has calico_api_group crd.projectcalico.org/v1)"}, configMapHasGroup: true}, warns: "has calico_api_group crd.projectcalico.org/v1"},
		"a file": {why: "it is on the node", init: []corev1.Container{container(installCNI, v3, manifest, corev1.EnvVar{Name: cniTemplateFileEnv, Value: "/etc/net.conf"})},
			want: rollout{pending: []string{"calico-node (the CNI plugin's configuration cannot be read: its variable CNI_NETWORK_CONFIG_FILE names a file; once its configuration has calico_api_group projectcalico.org/v3 on every node, set the annotation waive=cni)"}}, warns: "cannot be read"},
		"a file, waived": {why: "a person has looked", init: []corev1.Container{container(installCNI, v3, corev1.EnvVar{Name: cniTemplateFileEnv, Value: "/etc/net.conf"})}, waived: true, warns: "cannot be read"},
		"no file":        {why: "an empty variable is none", init: []corev1.Container{container(installCNI, v3, corev1.EnvVar{Name: cniTemplateFileEnv})}},
		"no ConfigMap": {why: "install-cni would not start", init: []corev1.Container{container(installCNI, v3, from("mine", "config"))},
			want: rollout{pending: []string{"calico-node (the CNI plugin's configuration cannot be read: ConfigMap mine has no config; once its configuration has calico_api_group projectcalico.org/v3 on every node, set the annotation waive=cni)"}}, warns: "ConfigMap mine has no config"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: calicoNode}}
			node.Spec.Template.Spec.InitContainers = c.init
			s := newEffects(newFake().WithObjects(append(c.have, node)...).Build(), Settings{CalicoNamespace: "calico-system"})
			got := rollout{}
			install, template, err := s.components.cniTemplateOf(t.Context(), &node.Spec.Template)
			must(t, err)
			node.ManagedFields, template.changed = written("kubectl-set", rolled, "f:template"), c.changed
			if install != nil {
				got.addCNI(node, install, template, c.waived, "waive=cni")
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(rollout{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			findings, err := s.components.cniFollows().Run(t.Context())
			must(t, err)
			warns := ""
			for _, f := range findings {
				warns += f.Message
				if f.Level != check.Warning {
					t.Errorf("it is a %v: v3 is closed still, and a person has time", f.Level)
				}
			}
			if c.warns == "" && warns != "" || !strings.Contains(warns, c.warns) {
				t.Errorf("before the lock it says %q, want %q", warns, c.warns)
			}
		})
	}
}

// A status is no change of what pods are made from.
func TestLastChange(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	obj := &metav1.ObjectMeta{ManagedFields: append(written("a", at, "f:template"), written("b", at.Add(time.Second), "f:labels")...)}
	if got := lastChange(obj, "template"); !got.Equal(at) {
		t.Errorf("got %v, want %v", got, at)
	}
	if got := lastChange(obj, "data"); !got.IsZero() {
		t.Errorf("nobody has written it, and it was changed at %v", got)
	}
}

// The command is typed as it is printed.
func TestCNICommand(t *testing.T) {
	for name, c := range map[string]struct {
		why, in, out string
		has          bool
	}{
		"none":  {"the key is added", `          "type": "calico",` + "\n" + `          "ipam": {"type": "calico-ipam",`, `          "type": "calico","calico_api_group": "__CALICO_API_GROUP__",` + "\n" + `          "ipam": {"type": "calico-ipam",`, false},
		"other": {"the value is replaced", `"type": "calico", "calico_api_group": "crd.projectcalico.org/v1"`, `"type": "calico", "calico_api_group": "__CALICO_API_GROUP__"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, rest, _ := strings.Cut(CNICommand("kube-system", "calico-config", c.has), "| ")
			sed, _, _ := strings.Cut(rest, " | kubectl")
			run := exec.CommandContext(t.Context(), "sh", "-c", sed)
			run.Stdin = strings.NewReader(c.in)
			got, err := run.Output()
			must(t, err)
			if diff := cmp.Diff(c.out, strings.TrimSuffix(string(got), "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
