package fsm_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// Everything in scaling under other names.
var renamed = strings.NewReplacer("name: app,", "name: deployment,", "name: One", "name: First", "initial: One", "initial: First", "Stop", "Halt", "Start", "Resume",
	"spec:\n", "spec:\n  upgrade: {phaseMap: {One: First}, effectMap: {app: deployment}, stepMap: {Stop: Halt}, requestMap: {go: again}}\n", "name: go", "name: again").Replace(withRequest)

var withRequest = strings.Replace(scaling, "  phases:", "  requests: [{name: go, token: 'self.spec.go'}]\n  phases:", 1)

// back is the file of before, which knows the new names too.
var back = strings.Replace(withRequest, "spec:\n", "spec:\n  upgrade: {phaseMap: {First: One}, effectMap: {deployment: app}, stepMap: {Halt: Stop}, requestMap: {again: go}}\n", 1)

func TestRenamesWhileHeld(t *testing.T) {
	for name, c := range map[string]struct {
		why   string
		files []string // one after the other
		held  []string
	}{
		"renamed":                   {"the new name, the old target", []string{renamed}, []string{"deployment"}},
		"renamed and back":          {"a rollback to a file that maps them back", []string{renamed, back}, []string{"app"}},
		"renamed, back and renamed": {"the same names again", []string{renamed, back, renamed}, []string{"deployment"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, did := scaler(t, withRequest)
			w.settle()
			w.set("spec.deployment", "second")
			for _, file := range c.files {
				w.Machine = machineOf(t, "test.yaml", []byte(file), scalingBindings())
				if err := w.Machine.Adopts(w.Stored); err != nil {
					t.Fatal(err)
				}
				w.settle()
			}
			if d := cmp.Diff(c.held, w.Stored.HeldNames()); d != "" {
				t.Errorf("%s: held (-want +got):\n%s", c.why, d)
			}
			w.Delete()
			w.settle()
			if d := cmp.Diff([]string{stopFirst, startFirst}, *did); d != "" || !w.Gone() {
				t.Errorf("%s: gone %t (-want +got):\n%s", c.why, w.Gone(), d)
			}
		})
	}
}

// A file that was not made for it gets an object back whose effect has a new name.
func TestRollbackToAFileThatKnowsNothing(t *testing.T) {
	file := strings.NewReplacer("name: First", "name: One", "initial: First", "initial: One", "phaseMap: {One: First}, ", "").Replace(renamed)
	w, did := scaler(t, withRequest)
	w.settle()
	for _, file := range []string{file, withRequest, file} {
		w.Machine = machineOf(t, "test.yaml", []byte(file), scalingBindings())
		w.set("spec.deployment", "second")
		w.settle()
	}
	w.Delete()
	w.settle()
	want := []string{stopFirst, `Scale {"name":"second","replicas":0}`, `Scale {"name":"second","replicas":0}`, `Scale {"name":"second","replicas":3}`, startFirst}
	if d := cmp.Diff(want, *did); d != "" || !w.Gone() {
		t.Errorf("both targets are released, newest first: gone %t (-want +got):\n%s", w.Gone(), d)
	}
}

func TestRequestsAreRenamed(t *testing.T) {
	const one = "6b86b273ff34fce1" // the digest of 1
	m := machineOf(t, "test.yaml", []byte(renamed), scalingBindings())
	for name, c := range map[string]struct {
		why          string
		stored, want []v1alpha1.RequestStatus
	}{
		"renamed":   {"what was acted on is not acted on again", []v1alpha1.RequestStatus{{Name: "go", Token: "1"}}, []v1alpha1.RequestStatus{{Name: "again", Token: "1"}}},
		"both":      {"after a rollback: two of one name would be refused, and the newer is the last", []v1alpha1.RequestStatus{{Name: "again", Token: "1"}, {Name: "other", Token: "x"}, {Name: "go", Token: "2"}}, []v1alpha1.RequestStatus{{Name: "other", Token: "x"}, {Name: "again", Token: "2", Earlier: one}}},
		"both ways": {"whichever it was", []v1alpha1.RequestStatus{{Name: "go", Token: "1"}, {Name: "again", Token: "2"}}, []v1alpha1.RequestStatus{{Name: "again", Token: "2", Earlier: one}}},
	} {
		got := m.Run(v1alpha1.MachineStatus{Phase: "First", Requests: c.stored}, fsm.Observation{Now: time.Now}).Status().Requests
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, d)
		}
	}
}

