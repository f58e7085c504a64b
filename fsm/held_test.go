package fsm_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// scaling stops a deployment while it works, and starts it again.
const scaling = header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  actions:
  - {name: Stop, use: Scale, with: {name: '${self.spec.deployment}', replicas: 0}}
  - {name: Start, use: Scale, with: {name: '${self.spec.deployment}', replicas: '${self.spec.replicas}'}}
  effects: [{name: app, acquire: Stop, release: Start}]
  phases:
  - name: One
    poll: 5s
    steps: [{action: Stop}]
    next: [{to: Two, when: 'guards.a'}]
    onDelete: {to: Out}
  - name: Two
    steps: [{action: Start, with: {replicas: 7}}]
    next: [{to: Done}]
    onDelete: {to: Out}
` + rest

func scalingBindings() program.Bindings {
	params := map[string]program.Param{"name": {Type: expr.TypeString, Required: true}, "replicas": {Type: expr.TypeInt}}
	return program.Bindings{Guards: map[string]string{"a": "", "b": ""}, Actions: map[string]program.ActionSpec{
		"Scale":  {Params: params},
		"Resize": {Params: params},
		"Wake":   {Params: map[string]program.Param{"name": {Type: expr.TypeString, Required: true}}},
	}}
}

// scaler is a world of scaling that rests in One, with what it does from now on.
func scaler(t *testing.T, file string) (w *world, did *[]string) {
	t.Helper()
	w = worldOf(t, machineOf(t, "test.yaml", []byte(file), scalingBindings()), map[string]any{"deployment": "first", "replicas": 3})
	w.GiveGuard("a", simulate.GuardAnswer{})
	did = &[]string{}
	w.Respond = func(_ string, cmd fsm.Decision) (simulate.Answer, bool) {
		with, err := json.Marshal(cmd.With)
		if err != nil {
			t.Fatal(err)
		}
		*did = append(*did, cmd.Action+" "+string(with))
		return simulate.Answer{}, true
	}
	return w, did
}

const (
	stopFirst  = `Scale {"name":"first","replicas":0}`
	startFirst = `Scale {"name":"first","replicas":3}`
)

func TestTargetIsFixedWhenTaken(t *testing.T) {
	edit := func(w *world) {
		w.set("spec.deployment", "second")
		w.set("spec.replicas", 5)
	}
	for name, c := range map[string]struct {
		why  string
		play func(w *world)
		want []string
	}{
		"released": {"the first is scaled back, to what it had", func(w *world) {
			w.settle()
			edit(w)
			w.Delete()
			w.settle()
		}, []string{stopFirst, startFirst}},
		"taken again while held": {"the second would be stopped, and nothing would start it", func(w *world) {
			w.settle()
			w.set("spec.replicas", 5) // which the acquire does not read
			w.Tick(5 * time.Second)
			w.settle()
			edit(w)
			w.Tick(5 * time.Second)
			w.settle()
		}, []string{stopFirst, stopFirst}},
		"crash before the deed": {"the ledger says what is done after the restart", func(w *world) {
			w.Interrupt = func(cmd fsm.Decision, _ bool) bool { return cmd.Do == fsm.RunAction }
			_ = w.Run(time.Minute, func() bool { return w.Stored.IsHeld("app") })
			_, _ = w.Reconcile()
			w.Interrupt = nil
			edit(w)
			w.settle()
			w.Delete()
			w.settle()
		}, []string{stopFirst, startFirst}},
		"released by a step": {"what the step says plainly is its own, what it reads was read before", func(w *world) {
			w.settle()
			w.reach("Two")
			edit(w)
			w.settle()
		}, []string{stopFirst, stopFirst, `Scale {"name":"first","replicas":7}`}},
		"released without the field": {"nothing is read any more", func(w *world) {
			w.settle()
			w.set("spec", map[string]any{})
			w.Delete()
			w.settle()
		}, []string{stopFirst, startFirst}},
		"the file reads another field": {"what releases it was stored with it", func(w *world) {
			w.settle()
			w.Machine = machineOf(t, "test.yaml", []byte(strings.ReplaceAll(scaling, "self.spec.deployment", "self.spec.app")), scalingBindings())
			w.Delete()
			w.settle()
		}, []string{stopFirst, startFirst}},
	} {
		t.Run(name, func(t *testing.T) {
			w, did := scaler(t, scaling)
			c.play(w)
			if d := cmp.Diff(c.want, *did); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// reach opens guard a and stops the world when it is in a phase, before an action is called there.
func (w *world) reach(phase string) {
	w.GiveGuard("a", simulate.GuardAnswer{Open: true, Times: 1}, simulate.GuardAnswer{})
	w.Interrupt = func(cmd fsm.Decision, _ bool) bool { return cmd.Do == fsm.RunAction && w.Stored.Phase == phase }
	_ = w.Run(time.Minute, func() bool { return w.Stored.Phase == phase })
	w.Interrupt = nil
}

// What is held is not taken in another way: it was silence, and the object said to be done with the values of before.
func TestHeldOtherwise(t *testing.T) {
	w, did := scaler(t, scaling)
	w.settle()
	w.set("spec.deployment", "second")
	w.settle()
	want := "app is held with name: first, and step Stop would take it with second: release it before, in a step of an earlier phase, or set name back"
	if !strings.HasPrefix(w.Shown.Message, want) || w.Stored.Phase != "One" {
		t.Errorf("phase %s says %q, want %q", w.Stored.Phase, w.Shown.Message, want)
	}
	w.set("spec.deployment", "first")
	w.reach("Two")
	w.settle()
	if d := cmp.Diff([]string{stopFirst, stopFirst, `Scale {"name":"first","replicas":7}`}, *did); d != "" {
		t.Errorf("what it asked for before is right again (-want +got):\n%s", d)
	}
}

// The message names the field that is another, as it is written in the file: not two whole manifests in the way of Go.
func TestWhatIsHeldOtherwise(t *testing.T) {
	patch := func(spec map[string]any) map[string]any { return map[string]any{"spec": spec} }
	for name, c := range map[string]struct {
		why      string
		was, now any
		want     string
	}{
		"a text":        {"as it is", "first", "second", "p: first, second"},
		"a field":       {"the rest is the same", patch(map[string]any{"replicas": 3.0, "paused": true}), patch(map[string]any{"replicas": 5.0, "paused": true}), "p.spec.replicas: 3, 5"},
		"one is gone":   {"null is what JSON has for it", patch(map[string]any{"paused": true}), patch(nil), "p.spec: {\"paused\":true}, null"},
		"one came":      {"nothing of before is another", patch(map[string]any{"a": "b"}), patch(map[string]any{"a": "b", "c": "d"}), "p.spec: {\"a\":\"b\"}, {\"a\":\"b\",\"c\":\"d\"}"},
		"a list":        {"as a whole", []any{"a"}, []any{"b"}, `p: ["a"], ["b"]`},
		"another shape": {"as a whole", "a", patch(nil), `p: a, {"spec":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, fsm.Difference("p", c.was, c.now)); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// What reads the clock differs at each look, and is what it was when the effect was taken.
