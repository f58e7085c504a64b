package simulate_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// bindings are those of the machines of these tests.
var bindings = program.Bindings{
	Guards:   map[string]string{"dry": ""},
	Reserved: []string{"phase"},
	Actions: map[string]program.ActionSpec{
		"Apply":  {Params: map[string]program.Param{"manifest": {Type: expr.TypeObject, Required: true}}},
		"Remove": {Params: map[string]program.Param{"kind": {Type: expr.TypeString, Required: true}}},
		"Look": {Outputs: map[string]expr.Type{"n": expr.TypeInt, "ratio": expr.TypeNumber, "ok": expr.TypeBool, "age": expr.TypeDuration,
			"text": expr.TypeString, "list": expr.TypeStrings, "object": expr.TypeObject, "any": expr.TypeAny}},
	},
}

func machine(t testing.TB, spec string) *fsm.Machine {
	t.Helper()
	file := t.TempDir() + "/m.yaml"
	head := "apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: m}\nspec:\n  for: {apiVersion: example.org/v1, kind: Thing}\n  initial: One\n"
	if err := os.WriteFile(file, []byte(head+spec), 0o600); err != nil {
		t.Fatal(err)
	}
	return fsmtest.Machine(t, file, bindings)
}

// named is a machine whose effects and steps are named actions of the same two.
const named = `  finalizer: example.org/m
  actions:
  - {name: ApplyVolume, use: Apply, with: {manifest: {kind: Volume, name: '${self.metadata.name}'}}}
  - {name: RemoveVolume, use: Remove, with: {kind: Volume}}
  - {name: ApplyJob, use: Apply, with: {manifest: {kind: Job}}}
  - {name: RemoveJob, use: Remove, with: {kind: Job}}
  effects:
  - {name: volume, acquire: ApplyVolume, release: RemoveVolume}
  - {name: job, acquire: ApplyJob, release: RemoveJob}
  phases:
  - name: One
    steps: [{action: ApplyVolume}, {action: ApplyJob}, {action: Look, until: 'result.n == 2', poll: 10s}]
    next: [{to: Two}]
    onDelete: {to: Out}
  - {name: Two, terminal: success, keeps: [volume], onDelete: {to: Out}}
  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}]}
  - {name: End, deletion: true, end: true}
`

