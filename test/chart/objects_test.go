package chart_test

import (
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// types are what the chart may make.
var types = map[string]func() any{
	"v1 ConfigMap":                  func() any { return &corev1.ConfigMap{} },
	"v1 Pod":                        func() any { return &corev1.Pod{} },
	"v1 Service":                    func() any { return &corev1.Service{} },
	"v1 ServiceAccount":             func() any { return &corev1.ServiceAccount{} },
	"apps/v1 Deployment":            func() any { return &appsv1.Deployment{} },
	"policy/v1 PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
	"flowcontrol.apiserver.k8s.io/v1 FlowSchema":                       func() any { return &flowcontrolv1.FlowSchema{} },
	"flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration":       func() any { return &flowcontrolv1.PriorityLevelConfiguration{} },
	"networking.k8s.io/v1 NetworkPolicy":                               func() any { return &networkingv1.NetworkPolicy{} },
	"rbac.authorization.k8s.io/v1 ClusterRole":                         func() any { return &rbacv1.ClusterRole{} },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding":                  func() any { return &rbacv1.ClusterRoleBinding{} },
	"rbac.authorization.k8s.io/v1 Role":                                func() any { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1 RoleBinding":                         func() any { return &rbacv1.RoleBinding{} },
	"apiextensions.k8s.io/v1 CustomResourceDefinition":                 func() any { return &apiextensionsv1.CustomResourceDefinition{} },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":        func() any { return &admissionv1.ValidatingAdmissionPolicy{} },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": func() any { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
	monitoring + " ServiceMonitor":                                     func() any { return &monitoringv1.ServiceMonitor{} },
	monitoring + " PrometheusRule":                                     func() any { return &monitoringv1.PrometheusRule{} },
}

// clusterScoped kinds have no namespace; all others are in the release's, but for the right to write the
// backup, which is Calico's namespace's, and that to know the API servers, which is kube-system's.
var clusterScoped = map[string]bool{
	"ClusterRole": true, "ClusterRoleBinding": true, "CustomResourceDefinition": true, "FlowSchema": true, "PriorityLevelConfiguration": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
}

// A misspelt field is dropped by Helm 3 and by old API servers in silence.
func TestObjectsAreOfTheirTypes(t *testing.T) {
	made := map[string]bool{}
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			for kind := range checkObjects(t, mustRender(t, given)) {
				made[kind] = true
			}
		})
	}
	for kind := range types {
		if !made[kind] {
			t.Errorf("no values of charts/phasegate/ci make a %s, so nobody tests it", kind)
		}
	}
}

// rolesFor are the roles that the chart makes for its accounts.
func rolesFor(t *testing.T, given string) (roles []rbacv1.ClusterRole) {
	t.Helper()
	for _, obj := range mustRender(t, values(t, given)).objects(t) {
		forUsers := slices.ContainsFunc(slices.Collect(maps.Keys(obj.Labels)), func(key string) bool { return strings.Contains(key, "/aggregate-to-") })
		if forUsers || obj.Kind != "ClusterRole" && obj.Kind != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(obj.text, &role); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role)
	}
	return roles
}

