package datastoremigration

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
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