func TestHeldSinceATime(t *testing.T) {
	w, did := scaler(t, strings.Replace(scaling, "'${self.spec.deployment}', replicas: 0", "'${variables.name}', replicas: 0", 1)+"  variables: [{name: name, expr: 'string(now)'}]\n")
	w.settle()
	w.Tick(5 * time.Second)
	w.settle()
	if len(*did) != 2 || (*did)[0] != (*did)[1] {
		t.Errorf("called with %v, want the same twice", *did)
	}
}

func TestTakenAnewReadsAnew(t *testing.T) {
	w, did := scaler(t, strings.Replace(scaling, "next: [{to: Done}]", "next: [{to: One, when: 'guards.b'}, {to: Done}]", 1))
	w.settle()
	w.reach("Two")
	w.set("spec.deployment", "second")
	w.settle()
	if got := (*did)[len(*did)-1]; got != `Scale {"name":"second","replicas":0}` {
		t.Errorf("what was released is read anew when it is taken again: %v", *did)
	}
}

func TestParametersThatCannotBeStored(t *testing.T) {
	for name, c := range map[string]struct{ why, deployment, want string }{
		"too long": {"the API server would refuse the state, and the deed come before the ledger", strings.Repeat("x", 33<<10), "more than the 32768 that are stored"},
		"just so":  {"the line with both parameters fits", strings.Repeat("x", 16<<10-64), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, did := scaler(t, scaling)
			w.set("spec.deployment", c.deployment)
			w.settle()
			if taken := len(*did) > 0; taken != (c.want == "") || !strings.Contains(w.Shown.Message, c.want) {
				t.Errorf("%s: taken %t, %q", c.why, taken, w.Shown.Message)
			}
		})
	}
}

