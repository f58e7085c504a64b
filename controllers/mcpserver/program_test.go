package mcpserver

import (
	"io/fs"
	"testing"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
)

// ownBindings leaves the built-in actions out, which are there for edited files.
func ownBindings() fsm.Bindings {
	b := Bindings()
	for name := range builtin.Specs() {
		delete(b.Actions, name)
	}
	return b
}

func TestShippedMachineFitsTheProgram(t *testing.T) {
	data, err := fs.ReadFile(phases.Files, MachineName+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	def, diags := fsm.Load(MachineName+".yaml", data)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
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
	for _, q := range machine.Requests() {
		if q.Name != "restart" {
			t.Errorf("the steps know a request restart, the machine has %q", q.Name)
		}
	}
}
