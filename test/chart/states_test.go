package chart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// managers are the accounts and roles of a release's controllers.
type managers struct{ roles, accounts []string }

func managersOf(t *testing.T, out rendered) (m managers) {
	t.Helper()
	for _, o := range out.objects(t) {
		controller := o.Labels["app.kubernetes.io/component"]
		if o.Kind != "Deployment" || controller == "" {
			continue
		}
		m.roles = append(m.roles, o.Name)
		m.accounts = append(m.accounts, account(t, out, o.Name))
	}
	return m
}

// account is the user name of a Deployment's pods.
func account(t *testing.T, out rendered, deployment string) string {
	t.Helper()
	return "system:serviceaccount:" + namespace + ":" + pods(t, out)[deployment].Spec.ServiceAccountName
}

// writesStates are the verbs that a rule grants on MachineStates, but those to read.
func writesStates(rule rbacv1.PolicyRule) (verbs []string) {
	matches := func(list []string, is ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return s == "*" || slices.Contains(is, s) })
	}
	if !matches(rule.APIGroups, "phasegate.dev") || !matches(rule.Resources, "machinestates", "machinestates/*", "*/*") {
		return nil
	}
	for _, verb := range rule.Verbs {
		if !slices.Contains([]string{"get", "list", "watch"}, verb) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// Of all roles of the chart only a controller's own may let anybody write a MachineState, and it is bound to the
// account of that controller alone.
func TestOnlyManagersMayWriteStates(t *testing.T) {
	for name, given := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			out := mustRender(t, given)
			m := managersOf(t, out)
			for _, o := range out.objects(t) {
				role := struct {
					Rules    []rbacv1.PolicyRule
					RoleRef  rbacv1.RoleRef
					Subjects []rbacv1.Subject
				}{}
				if !strings.HasPrefix(o.APIVersion, "rbac.authorization.k8s.io/") {
					continue
				}
				if err := yaml.Unmarshal(o.text, &role); err != nil {
					t.Fatal(err)
				}
				manager := o.Kind == "ClusterRole" && slices.Contains(m.roles, o.Name)
				for _, rule := range role.Rules {
					if verbs := writesStates(rule); len(verbs) > 0 && !manager {
						t.Errorf("%s lets accounts %v MachineStates", o, verbs)
					}
				}
				if slices.Contains(m.roles, role.RoleRef.Name) {
					want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: pods(t, out)[role.RoleRef.Name].Spec.ServiceAccountName, Namespace: namespace}}
					if diff := cmp.Diff(want, role.Subjects); diff != "" {
						t.Errorf("%s gives a controller's rights to others (-its account +bound):\n%s", o, diff)
					}
				}
			}
		})
	}
}

// Who may see a migration may see its state.
func TestViewersReadStates(t *testing.T) {
	for name, given := range scenes(t) {
		out := mustRender(t, given)
		if name == "minimal" { // rbac.aggregate=false
			continue
		}
		view := &rbacv1.ClusterRole{}
		i := slices.IndexFunc(out.objects(t), func(o *object) bool { return o.Labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true" })
		out.find(t, "ClusterRole", out.objects(t)[i].Name, view)
		want := rbacv1.PolicyRule{APIGroups: []string{"phasegate.dev"}, Resources: []string{"machinestates", "machinedefinitions"}, Verbs: []string{"get", "list", "watch"}}
		if !slices.ContainsFunc(view.Rules, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, want) }) {
			t.Errorf("%s: the role view does not read MachineStates and MachineDefinitions: %v", name, view.Rules)
		}
	}
}

// A rule that names what it does not mean is found.
func TestWritesStates(t *testing.T) {
	cases := map[string]struct {
		why  string
		rule rbacv1.PolicyRule
		want []string
	}{
		"by name":        {why: "the plain one", rule: rbacv1.PolicyRule{APIGroups: []string{"phasegate.dev"}, Resources: []string{"machinestates", "machinedefinitions"}, Verbs: []string{"get", "patch"}}, want: []string{"patch"}},
		"every kind":     {why: "ours is among them", rule: rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "deletecollection"}}, want: []string{"deletecollection"}},
		"every verb":     {why: "to write is among them", rule: rbacv1.PolicyRule{APIGroups: []string{"apps", "phasegate.dev"}, Resources: []string{"*"}, Verbs: []string{"*"}}, want: []string{"*"}},
		"read":           {why: "it is allowed", rule: rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}},
		"another group":  {why: "it is another kind", rule: rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
		"another object": {why: "the same", rule: rbacv1.PolicyRule{APIGroups: []string{"phasegate.dev"}, Resources: []string{"others"}, Verbs: []string{"*"}}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, writesStates(c.rule)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}

// The guard knows which account runs which machine: those of the pods.
func TestStateGuardNamesTheAccounts(t *testing.T) {
	machineOf := map[string]string{"datastoremigration": "datastore-migration", "mcpserver": "mcpserver", "custom": "door"}
	for name, given := range scenes(t) {
		out := mustRender(t, given)
		var policy *admissionv1.ValidatingAdmissionPolicy
		var want []string
		for _, o := range out.objects(t) {
			if o.Kind == "ValidatingAdmissionPolicy" && strings.HasSuffix(o.Name, "-state-guard") {
				policy = &admissionv1.ValidatingAdmissionPolicy{}
				out.find(t, o.Kind, o.Name, policy)
			}
			if o.Kind == "Deployment" {
				want = append(want, "'"+machineOf[o.Labels["app.kubernetes.io/component"]]+"': '"+account(t, out, o.Name)+"'")
			}
		}
		if name == "minimal" { // stateGuard.enabled=false
			if policy != nil {
				t.Errorf("%s: there is a guard", name)
			}
			continue
		}
		i := slices.IndexFunc(policy.Spec.Variables, func(v admissionv1.Variable) bool { return v.Name == "writers" })
		got := strings.Split(strings.Trim(policy.Spec.Variables[i].Expression, "{} "), ", ")
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-pods +guard):\n%s", name, diff)
		}
		if allowed := strings.Contains(policy.Spec.Validations[0].Expression, `in ["system:serviceaccount:velero:velero"]`); allowed != (name == "everything") {
			t.Errorf("%s: stateGuard.allow: %s", name, policy.Spec.Validations[0].Expression)
		}
	}
}

// A cluster that switches the API off can be installed on all the same.
func TestWithoutAdmissionPolicies(t *testing.T) {
	for api, want := range map[string]int{"": 0, policies: 6} {
		out, err := renderOn(t, newCluster(), nil, api)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, o := range out.objects(t) {
			if strings.HasPrefix(o.Kind, "ValidatingAdmission") {
				got++
			}
		}
		if got != want {
			t.Errorf("an API server that serves %q gets %d policies and bindings, want %d", api, got, want)
		}
	}
}
