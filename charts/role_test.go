package charts_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func managerRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	data, err := os.ReadFile("phasegate/files/rbac/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(data, role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// Every right has a reason; a rule that is not in this list is one too many.
func TestRoleGrantsNothingElse(t *testing.T) {
	type need struct {
		Verbs []string
		why   string
	}
	needs := map[string]need{
		"/events":                                      {[]string{"create", "patch"}, "the recorder falls back to it where events.k8s.io is not served"},
		"events.k8s.io/events":                         {[]string{"create", "patch"}, "each transition is told; a repeated Event is patched"},
		"apps/daemonsets":                              {[]string{"get", "list", "watch"}, "ObserveRollout reads calico-node, and its change wakes Converged"},
		"apps/deployments":                             {[]string{"create", "delete", "get", "list", "patch", "watch"}, "the same for typha and kube-controllers; proxies of MCP servers, which are watched, applied and deleted"},
		"apps/statefulsets":                            {[]string{"create", "delete", "get", "list", "patch", "watch"}, "MCP servers are watched, restarted, stopped and deleted; create is granted to proxies"},
		"/services":                                    {[]string{"create", "delete", "get", "list", "patch", "watch"}, "those of proxies are watched, applied and deleted"},
		"/configmaps":                                  {[]string{"create", "delete", "get", "patch"}, "the files of proxies"},
		"/serviceaccounts":                             {[]string{"create", "delete", "get", "patch"}, "those of proxies and MCP servers"},
		"rbac.authorization.k8s.io/roles":              {[]string{"create", "delete", "get", "patch"}, "the rights of proxies; none is granted that is not in this list"},
		"rbac.authorization.k8s.io/rolebindings":       {[]string{"create", "delete", "get", "patch"}, "the same"},
		"/pods":                                        {[]string{"delete", "get", "list", "watch"}, "ObserveWorkload reads causes, an immediate restart deletes; get and watch are granted to proxies"},
		"/pods/attach":                                 {[]string{"create", "get"}, "granted to proxies of stdio servers; get is how WebSockets ask"},
		"toolhive.stacklok.dev/mcpservers":             {[]string{"get", "list", "patch", "watch"}, "the controller; patch for finalizer and annotations"},
		"toolhive.stacklok.dev/mcpservers/status":      {[]string{"get", "patch"}, "the one status write of a pass"},
		"toolhive.stacklok.dev/mcptoolconfigs":         {[]string{"get", "list", "watch"}, "ResolveRefs, and a change wakes"},
		"toolhive.stacklok.dev/mcpexternalauthconfigs": {[]string{"get", "list", "watch"}, "the same"},
		"apiregistration.k8s.io/apiservices":           {[]string{"create"}, "RestoreAPIService, where somebody has deleted it; a create cannot be bound to a name"},
		"apiregistration.k8s.io/apiservices/v3.projectcalico.org": {[]string{"get", "patch"}, "ParkAPIService and RestoreAPIService"},
		"apiextensions.k8s.io/customresourcedefinitions":          {[]string{"delete", "get", "list", "watch"}, "crdgate watches, Preflight reads, DeleteV1CRDs deletes"},
		"authorization.k8s.io/selfsubjectaccessreviews":           {[]string{"create"}, "Preflight asks for the rights of this list"},
		"crd.projectcalico.org/*":                                 {[]string{"get", "list"}, "the source of the copy; kinds are those of the registry"},
		"crd.projectcalico.org/clusterinformations":               {[]string{"get", "list", "patch"}, "LockV1 and UnlockV1"},
		"projectcalico.org/*":                                     {[]string{"create", "delete", "get", "list", "patch"}, "the copies, and taking them back"},
		"projectcalico.org/clusterinformations":                   {[]string{"create", "delete", "get", "list", "patch"}, "LockV3 and UnlockV3"},
		"migration.projectcalico.org/datastoremigrations":         {[]string{"get", "list", "patch", "watch"}, "the controller; patch for finalizer and annotations"},
		"migration.projectcalico.org/datastoremigrations/status":  {[]string{"get", "patch"}, "the one status write of a pass"},
	}
	granted := map[string]need{}
	for _, r := range managerRole(t) {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					key := group + "/" + resource
					if name != "" {
						key += "/" + name
					}
					verbs := append(slices.Clone(granted[key].Verbs), r.Verbs...)
					slices.Sort(verbs)
					granted[key] = need{Verbs: slices.Compact(verbs)}
				}
			}
		}
	}
	for key, n := range needs {
		if n.why == "" {
			t.Errorf("%s has no reason", key)
		}
	}
	equal := func(a, b need) bool { return slices.Equal(a.Verbs, b.Verbs) }
	if !maps.EqualFunc(needs, granted, equal) {
		t.Errorf("rules (-needed +granted):\n%s", cmp.Diff(needs, granted, cmp.Comparer(equal)))
	}
}
