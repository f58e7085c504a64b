package rbac

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestMerge(t *testing.T) {
	cases := map[string]struct {
		why  string
		give []rbacv1.PolicyRule
		want []rbacv1.PolicyRule
	}{
		"nothing": {why: "a role without rules is one", want: []rbacv1.PolicyRule{}},
		"verbs": {why: "one rule per resource is what people read",
			give: []rbacv1.PolicyRule{Rule("list", "", "pods"), Rule("get", "", "pods")},
			want: []rbacv1.PolicyRule{Rule("get list", "", "pods")}},
		"resources": {why: "of one group, with the same verbs",
			give: []rbacv1.PolicyRule{Rule("get", "", "services"), Rule("get", "", "pods"), Rule("get", "apps", "deployments"), Rule("list", "", "secrets")},
			want: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "services"}, Verbs: []string{"get"}},
				Rule("list", "", "secrets"), Rule("get", "apps", "deployments")}},
		"names": {why: "of one resource",
			give: []rbacv1.PolicyRule{Rule("get", "", "pods", "b"), Rule("get", "", "pods", "a")},
			want: []rbacv1.PolicyRule{Rule("get", "", "pods", "a", "b")}},
		"names of several resources": {why: "a rule is the product of its lists: it would grant a daemonset called typha",
			give: []rbacv1.PolicyRule{Rule("get", "apps", "daemonsets", "node"), Rule("get", "apps", "deployments", "typha")},
			want: []rbacv1.PolicyRule{Rule("get", "apps", "daemonsets", "node"), Rule("get", "apps", "deployments", "typha")}},
		"all and one": {why: "a verb for all needs no name; the other verb keeps its own",
			give: []rbacv1.PolicyRule{Rule("list", "", "pods"), Rule("list patch", "", "pods", "a")},
			want: []rbacv1.PolicyRule{Rule("list", "", "pods"), Rule("patch", "", "pods", "a")}},
		"all of a group": {why: "taken away alone, the right to one of them would not be missed",
			give: []rbacv1.PolicyRule{Rule("list", "g", "*"), Rule("list patch", "g", "pools"), Rule("get", "g", "pools", "a"), Rule("list", "h", "pools")},
			want: []rbacv1.PolicyRule{Rule("list", "g", "*"), Rule("patch", "g", "pools"), Rule("get", "g", "pools", "a"), Rule("list", "h", "pools")}},
		"all is not a name": {why: "joined with a rule about one object, it would be about that one only",
			give: []rbacv1.PolicyRule{Rule("list", "", "pods"), Rule("list", "", "services", "a")},
			want: []rbacv1.PolicyRule{Rule("list", "", "pods"), Rule("list", "", "services", "a")}},
		"a subresource": {why: "it is a resource of its own", give: []rbacv1.PolicyRule{Rule("create", "", "pods/attach"), Rule("create", "", "pods")},
			want: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "pods/attach"}, Verbs: []string{"create"}}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			needs := Flatten("x", c.give...)
			slices.Reverse(needs)
			got := Merge(needs)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			again := Merge(Flatten("x", got...))
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("what was merged is merged (-once +twice):\n%s", diff)
			}
		})
	}
}

func TestUnionTellsAllWhoNeedARight(t *testing.T) {
	give := [][]Need{Flatten("B", Rule("get list", "g", "r")), Flatten("A", Rule("get", "g", "r")), Flatten("A", Rule("get", "g", "r"))}
	want := []Need{
		{Group: "g", Resource: "r", Verb: "get", For: []string{"A", "B"}},
		{Group: "g", Resource: "r", Verb: "list", For: []string{"B"}},
	}
	got := Union(give...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	only, others := Only(got, "B")
	if diff := cmp.Diff([][]Need{want[1:], want[:1]}, [][]Need{only, others}); diff != "" {
		t.Errorf("only B's, and the others (-want +got):\n%s", diff)
	}
}

func TestNeedInWords(t *testing.T) {
	for want, need := range map[string]Need{
		"get pods": {Resource: "pods", Verb: "get"},
		"delete customresourcedefinitions.apiextensions.k8s.io tiers.crd.projectcalico.org": {
			Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: "tiers.crd.projectcalico.org", Verb: "delete"},
		"watch daemonsets.apps calico-node in namespace calico-system": {
			Group: "apps", Resource: "daemonsets", Name: "calico-node", Namespace: "calico-system", Verb: "watch"},
	} {
		if got := need.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A role names objects where the machine does; what is to be created has no name yet.
func TestAccess(t *testing.T) {
	cases := map[string]struct {
		why  string
		give Access
		want []string
	}{
		"Any":   {"all of the kind", Access{APIVersion: "apps/v1", Kind: "Deployment", Verbs: []string{"get"}}, []string{"get deployments.apps"}},
		"Named": {"the one, but a create", Access{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Verbs: []string{"get", "create"}}, []string{"get configmaps a", "create configmaps"}},
		"A subresource": {"it is a resource of its own, and the object that it is of has a name", Access{APIVersion: "v1", Kind: "Pod", Subresource: "eviction", Name: "a", Verbs: []string{"create"}},
			[]string{"create pods/eviction a"}},
		"In a namespace": {"the question says where", Access{APIVersion: "v1", Kind: "Endpoints", Namespace: "n", Verbs: []string{"get"}}, []string{"get endpoints in namespace n"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range c.give.Needs("x", Guess) {
				got = append(got, n.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
