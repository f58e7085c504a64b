package datastoremigration

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

func shipped(t *testing.T) *fsm.Definition {
	t.Helper()
	data, err := fs.ReadFile(phases.Files, MachineName+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	def, diags := fsm.Load(MachineName+".yaml", data)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return def
}

// ownBindings leaves the built-in actions out, which are there for edited files.
func ownBindings() fsm.Bindings {
	b := Bindings()
	for name := range builtin.Specs() {
		delete(b.Actions, name)
	}
	return b
}

func TestShippedMachineFitsTheProgram(t *testing.T) {
	def := shipped(t)
	machine, diags := fsm.Bind(def, Bindings())
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	if machine.Name() != MachineName {
		t.Errorf("the file names machine %q, the program looks for %q", machine.Name(), MachineName)
	}
	if unused := ownBindings().Unused(def); len(unused) > 0 {
		t.Errorf("actions that the shipped machine does not use: %v", unused)
	}
	if !slices.Contains(machine.Phases(), "Complete") || effectV1Lock != def.Spec.Effects[0].Name {
		t.Errorf("decorate knows phase Complete and effect %s, the file does not", effectV1Lock)
	}
}

// The outputs that decide or are shown, and those that are only on record. An
// output is read if the file cannot be bound without it.
func TestOutputsOfTheActions(t *testing.T) {
	def := shipped(t)
	read, recorded := []string{}, []string{}
	for action, spec := range ownBindings().Actions {
		for output := range spec.Outputs {
			b := Bindings()
			less := b.Actions[action]
			less.Outputs = maps.Clone(spec.Outputs)
			delete(less.Outputs, output)
			b.Actions[action] = less
			list := &recorded
			if _, diags := fsm.Bind(def, b); len(diags) > 0 {
				list = &read
			}
			*list = append(*list, action+"."+output)
		}
	}
	slices.Sort(read)
	slices.Sort(recorded)
	wantRead := []string{"CopyResources.conflicts", "CopyResources.ownersWithheld", "DetectConflicts.conflicts", "DetectConflicts.examples", "ObserveRollout.pending",
		"Plan.problems", "Preflight.blockers", "Verify.different"}
	wantRecorded := []string{"CopyResources.examples", "CopyResources.objects", "Drain.quiet", "Plan.objects", "RemapOwners.ownersMissing",
		"Verify.examples", "Verify.verified"}
	if diff := cmp.Diff(wantRead, read); diff != "" {
		t.Errorf("read by the file (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantRecorded, recorded); diff != "" {
		t.Errorf("on record only (-want +got):\n%s", diff)
	}
}

func managerRole(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "charts", "phasegate", "files", "rbac", "manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(data, role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// grants decides as the API server's authorizer does.
func grants(r rbacv1.PolicyRule, p permission, verb string) bool {
	return slices.Contains(r.APIGroups, p.group) && slices.Contains(r.Verbs, verb) &&
		(slices.Contains(r.Resources, p.resource) || slices.Contains(r.Resources, "*")) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, p.name))
}

// What preflight asks for and the chart does not grant would stop every migration
// in Pending.
func TestRoleGrantsWhatPreflightAsksFor(t *testing.T) {
	rules := managerRole(t)
	s := &steps{Settings: Settings{Registry: resources.Default(), CalicoNamespace: "calico-system"}}
	for _, p := range s.permissions() {
		for _, verb := range p.verbs {
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return grants(r, p, verb) }) {
				t.Errorf("%s is asked for and not granted", p.String([]string{verb}))
			}
		}
	}
}

// Every right has a reason; a rule that is not in this list is one too many.
func TestRoleGrantsNothingElse(t *testing.T) {
	type need struct {
		Verbs []string
		why   string
	}
	needs := map[string]need{
		"/events":                            {[]string{"create", "patch"}, "the recorder falls back to it where events.k8s.io is not served"},
		"events.k8s.io/events":               {[]string{"create", "patch"}, "each transition is told; a repeated Event is patched"},
		"apps/daemonsets":                    {[]string{"get", "list", "watch"}, "ObserveRollout reads calico-node, and its change wakes Converged"},
		"apps/deployments":                   {[]string{"get", "list", "watch"}, "the same for typha and kube-controllers"},
		"apiregistration.k8s.io/apiservices": {[]string{"create"}, "RestoreAPIService, where somebody has deleted it; a create cannot be bound to a name"},
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
