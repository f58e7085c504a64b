package fsmtest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/program"
)

// A scenario of the shipped machine goes by the events of looplab/fsm, and by nothing else.
func TestEventsCarryScenarios(t *testing.T) {
	data, err := os.ReadFile("../../docs/machines/datastore-migration.bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, diags := program.LoadBindings("bindings.yaml", data)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	m := fsmtest.Machine(t, "../../phases/datastore-migration.yaml", b)
	scenario, err := os.ReadFile("../../docs/examples/scenarios/happy-path.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "happy-path.yaml") // without a golden transcript, which -update would write
	if err := os.WriteFile(file, scenario, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		why  string
		m    *fsm.Machine
		want string // empty: all expectations hold
	}{
		"as the file says": {"the twin of the others", m, ""},
		"refused": {"a callback that refuses an event stops it", m.Altered(nil, looplab.Callbacks{
			"before_AllVerified": func(_ context.Context, e *looplab.Event) { e.Cancel(errors.New("not today")) }}), "phase Converged, got Migrating"},
		"astray": {"an event that leads elsewhere leads there", m.Altered(func(_ string, all []looplab.EventDesc) []looplab.EventDesc {
			for i := range all {
				if all[i].Name == "AllVerified" {
					all[i].Dst = "Failed"
				}
			}
			return all
		}, nil), "failureLeavesNothing is not true in phase Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			told := hear(t, func(t testing.TB) { fsmtest.Play(t, c.m, file) })
			if failed := strings.Contains(told, "happy-path.yaml:"); failed != (c.want != "") || !strings.Contains(told, c.want) {
				t.Errorf("%s: %s", c.why, told)
			}
		})
	}
}
