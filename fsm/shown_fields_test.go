package fsm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// showing is waves with fields of the status.
func showing(fields string) string {
	return strings.Replace(waves, "  state:\n", "  status: {"+fields+"}\n  variables: [{name: age, expr: 'phase.age'}, {name: round, expr: 'state.wave + 1'}]\n  state:\n", 1)
}

// What can be shown is shown, as JSON has it, and the rest is not.
func TestShown(t *testing.T) {
	b := waveBindings()
	b.Reserved = []string{"phase"}
	for name, c := range map[string]struct {
		why, expr string
		want      any
	}{
		"state":          {"what Watching has counted", "state.wave + 1", int64(3)},
		"variable":       {"as anywhere", "variables.round", int64(3)},
		"self":           {"as it was read", "self.spec.size", int64(5)},
		"phase":          {"the one that is stored with it", "phase.name", "One"},
		"held":           {"names of effects", "held", []any{"app"}},
		"duration":       {"JSON has none", "state.pause", "1m30s"},
		"number":         {"as JSON brings it back", "2.0", int64(2)},
		"nothing":        {"an optional that is not there", "self.spec.?none", nil},
		"failing":        {"the last value is not kept", "self.spec.none", nil},
		"result":         {"no step of this visit has one", "result.n", nil},
		"too long":       {"a status has room for much, and etcd for little", "self.spec.long", nil},
		"not JSON":       {"a key that is no text", "{1: 2}", nil},
		"too expensive":  {"a field costs no more than any expression", "self.spec.many.map(a, self.spec.many.map(b, a + b)).size()", nil},
		"another budget": {"what is shown costs the run nothing", "self.spec.many.size()", int64(3000)},
	} {
		t.Run(name, func(t *testing.T) {
			b := b
			m := machineOf(t, "test.yaml", []byte(showing("field: '"+c.expr+"'")), b)
			many := make([]any, 3000)
			for i := range many {
				many[i] = int64(i)
			}
			run := m.Run(v1alpha1.MachineStatus{Phase: "One", State: `{"wave":2,"pause":"90s"}`, Held: v1alpha1.Held("app")}, fsm.Observation{
				Now:  func() time.Time { return time.Unix(0, 0) },
				Self: fsm.StaticObject(map[string]any{"spec": map[string]any{"size": int64(5), "long": strings.Repeat("x", 5000), "many": many}}),
			})
			want := map[string]any{}
			if c.want != nil {
				want["field"] = c.want
			}
			if diff := cmp.Diff(want, run.Shown(t.Context())); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A file is refused for what could never be shown.
func TestStatusFindings(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		why, fields, want string
		reserved          []string
	}{
		"type of its own": {"a Go type has no place for it", "a: '1'", "PG000: the status of a ConfigMap has a type of its own", nil},
		"reserved":        {"two would write it", "phase: '1'", "PG015: status.phase is written by the manager", []string{"phase"}},
		"a path":          {"columns name top-level fields", "'a.b': '1'", `PG000: "a.b" is not a name for a field of the status`, []string{"phase"}},
		"a long name":     {"the same", long + ": '1'", "is not a name for a field of the status", []string{"phase"}},
		"no expression":   {"nothing is forgotten silently", "a: ''", "PG000: nothing is shown", []string{"phase"}},
		"misspelt":        {"as anywhere", "a: 'state.wav'", "PG006: state.wav is not declared", []string{"phase"}},
		"the clock":       {"each look would write", "a: 'now'", "PG000: it reads the clock", []string{"phase"}},
		"an age":          {"the same, through a variable", "a: 'variables.age'", "PG000: it reads the clock", []string{"phase"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := waveBindings()
			b.Reserved = c.reserved
			def, diags := fsm.Load("test.yaml", []byte(showing(c.fields)))
			if def != nil {
				_, diags = fsm.Bind(def, b)
			}
			diags = slices.DeleteFunc(diags, func(d diag.Diagnostic) bool { return d.Severity == diag.SeverityWarning })
			if len(diags) != 1 || !strings.Contains(diags[0].String(), c.want) {
				t.Errorf("%s: found %v, want %q", c.why, diags, c.want)
			}
		})
	}
}
