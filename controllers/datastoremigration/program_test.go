package datastoremigration

import (
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
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
	for _, action := range []string{OpenDoorAction, fenceAction, disableAction, lockV3Action, CopyAction} {
		if !slices.ContainsFunc(def.Spec.Effects, func(e v1alpha1.Effect) bool { return e.Acquire == action }) {
			t.Errorf("the program asks whether what %s takes is held, and nothing in the file is", action)
		}
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
	wantRead := []string{"BringLateWrites.conflicts", "BringLateWrites.watching", "CopyResources.conflicts", "CopyResources.examples", "CopyResources.ownersWithheld", "CopyResources.rejected", "DetectConflicts.conflicts", "DetectConflicts.examples", "ObserveRollout.pending", "OpenSideDoor.sideDoor",
		"Plan.problems", "Preflight.blockers", "TryV3Writes.refused", "Verify.different"}
	wantRecorded := []string{"CopyResources.objects", "Drain.quiet", "ObserveRollout.configMap", "ObserveRollout.configMapHasGroup", "ObserveRollout.namespace", "ObserveRollout.restart", "ObserveRollout.rolling", "ObserveRollout.unset", "Plan.objects", "RemapOwners.ownersMissing", "Verify.conflicts",
		"Verify.examples", "Verify.verified"}
	if diff := cmp.Diff(wantRead, read); diff != "" {
		t.Errorf("read by the file (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantRecorded, recorded); diff != "" {
		t.Errorf("on record only (-want +got):\n%s", diff)
	}
}