// What is there by default reads and writes what it can name. Only who says so lets it look into everything.
func TestDefaultHasNoWildcard(t *testing.T) {
	unbounded := func(r rbacv1.PolicyRule) bool {
		everyKind := slices.Contains(r.Resources, "*") && !slices.Equal(r.APIGroups, []string{"crd.projectcalico.org"}) // which no registry knows all of
		return everyKind || slices.Contains(r.APIGroups, "*") || slices.Contains(r.Verbs, "*")
	}
	for given, want := range map[string][]string{"{}": nil, "{controllers: {datastoremigration: {dependents: {enabled: true}}}}": {"phasegate-datastoremigration-dependents may list"}} {
		var got []string
		for _, role := range rolesFor(t, given) {
			for _, rule := range role.Rules {
				if unbounded(rule) {
					got = append(got, role.Name+" may "+strings.Join(rule.Verbs, ", "))
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rules about everything (-want +got):\n%s", given, diff)
		}
	}
}

// A create cannot be bound to a name, so each is a decision, and the page about security has it.
func TestUnnamedCreatesAreListed(t *testing.T) {
	accounts := []string{"datastoremigration", "mcpserver", "custom"}
	granted := map[string]bool{}
	for _, role := range rolesFor(t, "{controllers: {datastoremigration: {dependents: {enabled: true}}, custom: {enabled: true}}, machines: {files: {door.yaml: \"kind: Machine\\nmetadata: {name: door}\\n\"}}}") {
		of := accounts // what is bound to all of them
		if i := slices.IndexFunc(accounts, func(account string) bool { return strings.HasPrefix(role.Name, "phasegate-"+account) }); i >= 0 {
			of = accounts[i : i+1]
		}
		for _, rule := range role.Rules {
			for _, resource := range createsUnnamed(rule) {
				for _, account := range of {
					granted[account+" creates "+resource] = true
				}
			}
		}
	}
	if diff := cmp.Diff(granted, listedCreates(t)); diff != "" {
		t.Errorf("docs/operate/security.md (-granted +listed):\n%s", diff)
	}
}

// listedCreates are those of the page.
func listedCreates(t *testing.T) map[string]bool {
	t.Helper()
	_, section, _ := strings.Cut(read(t, "docs", "operate", "security.md"), "## Creates without a name\n")
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (`.*`) \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		for _, resource := range quoted.FindAllStringSubmatch(row[1], -1) {
			for _, account := range quoted.FindAllStringSubmatch(row[2], -1) {
				listed[account[1]+" creates "+resource[1]] = true
			}
		}
	}
	return listed
}

// createsUnnamed are the resources, with their groups, of which a rule lets objects of any name be created. The kinds of
// Calico are one; a right by tier is none.
func createsUnnamed(rule rbacv1.PolicyRule) (found []string) {
	if len(rule.ResourceNames) > 0 || !slices.Contains(rule.Verbs, "create") && !slices.Contains(rule.Verbs, "*") {
		return nil
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			switch {
			case strings.HasPrefix(resource, "tier."):
			case group == "projectcalico.org":
				found = append(found, "*."+group)
			default:
				found = append(found, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
	}
	return found
}

// Each controller can be switched off, whichever of the others are on.
func TestEachSetOfControllers(t *testing.T) {
	const machine = "{door.yaml: \"kind: Machine\\nmetadata: {name: door}\\n\"}"
	for set := 1; set < 8; set++ {
		migration, mcpserver, custom := set&1 > 0, set&2 > 0, set&4 > 0
		files := "{}"
		if custom {
			files = machine
		}
		given := fmt.Sprintf("{controllers: {datastoremigration: {enabled: %t}, mcpserver: {enabled: %t}, custom: {enabled: %t}}, machines: {files: %s}}", migration, mcpserver, custom, files)
		t.Run(given, func(t *testing.T) {
			made := checkObjects(t, mustRender(t, values(t, given)))
			if want := bits.OnesCount(uint(set)); made["apps/v1 Deployment"] != want {
				t.Errorf("%d Deployments, want %d", made["apps/v1 Deployment"], want)
			}
			if want := 2 + bits.OnesCount(uint(set&3)); made["apiextensions.k8s.io/v1 CustomResourceDefinition"] != want {
				t.Errorf("%d CRDs, want %d", made["apiextensions.k8s.io/v1 CustomResourceDefinition"], want)
			}
		})
	}
}

// checkObjects decodes each object strictly, and counts them by type.
func checkObjects(t *testing.T, out rendered) map[string]int {
	t.Helper()
	made, seen := map[string]int{}, map[string]bool{}
	for _, o := range out.objects(t) {
		kind := o.APIVersion + " " + o.Kind
		made[kind]++
		if key := kind + " " + o.Name; seen[key] {
			t.Errorf("%s is made twice", o)
		} else {
			seen[key] = true
		}
		typed, ok := types[kind]
		if !ok {
			t.Errorf("%s: %s is none of the types of this test: add it", o, kind)
			continue
		}
		if err := yaml.UnmarshalStrict(o.text, typed()); err != nil {
			t.Errorf("%s: %v", o, err)
		}
		want := namespace
		if strings.HasSuffix(o.Name, "-datastoremigration-backup") && slices.Contains([]string{"calico-system", "kube-system"}, o.Namespace) {
			want = o.Namespace
		}
		if strings.HasSuffix(o.Name, "-datastoremigration-apiservers") {
			want = "kube-system"
		}
		if clusterScoped[o.Kind] {
			want = ""
		}
		if o.Namespace != want {
			t.Errorf("%s is in namespace %q, want %q", o, o.Namespace, want)
		}
		if o.Labels["app.kubernetes.io/instance"] != release || o.Labels["helm.sh/chart"] == "" {
			t.Errorf("%s cannot be found by its labels: %v", o, o.Labels)
		}
	}
	return made
}

// pods of a render: what runs in the namespace.
func pods(t *testing.T, out rendered) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]*corev1.PodTemplateSpec{}
	for _, o := range out.objects(t) {
		switch o.Kind {
		case "Deployment":
			d := &appsv1.Deployment{}
			out.find(t, o.Kind, o.Name, d)
			found[o.Name] = &d.Spec.Template
		case "Pod":
			p := &corev1.Pod{}
			out.find(t, o.Kind, o.Name, p)
			found[o.Name] = &corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
		}
	}
	if len(found) == 0 {
		t.Fatal("no pod is made")
	}
	return found
}

// Pod security's own checks, at the level of the name.
func TestPodSecurity(t *testing.T) {
	strict := api.LevelVersion{Level: api.LevelRestricted, Version: api.MajorMinorVersion(1, 37)}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			var want []string
			if on, _ := given["hostNetwork"].(bool); on {
				want = []string{"host namespaces", "hostPort"} // as the notes say
			}
			for pod, template := range pods(t, mustRender(t, given)) {
				got := policy.AggregateCheckResults(evaluator.EvaluatePod(strict, &template.ObjectMeta, &template.Spec))
				for _, reason := range got.ForbiddenReasons {
					if !slices.Contains(want, reason) {
						t.Errorf("%s is not restricted: %s: %v", pod, reason, got.ForbiddenDetails)
					}
				}
				if want != nil && got.Allowed {
					t.Errorf("%s does not use the host network: %v", pod, template.Spec)
				}
			}
		})
	}
}

