package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// waves works in three rounds, and notes the size of each.
const waves = header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  state:
    wave: {type: int, initial: 0}
    sizes: {type: '[]string', initial: []}
    pause: {type: duration}
  effects: [{name: app, acquire: Stop, release: Start}]
  actions:
  - {name: Stop, use: Scale, with: {name: app, replicas: 0}}
  - {name: Start, use: Scale, with: {name: app, replicas: '${state.wave + 3}'}}
  phases:
  - name: One
    steps: [{action: Measure}]
    next: [{to: Two, set: {wave: 'state.wave + 1', sizes: 'state.sizes + [string(result.n) + "@" + string(state.wave)]', pause: 'duration("90s")'}, message: 'wave ${state.wave} is measured'}]
    onDelete: {to: Out}
  - name: Two
    steps: [{action: Stop, if: 'state.wave == 2'}]
    next:
    - {to: One, when: 'state.wave < 3 && state.pause > duration("1m")'}
    - {to: Three}
    onDelete: {to: Out}
  - {name: Three, steps: [{undo: held}], next: [{to: Done}], onDelete: {to: Out}}
` + rest

func waveBindings() program.Bindings {
	b := scalingBindings()
	b.Actions["Measure"] = program.ActionSpec{Outputs: map[string]expr.Type{"n": expr.TypeInt}}
	return b
}

// waver is a world of waves, whose rounds measure 10, 11 and so on however often they are called.
func waver(t *testing.T, file string) (w *world, did *[]string) {
	t.Helper()
	w = worldOf(t, machineOf(t, "test.yaml", []byte(file), waveBindings()), nil)
	did = &[]string{}
	w.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
		if cmd.Action != "Measure" {
			*did = append(*did, fmt.Sprint(cmd.Action, cmd.With))
			return simulate.Answer{}, true
		}
		return answer(map[string]any{"n": 10 + strings.Count(w.Stored.State, "@")}), true
	}
	return w, did
}

// A value is assigned in the write of its transition: a crash anywhere, or a lost answer, assigns it once or not yet.
func TestStateValuesAreAssignedOnce(t *testing.T) {
	const want = `{"pause":"1m30s","sizes":["10@0","11@1","12@2"],"wave":3}`
	for at := 0; ; at++ {
		w, did := waver(t, waves)
		moments := 0
		w.Interrupt = func(fsm.Decision, bool) bool { moments++; return moments-1 == at }
		w.settle()
		if moments <= at {
			if at < 20 {
				t.Errorf("only %d moments to crash at", at)
			}
			break
		}
		if w.Stored.Phase != "Done" || w.Stored.State != want {
			t.Errorf("crash at moment %d: phase %s, state %s, want %s", at, w.Stored.Phase, w.Stored.State, want)
		}
		w.Delete()
		w.settle()
		// What releases an effect reads the state of the time when it was taken.
		if released := `Scalemap[name:app replicas:5]`; !w.Gone() || !slices.Contains(*did, released) {
			t.Errorf("crash at moment %d: gone %t, did %v, want %s", at, w.Gone(), *did, released)
		}
	}
}

func TestWhatStateValuesComeTo(t *testing.T) {
	assign := func(name, value string) string {
		return strings.Replace(waves, "wave: 'state.wave + 1', ", name+": '"+value+"', ", 1)
	}
	for name, c := range map[string]struct {
		why, file string
		stored    string // before
		blocked   v1alpha1.Blocked
	}{
		"not assigned": {why: "there is nothing to read", file: assign("wave", "has(state.pause) ? 1 : int(state.pause.getSeconds())"),
			blocked: v1alpha1.Blocked{To: "Two", Guard: "set", Value: "error: set wave to has(state.pause) ? 1 : int(state.pause.getSeconds()): no such"}},
		"too long": {why: "the state holds no more", file: strings.Replace(waves, `string(result.n)`, `["`+strings.Repeat("x", 4<<10)+`"].map(s, s + s + s + s + s)[0]`, 1),
			blocked: v1alpha1.Blocked{To: "Two", Guard: "set", Value: `error: set sizes to state.sizes + [["`}},
		"of another type": {why: "a file that changed its mind gives the value another name", file: waves, stored: `{"wave":"one"}`,
			blocked: v1alpha1.Blocked{To: "Two", Guard: "set", Value: "error: set sizes to"}},
		"edited by hand": {why: "nobody knows what it was", file: waves, stored: `{wave}`,
			blocked: v1alpha1.Blocked{To: "Two", Guard: "set", Value: "error: the state values cannot be read (read stored parameters: invalid character 'w' looking for beginning of object key string): correct them in the MachineState"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := waver(t, strings.Replace(c.file, "    steps: [{action: Measure}]", "    poll: 5s\n    steps: [{action: Measure}]", 1))
			w.Stored.State = c.stored
			_ = w.Run(time.Minute, func() bool { return len(w.ShownMachine.Blocked) > 0 })
			if len(w.ShownMachine.Blocked) != 1 || w.Stored.Phase != "One" {
				t.Fatalf("%s: phase %s, blocked %v", c.why, w.Stored.Phase, w.ShownMachine.Blocked)
			}
			got := w.ShownMachine.Blocked[0]
			if len(c.blocked.Value) < len(got.Value) {
				got.Value = got.Value[:len(c.blocked.Value)]
			}
			if d := cmp.Diff(c.blocked, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// An edit of the file goes on with the values; one that is new has its initial value, and one that is gone is kept for a way back.
func TestStateValuesOutliveTheFile(t *testing.T) {
	w, _ := waver(t, waves)
	_ = w.Run(time.Minute, func() bool { return w.Stored.Phase == "Two" })
	w.Machine = machineOf(t, "test.yaml", []byte(strings.NewReplacer("    sizes: {type: '[]string', initial: []}", "    size: {type: int, initial: 7}",
		`sizes: 'state.sizes + [string(result.n) + "@" + string(state.wave)]'`, "size: 'state.size + 1'").Replace(waves)), waveBindings())
	w.settle()
	if want := `{"pause":"1m30s","size":9,"sizes":["10@0"],"wave":3}`; w.Stored.State != want {
		t.Errorf("state %s, want %s", w.Stored.State, want)
	}
}

// A proof tries guards that read a state value both ways, and a scenario plays what they come to.
func TestStateValuesInProofAndScenario(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(waves), waveBindings())
	if report, diags := prove.Prove(m, prove.Options{}); len(diags) > 0 || report.EdgesNotTaken != nil {
		t.Errorf("the proof finds %v, and does not go by %v", diags, report.EdgesNotTaken)
	}
	scenario := `apiVersion: phasegate.dev/v1alpha1
kind: Scenario
machine: test
given: {actions: {Measure: [{outputs: {n: 10}}]}}
script:
- crash: {after: Commit}
- until: {phase: Done}
- expect: {state: {wave: 3, sizes: ["10@0", "10@1", "10@2"]}}
- expect: {state: {wave: 4}}
`
	s, diags := simulate.Load("waves.yaml", []byte(scenario))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	result, diags := s.Play(m)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	var failures []string
	for _, f := range result.Failures {
		failures = append(failures, f.String())
	}
	if d := cmp.Diff([]string{"waves.yaml:9:11: expected: state.wave 4, got 3"}, failures); d != "" {
		t.Errorf("only the last expectation does not hold (-want +got):\n%s", d)
	}
	var text strings.Builder
	result.Write(&text)
	if want := `commit Three → Done (Done), state {pause: 1m30s, sizes: [10@0, 10@1, 10@2], wave: 3}`; !strings.Contains(text.String(), want) {
		t.Errorf("the transcript does not say %q:\n%s", want, text.String())
	}
}

// leftByErrors fails in its first phase, or lasts too long, and keeps why.
const leftByErrors = header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  state:
    why: {type: string, initial: ''}
    failed: {type: int, initial: 0}
    n: {type: int, initial: 0}
  phases:
  - name: One
    steps: [{name: Before, action: Measure}, {action: Work, poll: 20m}]
    onError: [{is: Terminal, to: Two, set: {why: 'error.reason + ": " + error.message', failed: 'state.failed + 1', n: steps.Before.n}}]
    timeout: {after: 1h, to: Two, set: {why: 'error.reason + ": " + error.message', failed: 'state.failed + 1'}}
    next: [{to: Done}]
    onDelete: {to: Out}
  - name: Two
    next: [{to: Done, message: '${state.why}'}]
    onDelete: {to: Out}
` + rest

// What an error or a timeout assigns is in the write of its transition, and nothing of it keeps the phase from being left.
func TestWhatIsKeptOfAFailure(t *testing.T) {
	bad := simulate.Answer{Result: fsm.Result{Err: fsm.Terminal("Broken", "it is broken")}}
	for name, c := range map[string]struct {
		why, from, to string
		answer        simulate.Answer
		want, message string
	}{
		"a terminal error": {why: "its own reason, not that of the event", answer: bad,
			want: `{"failed":1,"n":10,"why":"Broken: it is broken"}`, message: "it is broken"},
		"a timeout": {why: "what it waited for", answer: simulate.Answer{Result: fsm.Result{Err: fsm.Wait("for rain")}},
			want: `{"failed":1,"why":"Timeout: One lasted longer than 1h: for rain"}`, message: "One lasted longer than 1h: for rain"},
		"one that fails": {why: "the others are assigned, and the message tells", from: "n: steps.Before.n", to: "n: '1 / state.n'", answer: bad,
			want: `{"failed":1,"why":"Broken: it is broken"}`, message: "it is broken; set n to 1 / state.n: division by zero"},
		"one that is too long": {why: "the state holds no more, and the phase is left all the same", from: "n: steps.Before.n", to: `n: "1", why: '["` + strings.Repeat("x", 4<<10) + `"].map(s, s + s + s + s + s)[0]'`, answer: bad,
			want: `{"failed":1,"n":1}`, message: "it is broken; set why to"},
	} {
		b := waveBindings()
		b.Actions["Work"] = program.ActionSpec{}
		file := strings.Replace(leftByErrors, c.from, c.to, 1)
		if strings.Contains(c.to, "why:") {
			file = strings.Replace(file, `why: 'error.reason + ": " + error.message', failed`, "failed", 1)
		}
		m := machineOf(t, "test.yaml", []byte(file), b)
		for at := 0; ; at++ {
			w := worldOf(t, m, nil)
			w.Give("Before", answer(map[string]any{"n": 10}))
			w.Give("Work", c.answer)
			moments, told := 0, &strings.Builder{}
			w.Tell = func(e simulate.Event) { fmt.Fprintln(told, e.Text) }
			w.Interrupt = func(fsm.Decision, bool) bool { moments++; return moments-1 == at }
			if err := w.Run(2*time.Hour, func() bool { return w.Stored.Phase == "Done" }); err != nil {
				t.Fatalf("%s, crash at moment %d: %v", name, at, err)
			}
			if w.Stored.State != c.want {
				t.Errorf("%s (%s), crash at moment %d: state %s, want %s", name, c.why, at, w.Stored.State, c.want)
			}
			if !strings.Contains(told.String(), c.message) {
				t.Errorf("%s (%s), crash at moment %d: no message %q in\n%s", name, c.why, at, c.message, told)
			}
			if moments <= at {
				break
			}
		}
	}
}
