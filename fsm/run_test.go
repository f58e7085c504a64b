package fsm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

func TestRestIsQuiet(t *testing.T) {
	for name, c := range map[string]struct {
		why, phase string
		wake       time.Duration
	}{
		"steady":                 {"drift is corrected without a status write", "kind: steady, poll: 5s, steps: [{action: Look}, {action: Work}], onDelete: {immediate: true}", 5 * time.Second},
		"steady with exits":      {"closed exits say the same on each look", "kind: steady, poll: 5s, steps: [{action: Look}], next: [{to: Done, when: 'phase.age > duration(\"9000h\") && now > now'}, {to: Done, when: 'result.n > 1'}], onDelete: {immediate: true}", 5 * time.Second},
		"steady in a wait":       {"a step that waits begins to wait once", "kind: steady, poll: 5s, steps: [{action: Look, until: 'result.n > 1'}], onDelete: {immediate: true}", 5 * time.Second},
		"steady with a timeout":  {"a deadline that has passed wakes nobody", "kind: steady, poll: 5s, timeout: {after: 1s, stalled: Slow}, onDelete: {immediate: true}", 5 * time.Second},
		"stalled without a poll": {"nor does it spin where nothing else wakes", "kind: steady, watch: [{apiVersion: v1, kind: Pod}], timeout: {after: 1s, stalled: Slow}, onDelete: {immediate: true}", 0},
		"terminal":               {"the end is the end", "terminal: success, onDelete: {immediate: true}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(spec("  phases:\n  - {name: One, "+c.phase+"}\n"+doneIf(c.phase))), testBindings)
			w.settle()
			w.Tick(time.Minute)
			w.settle()
			version, status := w.Version(), w.Stored
			for range 3 {
				w.Tick(time.Minute)
				cmd, err := w.Reconcile()
				if err != nil || cmd.Do != fsm.Requeue || cmd.After != c.wake {
					t.Errorf("%s: got %s after %s, %v; want a sleep of %s", c.why, cmd.Do, cmd.After, err, c.wake)
				}
			}
			if version != w.Version() {
				t.Errorf("%s: the status changes (-first +later):\n%s", c.why, cmp.Diff(status, w.Stored))
			}
		})
	}
}

func TestAnEndThatNobodyDeletes(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, next: [{to: End}], onDelete: {to: End}}\n  - {name: End, deletion: true, end: true}\n")), testBindings)
	var did []fsm.Verb
	for range 6 {
		cmd, err := w.Reconcile()
		if err != nil {
			t.Fatal(err)
		}
		did = append(did, cmd.Do)
	}
	if d := cmp.Diff([]fsm.Verb{fsm.Commit, fsm.AddFinalizer, fsm.Commit, fsm.RemoveFinalizer, fsm.Requeue, fsm.Requeue}, did); d != "" {
		t.Errorf("a finalizer is removed once, not for ever (-want +got):\n%s", d)
	}
}

func TestDeadlineSurvivesTheDriverAndTheFile(t *testing.T) {
	const waiting = "kind: waiting, poll: 1m, next: [{to: Done, when: 'guards.a'}], onDelete: {to: Out}"
	file := func(timeout string) *fsm.Machine {
		return newWorld(t, "test.yaml", []byte(phases("  - {name: One, "+timeout+waiting+"}\n"+rest)), testBindings).Machine
	}
	for name, c := range map[string]struct {
		why           string
		before, after string
		at            time.Duration
		do            fsm.Verb
		wake          time.Duration
		to            string
	}{
		"honored":     {"it is stored as a time of day", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 1h, to: Done}, ", time.Hour, fsm.Commit, 0, "Done"},
		"cuts a poll": {"it does not wait for the next look", "timeout: {after: 90s, to: Done}, ", "timeout: {after: 90s, to: Done}, ", time.Minute, fsm.Requeue, 30 * time.Second, "One"},
		"longer":      {"a new file is for those in the phase too", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 2h, to: Done}, ", time.Hour, fsm.Requeue, time.Minute, "One"},
		"shorter":     {"it counts from the entry all the same", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 30m, to: Done}, ", 31 * time.Minute, fsm.Commit, 0, "Done"},
		"added":       {"a new one counts from the entry", "", "timeout: {after: 1h, to: Done}, ", time.Hour, fsm.Commit, 0, "Done"},
		"removed":     {"and one that is gone must not wake a run again and again", "timeout: {after: 1h, to: Done}, ", "", 2 * time.Hour, fsm.Requeue, time.Minute, "One"},
		"now stalled": {"a target that is gone is not gone to", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 1h, stalled: Late}, ", 2 * time.Hour, fsm.Requeue, time.Minute, "One"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, "+c.before+waiting+"}\n"+rest)), testBindings)
			w.GiveGuard("a", simulate.GuardAnswer{})
			w.settle()
			w.Machine = file(c.after)
			w.Tick(c.at)
			cmd, err := w.Reconcile()
			if err != nil || cmd.Do != c.do || cmd.After != c.wake || w.Stored.Phase != c.to {
				t.Errorf("%s: got %s after %s in %s, %v", c.why, cmd.Do, cmd.After, w.Stored.Phase, err)
			}
		})
	}
}