// OpenShift's restricted-v2 lets no pod name its user or groups: it gives each namespace its own.
func TestOpenShift(t *testing.T) {
	const scc = "security.openshift.io/v1"
	for name, c := range map[string]struct {
		value  any
		apis   []string
		users  bool
		manual string
	}{
		"elsewhere":     {"auto", nil, true, ""},
		"detected":      {"auto", []string{scc}, false, ""},
		"said":          {true, nil, false, "--openshift=true"},
		"said that not": {false, []string{scc}, true, "--openshift=false"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := renderV4(chartV4(t), map[string]any{"openshift": c.value}, c.apis...)
			if err != nil {
				t.Fatal(err)
			}
			told := ""
			for pod, template := range pods(t, out) {
				checkUser(t, pod, template.Spec.SecurityContext, c.users)
				for _, arg := range template.Spec.Containers[0].Args {
					if strings.HasPrefix(arg, "--openshift") {
						told = arg
					}
				}
			}
			if told != c.manual {
				t.Errorf("the manager is told %q, want %q", told, c.manual)
			}
		})
	}
}

// checkUser fails if a pod may run as root, or names its user and groups where it is not to,
// or names but some of them where it is to.
func checkUser(t *testing.T, pod string, s *corev1.PodSecurityContext, want bool) {
	t.Helper()
	if s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
		t.Errorf("%s may run as root", pod)
	}
	for what, named := range map[string]bool{"user": s.RunAsUser != nil, "group": s.RunAsGroup != nil, "group of volumes": s.FSGroup != nil} {
		if named != want {
			t.Errorf("%s: the %s is named: %v, want %v", pod, what, named, want)
		}
	}
}