func TestStepsAreRenamed(t *testing.T) {
	file := func(upgrade, steps string) *fsm.Machine {
		return machineOf(t, "test.yaml", []byte(strings.Replace(one("    poll: 5s\n    steps: ["+steps+"]\n"+toDone), "spec:\n", "spec:\n"+upgrade, 1)), testBindings)
	}
	m := file("  upgrade: {stepMap: {Wait: Work, Lost: Give2}}\n", "{action: Look}, {action: Take2}, {action: Work}, {if: 'guards.a', action: Give2}")
	for name, c := range map[string]struct {
		why, phase, step string
		want             v1alpha1.MachineStatus
	}{
		"mapped":                  {"it goes on where it stood", "One", "Wait", v1alpha1.MachineStatus{StepIndex: 2, Step: "Work"}},
		"not mapped":              {"another file's stepIndex is not believed", "One", "Work", v1alpha1.MachineStatus{}},
		"of a phase without it":   {"a step of another phase", "Done", "Wait", v1alpha1.MachineStatus{}},
		"of a phase that is gone": {"it stands there until its phase is known again", "Lost", "Wait", v1alpha1.MachineStatus{StepIndex: 1, Step: "Wait"}},
	} {
		st := m.Run(v1alpha1.MachineStatus{Phase: c.phase, Step: c.step, StepIndex: 1}, fsm.Observation{Now: time.Now}).Status()
		if d := cmp.Diff(c.want, v1alpha1.MachineStatus{StepIndex: st.StepIndex, Step: st.Step}); d != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, d)
		}
	}
}

func TestAdopts(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(renamed), scalingBindings())
	for name, c := range map[string]struct {
		why, want string
		st        v1alpha1.MachineStatus
	}{
		"nothing stored":   {"a new object", "", v1alpha1.MachineStatus{}},
		"mapped phase":     {"it goes on in First", "", v1alpha1.MachineStatus{Phase: "One"}},
		"phase":            {"it would be Stalled", "it is in phase Old, which is not here: restore the phase, or name its successor in spec.upgrade.phaseMap", v1alpha1.MachineStatus{Phase: "Old"}},
		"mapped effect":    {"by its new name", "", v1alpha1.MachineStatus{Phase: "First", Held: v1alpha1.Held("app")}},
		"name only":        {"what the release reads is read when it is needed", "", v1alpha1.MachineStatus{Phase: "First", Held: v1alpha1.Held("deployment")}},
		"recorded release": {"it needs no effect of the file", "", v1alpha1.MachineStatus{Phase: "First", Held: []v1alpha1.HeldEffect{{Name: "old", Release: "Wake", With: `{"name":"x"}`}}}},
		"lost release":     {"nobody could release it", "old is held, but revision " + m.Revision() + " of machine test has no such effect: restore it in the machine file, or name its successor in spec.upgrade.effectMap", v1alpha1.MachineStatus{Phase: "First", Held: []v1alpha1.HeldEffect{{Name: "old", Release: "Wake"}}}},
	} {
		got := ""
		if err := m.Adopts(c.st); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s: got %q, want %q", name, c.why, got, c.want)
		}
	}
}

// recovering says where an object goes on whose state is lost.
const recovering = `  recover:
  - {when: 'guards.a', to: Done, reason: WasDone}
  - {when: 'guards.b', to: One, holds: [app]}
`