func TestTheMachineOfMCPServer(t *testing.T) {
	data, err := os.ReadFile("../../../docs/machines/mcpserver.bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, diags := program.LoadBindings("mcpserver.bindings.yaml", data)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	fsmtest.Scenarios(t, fsmtest.Machine(t, "../../../phases/mcpserver.yaml", b), "testdata/mcpserver/*.yaml")
}

func TestNamedActionsAreGivenByTheirNames(t *testing.T) {
	w := fsmtest.World(t, machine(t, named), nil)
	w.Give("ApplyJob", simulate.Answer{Result: fsm.Result{Err: errors.New("quota"), Class: program.ClassForbidden}, Times: 1})
	w.Give("Look", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": 1}}, Times: 2}, simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": 2}}})
	if err := w.Run(time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	w.Give("RemoveJob", simulate.Answer{Result: fsm.Result{Err: errors.New("slow"), Class: program.ClassTimeout}, Times: 1})
	w.Delete()
	if err := w.Run(time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"ApplyVolume", "ApplyJob", "ApplyJob", "Look", "Look", "Look", "RemoveJob", "RemoveJob"}
	if d := cmp.Diff(want, w.Called); d != "" {
		t.Errorf("calls by the names of the file, each with answers of its own (-want +got):\n%s", d)
	}
	if d := cmp.Diff(simulate.Ending{Gone: true, Phase: "End", Path: []string{"One", "Two", "Out", "End"}, Held: nil, InPlace: []string{"volume"}, Released: []string{"job"}}, w.Ending()); d != "" {
		t.Errorf("what is kept stays, the rest is released (-want +got):\n%s", d)
	}
}

func TestTheObjectIsThatOfAnAPIServer(t *testing.T) {
	m := machine(t, `  finalizer: example.org/m
  requests:
  - {name: go, token: 'self.metadata.?annotations[?"go"].orValue("")', record: {annotation: went}}
  phases:
  - name: One
    kind: steady
    poll: 1h
    next: [{to: Two, when: 'request.go.pending'}, {to: Two, when: 'generationChanged && self.spec.n == 3'}]
    onDelete: {immediate: true}
  - {name: Two, terminal: success, onDelete: {immediate: true}}
`)
	w := fsmtest.World(t, m, map[string]any{"metadata": map[string]any{"name": "x", "finalizers": []any{"other.dev/f"}}, "spec": map[string]any{"n": 1}})
	if err := w.RunUntilIdle(); err != nil {
		t.Fatal(err)
	}
	w.Annotate(map[string]string{"go": "now"})
	if err := w.RunUntilIdle(); err != nil {
		t.Fatal(err)
	}
	if err := w.RunUntilIdle(); err != nil { // the runner stamps it before the next look, if it died before
		t.Fatal(err)
	}
	w.Delete()
	w.Delete()
	meta, _ := w.Self()["metadata"].(map[string]any)
	got := map[string]any{"annotations": meta["annotations"], "generation": meta["generation"], "deletionTimestamp": meta["deletionTimestamp"], "finalizers": meta["finalizers"]}
	want := map[string]any{"annotations": map[string]any{"go": "now", "went": "now"}, "generation": int64(2), "deletionTimestamp": "2026-01-02T03:04:05Z",
		"finalizers": []any{"other.dev/f", "example.org/m"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the metadata of an object that was asked, acted on and deleted (-want +got):\n%s", d)
	}
	status, _ := w.Self()["status"].(map[string]any)
	if status["phase"] != "Two" || status["observedGeneration"] != int64(1) {
		t.Errorf("the status is %v", status)
	}
}

func TestNothingComesOfALookThatCrashed(t *testing.T) {
	m := machine(t, named)
	answers := []simulate.Answer{{Result: fsm.Result{Outputs: map[string]any{"n": 1}}, Times: 1}, {Result: fsm.Result{Outputs: map[string]any{"n": 2}}}}
	for name, c := range map[string]struct {
		why    string
		happen func(w *simulate.Fake)
	}{
		"crash":          {"the same answer again: the world did not change", func(w *simulate.Fake) { w.Crash("Look", true, 0) }},
		"crash and down": {"time passes, nothing else", func(w *simulate.Fake) { w.Crash("Requeue", false, time.Hour) }},
		"conflict":       {"what was decided is dropped", func(w *simulate.Fake) { w.ConflictNext = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := fsmtest.World(t, m, nil)
			w.Give("Look", answers...)
			if err := w.Run(0, func() bool { return w.Stored.StepIndex == 1 && len(w.Stored.HeldNames()) == 2 }); err != nil {
				t.Fatal(err)
			}
			c.happen(w)
			began := w.Now()
			if err := w.Run(time.Hour+time.Minute, func() bool { return w.Stored.Phase == "Two" }); err != nil {
				t.Fatal(err)
			}
			looks := 0
			for _, name := range w.Called {
				if name == "Look" {
					looks++
				}
			}
			if looks != 3 || w.Now().Sub(began) < 10*time.Second {
				t.Errorf("%s: Look is called %d times in %s", c.why, looks, w.Now().Sub(began))
			}
		})
	}
}

func TestAWorldIsBounded(t *testing.T) {
	spin := machine(t, "  phases:\n  - {name: One, next: [{to: Two}], onDelete: {immediate: true}}\n  - {name: Two, next: [{to: One}], onDelete: {immediate: true}}\n")
	poll := machine(t, "  phases:\n  - {name: One, poll: 1s, next: [{to: Two, when: 'false'}], onDelete: {immediate: true}}\n  - {name: Two, terminal: success, onDelete: {immediate: true}}\n")
	for name, c := range map[string]struct {
		why  string
		m    *fsm.Machine
		d    time.Duration
		want error
	}{
		"two phases without a wait": {"a hot loop is named", spin, time.Hour, simulate.ErrRestless},
		"polls for a year":          {"nobody waits for that", poll, 24 * 365 * time.Hour, simulate.ErrTooLong},
		"a century":                 {"times of the API end with the year 9999", poll, 100 * 365 * 24 * time.Hour, simulate.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := fsmtest.World(t, c.m, nil).Run(c.d, nil); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v", c.why, err)
			}
		})
	}
}

func TestARunCanGoOnInTheMiddle(t *testing.T) {
	w := fsmtest.World(t, machine(t, named), map[string]any{"status": map[string]any{"machine": map[string]any{"phase": "One", "held": []any{"volume"}, "stepIndex": 1}},
		"metadata": map[string]any{"finalizers": []any{"example.org/m"}}})
	w.Delete()
	if err := w.RunUntilIdle(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(simulate.Ending{Gone: true, Phase: "End", Path: []string{"Out", "End"}, InPlace: nil, Released: []string{"volume"}}, w.Ending()); d != "" {
		t.Errorf("what the status holds is in place (-want +got):\n%s", d)
	}
}

func TestObjectsThatNoServerWouldStore(t *testing.T) {
	m := machine(t, named)
	for name, c := range map[string]struct {
		why    string
		object map[string]any
		want   string
	}{
		"kind":       {"another machine's", map[string]any{"kind": "Other"}, "object.kind is Other, but machine m is for Thing"},
		"metadata":   {"it has a name", map[string]any{"metadata": "x"}, "object.metadata must be a mapping"},
		"status":     {"a mapping", map[string]any{"status": 1}, "object.status must be a mapping"},
		"machine":    {"read strictly", map[string]any{"status": map[string]any{"machine": map[string]any{"phsae": "One"}}}, `unknown field "phsae"`},
		"finalizers": {"texts", map[string]any{"metadata": map[string]any{"finalizers": []any{1}}}, "finalizers: [0] must be a text"},
		"no data":    {"what JSON cannot hold", map[string]any{"spec": func() {}}, "unsupported type"},
	} {
		if _, err := simulate.New(m, c.object); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: got %v, want %q", name, c.why, err, c.want)
		}
	}
}

func TestZeroOutputsAreOfTheirTypes(t *testing.T) {
	zero := simulate.Zero(bindings.Actions["Look"])
	for name, typ := range bindings.Actions["Look"].Outputs {
		if !typ.Accepts(zero[name]) {
			t.Errorf("%s is %#v, not of type %s", name, zero[name], typ)
		}
	}
}
