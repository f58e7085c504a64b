package datastoremigration

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

func shipped(t *testing.T) *fsm.Definition {
	t.Helper()
	data, err := fs.ReadFile(phases.Files, MachineName+".yaml")
	must(t, err)
	def, diags := fsm.Load(MachineName+".yaml", data)
	must(t, diags.Err())
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
	must(t, diags.Err())
	if machine.Name() != MachineName {
		t.Errorf("the file names machine %q, the program looks for %q", machine.Name(), MachineName)
	}
	if unused := ownBindings().Unused(def); len(unused) > 0 {
		t.Errorf("actions that the shipped machine does not use: %v", unused)
	}
	for _, action := range []string{OpenDoorAction, fenceAction, disableAction, lockV3Action, CopyAction} {
		if !slices.ContainsFunc(def.Spec.Effects, func(e v1alpha1.Effect) bool { return e.Acquire == action }) {
			t.Errorf("the program asks whether what %s takes is held, and nothing in the file is", action)
		}
	}
}

// An owner may bear blockOwnerDeletion: some API servers let nobody write that without a right to the finalizers of the owner.
func TestWhoWritesOwnersMayBlockTheirDeletion(t *testing.T) {
	cases := map[string]struct {
		why  string
		want []string
	}{
		CopyAction:         {why: "copies are created with their owners", want: []string{"update tiers/finalizers.projectcalico.org"}},
		"RemapOwners":      {why: "it adds those that were withheld", want: []string{"update tiers/finalizers.projectcalico.org"}},
		"BringLateWrites":  {why: "it copies", want: []string{"update tiers/finalizers.projectcalico.org"}},
		"AttachDependents": {why: "back to either side", want: []string{"update tiers/finalizers.crd.projectcalico.org", "update tiers/finalizers.projectcalico.org"}},
		"AttachV1Owners":   {why: "references of v1 name either group, and v1 is locked until they are back", want: []string{"update tiers/finalizers.crd.projectcalico.org", "update tiers/finalizers.projectcalico.org"}},
		"DetachV1Owners":   {why: "it only takes them off"},
	}
	actions := Program(nil, Settings{Registry: resources.Default()}).Actions
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, need := range rbac.Union(rbac.Flatten(name, actions[name].Rights...)) {
				if need.Resource == "tiers/finalizers" {
					got = append(got, need.String())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got): %s\n%s", c.why, diff)
			}
		})
	}
}
