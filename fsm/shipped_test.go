package fsm

import (
	"os"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// mcpserver is the shipped machine, with what its program has.
func mcpserver(t *testing.T) (*program.Definition, program.Bindings) {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	b, diags := program.LoadBindings("mcpserver.bindings.yaml", read("../docs/machines/mcpserver.bindings.yaml"))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	def, diags := program.Load("mcpserver.yaml", read("../phases/mcpserver.yaml"))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return def, b
}

func TestMCPServerHasNoFinding(t *testing.T) {
	def, b := mcpserver(t)
	if _, diags := Bind(def, b); len(diags) > 0 {
		t.Error(diags)
	}
}