func TestAChangedFileLeavesNoStepOut(t *testing.T) {
	old := one("    poll: 5s\n    steps: [{action: Look}, {action: Work}]\n" + toDone)
	w := newWorld(t, "test.yaml", []byte(old), testBindings)
	w.Give("Work", simulate.Answer{Result: fsm.Result{Err: fsm.Wait("not yet")}})
	w.settle()
	w.Give("Work")
	w.Called = nil
	w.Machine = newWorld(t, "test.yaml", []byte(strings.Replace(old, "[{action: Look}", "[{action: Take}, {action: Look}", 1)), testBindings).Machine
	w.settle()
	if d := cmp.Diff([]string{"Take", "Look", "Work"}, w.Called); d != "" {
		t.Errorf("a stepIndex that counts another file's steps must not be believed (-want +got):\n%s", d)
	}
	if w.Stored.Phase != "Done" || w.Stored.Revision != w.Machine.Revision() {
		t.Errorf("rests in %s with revision %s", w.Stored.Phase, w.Stored.Revision)
	}
}

func TestHeldEffectThatTheFileLost(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Take}]\n    next: [{to: Done, when: 'guards.a'}]\n")), testBindings)
	w.GiveGuard("a", simulate.GuardAnswer{})
	w.settle()
	w.Stored.Held = append(w.Stored.Held, v1alpha1.HeldEffect{Name: "older"})
	w.Delete()
	w.settle()
	if w.Gone() || len(w.Stored.HeldNames()) != 2 || !strings.Contains(w.Shown.Message, `older is held`) {
		t.Errorf("what cannot be released keeps the object, and is named: gone=%t, held %v, %q", w.Gone(), w.Stored.HeldNames(), w.Shown.Message)
	}
}

func TestStatusEditedByHandDoesNotPanic(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{wait: 1h}]\n"+toDone)), testBindings)
	revision := w.Machine.Revision()
	for name, st := range map[string]v1alpha1.MachineStatus{
		"no times":         {Phase: "One", Step: "wait"},
		"stepIndex behind": {Phase: "One", StepIndex: 7},
		"stepIndex before": {Phase: "One", StepIndex: -1},
		"broken result":    {Phase: "One", Result: "{broken"},
		"nothing at all":   {},
	} {
		st.Revision = revision
		w.Finalizers = []string{w.Machine.Finalizer()}
		run := w.Machine.Run(st, w.View())
		if cmd := run.Decide(t.Context()); cmd.Do != fsm.Requeue && cmd.Do != fsm.Commit {
			t.Errorf("%s: got %s", name, cmd.Do)
		}
	}
}

func TestResultHasTheSameTypesAfterARestart(t *testing.T) {
	for name, between := range map[string]string{"same run": "", "restart in between": ", {wait: 1m}"} {
		t.Run(name, func(t *testing.T) {
			b := program.Bindings{Guards: testBindings.Guards, Actions: maps.Clone(testBindings.Actions)}
			b.Actions["Look"] = program.ActionSpec{Outputs: map[string]expr.Type{
				"n": expr.TypeInt, "list": expr.TypeStrings, "ratio": expr.TypeNumber, "took": expr.TypeDuration}}
			w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Look}"+between+"]\n    next:\n    - to: Done\n"+
				"      when: 'type(result.n) == int && result.n == 3 && result.list == [\"a\"] && result.ratio * 1.5 == 3.0 && result.took + duration(\"1m\") == duration(\"150s\")'\n")), b)
			w.Give("Look", simulate.Answer{Result: fsm.Result{Outputs: map[string]any{"n": int32(3), "list": []string{"a"}, "ratio": 2.0, "took": "90s"}}})
			w.settle()
			w.Tick(time.Minute)
			w.settle()
			if w.Stored.Phase != "Done" {
				t.Errorf("rests in %s, blocked %+v", w.Stored.Phase, w.ShownMachine.Blocked)
			}
		})
	}
}