func TestRecovery(t *testing.T) {
	for name, c := range map[string]struct {
		why       string
		file      string
		a, b      simulate.GuardAnswer
		spec      map[string]any
		want      fsm.Decision
		st        v1alpha1.MachineStatus
		message   string
		stalled   bool
		deletions string
	}{
		"first": {why: "the first that applies, in document order", file: recovering, a: simulate.GuardAnswer{Open: true}, b: simulate.GuardAnswer{Open: true},
			want: fsm.Decision{Do: fsm.Commit}, st: v1alpha1.MachineStatus{Phase: "Done"}, message: "WasDone", deletions: "→ Out"},
		"second": {why: "what it holds has its release on record from here on", file: recovering, b: simulate.GuardAnswer{Open: true}, spec: map[string]any{"deployment": "first", "replicas": 3},
			want: fsm.Decision{Do: fsm.Commit}, st: v1alpha1.MachineStatus{Phase: "One", Held: []v1alpha1.HeldEffect{{Name: "app", Release: "Scale", With: `{"name":"first","replicas":3}`, Acquired: `{"name":"first"}`}}},
			message: "StateRecovered", deletions: "→ Out"},
		"guard fails": {why: "the second must not be asked instead", file: recovering, a: simulate.GuardAnswer{Err: errors.New("no answer")}, b: simulate.GuardAnswer{Open: true},
			want: fsm.Decision{Do: fsm.Requeue, After: 10 * time.Second}, message: "The state of this object is lost, and cannot be recovered yet: checking whether guards.a: no answer", deletions: "blocked: until its state is recovered"},
		"release cannot be read": {why: "later it could not be read either, when there is no object", file: recovering, b: simulate.GuardAnswer{Open: true}, spec: map[string]any{},
			want: fsm.Decision{Do: fsm.Requeue, After: 10 * time.Second}, message: "The state of this object is lost, and cannot be recovered yet: what would release app: with.", deletions: "blocked: until its state is recovered"},
		"none": {why: "no guess", file: recovering, want: fsm.Decision{Do: fsm.Requeue}, stalled: true, deletions: "blocked: until its state is recovered",
			message: "the object bears finalizer test.phasegate.dev/f, but its MachineState is gone, and no entry of spec.recover of machine test applies: restore the MachineState from a backup; or release what is left by hand, then remove the finalizer"},
		"no entries": {why: "nor where the file says nothing", want: fsm.Decision{Do: fsm.Requeue}, stalled: true, deletions: "blocked: until its state is recovered", message: "the object bears finalizer"},
		"always": {why: "an entry without when", file: "  recover: [{to: One, holds: [app]}]\n", spec: map[string]any{"deployment": "first", "replicas": 3},
			want: fsm.Decision{Do: fsm.Commit}, st: v1alpha1.MachineStatus{Phase: "One", Held: []v1alpha1.HeldEffect{{Name: "app", Release: "Scale", With: `{"name":"first","replicas":3}`, Acquired: `{"name":"first"}`}}}, message: "StateRecovered", deletions: "→ Out"},
	} {
		for _, deleting := range []bool{false, true} {
			m := machineOf(t, "test.yaml", []byte(scaling+c.file), scalingBindings())
			guards := map[string]simulate.GuardAnswer{"a": c.a, "b": c.b}
			run := m.Run(v1alpha1.MachineStatus{}, fsm.Observation{Finalizer: true, Deleting: deleting, Self: fsm.StaticObject(map[string]any{"spec": c.spec}), Now: func() time.Time { return simulate.Epoch },
				Guard: func(name string) (bool, string, error) { return guards[name].Open, "", guards[name].Err }})
			cmd := run.Decide(t.Context())
			reason := ""
			if cmd.Transition != nil {
				reason, cmd.Transition = cmd.Transition.Reason, nil
			}
			if d := cmp.Diff(c.want, cmd); d != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, c.why, d)
			}
			st, shown := run.Status(), run.Summary()
			if d := cmp.Diff(c.st, v1alpha1.MachineStatus{Phase: st.Phase, Held: st.Held}); d != "" || st.OnDelete.String() != c.deletions {
				t.Errorf("%s: %s: on delete %q (-want +got):\n%s", name, c.why, st.OnDelete, d)
			}
			stalled := shown.Conditions[2].Reason == "StateLost"
			if !strings.HasPrefix(shown.Message, c.message) && reason != c.message || stalled != c.stalled {
				t.Errorf("%s: %s: stalled %t, %q, %+v", name, c.why, stalled, shown.Message, shown.Conditions)
			}
		}
	}
}

func TestNothingToRecover(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(spec("  finalizer: a.b/c\n"+onePhase)), testBindings)
	run := m.Run(v1alpha1.MachineStatus{}, fsm.Observation{Finalizer: true, Now: func() time.Time { return simulate.Epoch }})
	if cmd := run.Decide(t.Context()); cmd.Do != fsm.Commit || run.Status().Phase != "One" {
		t.Errorf("a machine without effects begins anew: %+v", cmd)
	}
}