// What releases an effect on record, by one machine and one program.
func TestReleaseOnRecord(t *testing.T) {
	// The file releases app by Wake, which knows the name only.
	file := strings.NewReplacer("name: Start, use: Scale, with: {name: '${self.spec.deployment}', replicas: '${self.spec.replicas}'}",
		"name: Start, use: Wake, with: {name: '${self.spec.deployment}'}", "{action: Start, with: {replicas: 7}}", "{action: Start}").Replace(scaling)
	m := machineOf(t, "test.yaml", []byte(file), scalingBindings())
	for name, c := range map[string]struct {
		why  string
		held v1alpha1.HeldEffect
		self map[string]any
		want fsm.Decision
		// blocked is what is shown instead.
		blocked v1alpha1.Blocked
	}{
		"on record": {why: "the file says something else by now", held: v1alpha1.HeldEffect{Name: "app", Release: "Scale", With: `{"name":"first","replicas":3}`},
			want: fsm.Decision{Do: fsm.RunAction, Action: "Scale", Step: "undo", Effect: "app", Releases: true, StepID: "Start", With: expr.Params{"name": "first", "replicas": int64(3)}}},
		"of an effect that the file lost": {why: "the record is all that is needed", held: v1alpha1.HeldEffect{Name: "older", Release: "Wake", With: `{"name":"first"}`},
			want: fsm.Decision{Do: fsm.RunAction, Action: "Wake", Step: "undo", Effect: "older", Releases: true, StepID: "older", With: expr.Params{"name": "first"}}},
		"name only": {why: "the file says it, and reads the object now", held: v1alpha1.HeldEffect{Name: "app"}, self: map[string]any{"spec": map[string]any{"deployment": "second"}},
			want: fsm.Decision{Do: fsm.RunAction, Action: "Wake", Step: "undo", Effect: "app", Releases: true, StepID: "Start", With: expr.Params{"name": "second"}}},
		"an action that the program lost": {why: "the file's release takes the parameters on record", held: v1alpha1.HeldEffect{Name: "app", Release: "Deleted", With: `{"name":"first"}`},
			want: fsm.Decision{Do: fsm.RunAction, Action: "Wake", Step: "undo", Effect: "app", Releases: true, StepID: "Start", With: expr.Params{"name": "first"}}},
		"parameters that the program lost": {why: "the same action with what it still takes would be a guess", held: v1alpha1.HeldEffect{Name: "app", Release: "Scale", With: `{"name":"first","surge":3}`},
			blocked: v1alpha1.Blocked{Step: "undo", Guard: "Terminal error, attempt 1", Value: `app is released by Scale {"name":"first","surge":3}, which this program cannot do, and Wake of revision ` + m.Revision() + ` takes other parameters: "surge" is no parameter of it`}},
		"nobody knows it": {why: "it is named, with the two ways out", held: v1alpha1.HeldEffect{Name: "older", Release: "Deleted"},
			blocked: v1alpha1.Blocked{Step: "undo", Guard: "Terminal error, attempt 1", Value: "older is held, but revision " + m.Revision() + " of machine test has no such effect: restore it in the machine file, or name its successor in spec.upgrade.effectMap"}},
		"edited by hand": {why: "a record that is no JSON", held: v1alpha1.HeldEffect{Name: "app", Release: "Wake", With: `{name}`},
			blocked: v1alpha1.Blocked{Step: "undo", Guard: "Terminal error, attempt 1", Value: "the parameters that release app cannot be read (read stored parameters: invalid character 'n' looking for beginning of object key string): correct them in the MachineState"}},
		"the object does not say": {why: "an edit of the object mends it", held: v1alpha1.HeldEffect{Name: "app"}, self: map[string]any{},
			blocked: v1alpha1.Blocked{Step: "undo", Guard: "Invalid error, attempt 1", Value: "with.name of Wake: ${self.spec.deployment}: no such key: spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := v1alpha1.MachineStatus{Phase: "Out", Revision: m.Revision(), Held: []v1alpha1.HeldEffect{c.held}}
			run := m.Run(st, fsm.Observation{Deleting: true, Finalizer: true, Self: fsm.StaticObject(c.self), Now: func() time.Time { return simulate.Epoch }})
			cmd := run.Decide(t.Context())
			if c.blocked.Step != "" {
				if d := cmp.Diff(v1alpha1.BlockedWays{c.blocked}, run.Status().Blocked); d != "" || cmd.Do != fsm.Requeue {
					t.Errorf("%s: %s (-want +got):\n%s", c.why, cmd.Do, d)
				}
			} else if d := cmp.Diff(c.want, cmd); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// Two entries of one name come about by a rename, a rollback, and the rename again.
func TestEffectHeldTwice(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(scaling), scalingBindings())
	first := v1alpha1.HeldEffect{Name: "app", Release: "Scale", With: `{"name":"first"}`}
	second := v1alpha1.HeldEffect{Name: "app", Release: "Scale", With: `{"name":"second"}`}
	for name, c := range map[string]struct {
		why, phase string
		with       expr.Params
	}{
		"undo": {"newest first, and one at a time", "Out", expr.Params{"name": "second"}},
		"step": {"a step releases one, an undo the rest", "Two", expr.Params{"name": "second", "replicas": int64(7)}},
	} {
		t.Run(name, func(t *testing.T) {
			st := v1alpha1.MachineStatus{Phase: c.phase, Revision: m.Revision(), Held: []v1alpha1.HeldEffect{first, second}}
			run := m.Run(st, fsm.Observation{Finalizer: true, Self: fsm.StaticObject(nil), Now: func() time.Time { return simulate.Epoch }})
			cmd := run.Decide(t.Context())
			fire(t, run, fsm.Result{})
			if d := cmp.Diff([]any{c.with, v1alpha1.HeldEffects{first}}, []any{cmd.With, run.Status().Held}); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// A record that is lost is what a release by the file would be: the test above finds it.
func TestReleaseByTheFileIsFound(t *testing.T) {
	w, did := scaler(t, scaling)
	w.settle()
	w.Stored.Held = v1alpha1.Held(w.Stored.HeldNames()...)
	w.set("spec.deployment", "second")
	w.Delete()
	w.settle()
	if d := cmp.Diff([]string{stopFirst, `Scale {"name":"second","replicas":3}`}, *did); d != "" {
		t.Errorf("the first stays stopped (-want +got):\n%s", d)
	}
}