func TestHistoryAndBlockedAreBounded(t *testing.T) {
	var exits strings.Builder
	for i := range 20 {
		fmt.Fprintf(&exits, "    - {to: Three, when: 'guards.a && guards.b && size(held) == %d'}\n", i)
	}
	w := newWorld(t, "test.yaml", []byte(spec("  phases:\n  - {name: One, poll: 1s, next: [{to: Two}], onDelete: {immediate: true}}\n  - name: Two\n    poll: 1s\n    onDelete: {immediate: true}\n    next:\n"+exits.String()+"    - {to: One, when: 'guards.a'}\n  - {name: Three, next: [{to: One}], onDelete: {immediate: true}}\n")), testBindings)
	for range 60 {
		if _, err := w.Reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.Stored.History); n != v1alpha1.HistoryLimit {
		t.Errorf("history holds %d transitions", n)
	}
	last, before := w.Stored.History[v1alpha1.HistoryLimit-1], w.Stored.History[v1alpha1.HistoryLimit-2]
	if last.From != before.To || last.At.Before(&before.At) {
		t.Errorf("the newest is not the last: %+v after %+v", last, before)
	}
	long := strings.Repeat("ä", 5000)
	w.GiveGuard("a", simulate.GuardAnswer{Seen: long})
	w.GiveGuard("b", simulate.GuardAnswer{Seen: long})
	w.settle() // the world checks the bounds
	if n := len(w.ShownMachine.Blocked); w.Stored.Phase == "Two" && n != 16 {
		t.Errorf("blocked holds %d", n)
	}
}

func TestErrorsOfAnySizeFitTheStatus(t *testing.T) {
	long := strings.Repeat("no route to host ", 500)
	for name, o := range map[string]fsm.Result{
		"retried":  {Err: errors.New(long), Class: program.ClassUnavailable},
		"terminal": {Err: fsm.Terminal(long, "%s", long)},
		"waiting":  {Err: fsm.Wait("%s", long)},
	} {
		w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Work}]\n    onError: [{is: Terminal, to: Done}]\n"+toDone)), testBindings)
		w.Give("Work", simulate.Answer{Result: o})
		w.settle() // the world checks the bounds
		if len(w.Shown.Message) > 1024 {
			t.Errorf("%s: a message of %d bytes", name, len(w.Shown.Message))
		}
	}
}

func TestRetryAfterIsHonored(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    steps: [{action: Work}]\n"+toDone)), testBindings)
	w.Give("Work", simulate.Answer{Result: fsm.Result{Err: errors.New("slow down"), Class: program.ClassThrottled, RetryAfter: 42 * time.Second}})
	var last fsm.Decision
	for range 3 {
		last, _ = w.Reconcile()
	}
	if want := (fsm.Decision{Do: fsm.Requeue, After: 42 * time.Second}); cmp.Diff(want, last) != "" {
		t.Errorf("got %+v", last)
	}
}

func TestWaitHasAPaceOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		why, step string
		wait      *fsm.WaitError
		want      time.Duration
	}{
		"given":   {"the action knows best", "{action: Work, poll: 5s}", &fsm.WaitError{After: time.Second}, time.Second},
		"poll":    {"else the step's poll", "{action: Work, poll: 5s}", &fsm.WaitError{}, 5 * time.Second},
		"nothing": {"no poll anywhere must not mean never", "{action: Work}", &fsm.WaitError{}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(one("    steps: ["+c.step+"]\n"+toDone)), testBindings)
			w.Give("Work", simulate.Answer{Result: fsm.Result{Err: c.wait}})
			var last fsm.Decision
			for range 3 {
				last, _ = w.Reconcile()
			}
			if want := (fsm.Decision{Do: fsm.Requeue, After: c.want}); cmp.Diff(want, last) != "" {
				t.Errorf("%s: got %+v", c.why, last)
			}
		})
	}
}

func TestRunLeavesTheStoredStatusAlone(t *testing.T) {
	w := shipped(t)
	reach["Migrating"](w)
	before, _ := json.Marshal(w.Stored)
	run := w.Machine.Run(w.Stored, w.View())
	for cmd := run.Decide(t.Context()); cmd.Do == fsm.RunAction; cmd = run.Decide(t.Context()) {
		fire(t, run, fsm.Result{Outputs: simulate.Zero(w.Machine.Bindings().Actions[cmd.Action])})
	}
	fire(t, run, fsm.Result{Err: errors.New("nobody asked")})
	if after, _ := json.Marshal(w.Stored); string(after) != string(before) {
		t.Errorf("the stored status changed:\n%s\n%s", before, after)
	}
}

func TestOneMachineServesManyRuns(t *testing.T) {
	w := shipped(t)
	reach["WaitingForConflictResolution"](w)
	want := w.Machine.Run(w.Stored, w.View()).Decide(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				view := fsm.Observation{Self: fsm.StaticObject(w.Self()), Finalizer: true, Now: func() time.Time { return simulate.Epoch }}
				run := w.Machine.Run(w.Stored, view)
				if d := cmp.Diff(want, run.Decide(t.Context())); d != "" {
					t.Errorf("another answer (-alone +together):\n%s", d)
				}
				fire(t, run, fsm.Result{Outputs: map[string]any{"conflicts": 1, "examples": []string{"x"}}})
				run.Decide(t.Context())
			}
		})
	}
	wg.Wait()
}

func TestConditionsPerKindOfPhase(t *testing.T) {
	for name, c := range map[string]struct {
		why, phase string
		raised     string
	}{
		"progressing": {"something is going on", "poll: 5s, next: [{to: Done, when: 'false'}], onDelete: {immediate: true}", fsm.ConditionReconciling},
		"waiting":     {"a person is asked, nothing is wrong", "kind: waiting, poll: 5s, next: [{to: Done, when: 'false'}], onDelete: {immediate: true}", fsm.ConditionReconciling},
		"steady":      {"it runs", "kind: steady, poll: 5s, onDelete: {immediate: true}", fsm.ConditionReady},
		"success":     {"it is done", "terminal: success, onDelete: {immediate: true}", fsm.ConditionReady},
		"failure":     {"it needs a person", "terminal: failure, onDelete: {immediate: true}", fsm.ConditionStalled},
	} {
		w := newWorld(t, "test.yaml", []byte(spec("  phases:\n  - {name: One, "+c.phase+"}\n"+doneIf(c.phase))), testBindings)
		w.settle()
		var raised string
		for _, x := range w.Shown.Conditions {
			if x.Status == metav1.ConditionTrue {
				raised += x.Type
			}
		}
		if raised != c.raised {
			t.Errorf("%s: %s: true is %q, want %q", name, c.why, raised, c.raised)
		}
	}
}

func TestOutputsThatDoNotFitAreAnError(t *testing.T) {
	file := []byte(one("    poll: 5s\n    steps: [{action: Look}]\n    next: [{to: Done, when: 'result.n == 3'}]\n"))
	for name, outputs := range map[string]map[string]any{
		"too long":       {"n": strings.Repeat("x", 128<<10)},
		"no plain value": {"n": func() {}},
	} {
		w := newWorld(t, "test.yaml", file, testBindings)
		w.Finalizers = []string{w.Machine.Finalizer()}
		run := w.Machine.Run(v1alpha1.MachineStatus{Phase: "One", Revision: w.Machine.Revision()}, w.View())
		if cmd := run.Decide(t.Context()); cmd.Do != fsm.RunAction {
			t.Fatalf("%s: got %s, want RunAction", name, cmd.Do)
		}
		fire(t, run, fsm.Result{Outputs: outputs})
		if cmd := run.Decide(t.Context()); cmd.Do != fsm.Requeue || run.Status().Result != "" || !strings.Contains(run.Summary().Message, "Look: outputs") {
			t.Errorf("%s: %s, result %.20q, %q; want it named and not stored, because the API server would refuse the whole status",
				name, cmd.Do, run.Status().Result, run.Summary().Message)
		}
	}
}

// A spec that changed while steps were being made durable one by one is news all
// the same when the exits are looked at; it was lost once, because each status
// write said that the new generation had been observed.
func TestGenerationChangedOutlivesCommits(t *testing.T) {
	machine := machineOf(t, "test.yaml", []byte(phases(`  - name: One
    steps: [{action: Take}, {undo: held}]
    next: [{to: Done, when: 'generationChanged'}]
    poll: 1m
    timeout: {after: 1h, stalled: Late}
    onDelete: {to: Out}
`+rest)), testBindings)
	status := v1alpha1.MachineStatus{}
	for generation := int64(1); status.Phase != "Done"; generation = 2 {
		run := machine.Run(status, fsm.Observation{Finalizer: status.Phase != "", Generation: generation, Now: func() time.Time { return simulate.Epoch }})
		for cmd := run.Decide(t.Context()); cmd.Do == fsm.RunAction; cmd = run.Decide(t.Context()) {
			fire(t, run, fsm.Result{})
		}
		if cmd := run.Decide(t.Context()); cmd.Do == fsm.Requeue {
			t.Fatalf("the machine sleeps in %s, blocked by %v", run.Status().Phase, run.Status().Blocked)
		}
		status = run.Status()
	}
	if status.Generation != 2 {
		t.Errorf("Done was entered at generation %d, want 2", status.Generation)
	}
}

// doneIf is a phase Done for the file of one that leads there: no phase stands alone.
func doneIf(phase string) string {
	if strings.Contains(phase, "to: Done") {
		return "  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"
	}
	return ""
}
