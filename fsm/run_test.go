package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

func TestRestIsQuiet(t *testing.T) {
	for name, c := range map[string]struct {
		why, phase string
		wake       time.Duration
	}{
		"steady":                 {"drift is corrected without a status write", "kind: steady, poll: 5s, steps: [{action: Look}, {action: Work}], onDelete: {none: true}", 5 * time.Second},
		"steady with exits":      {"closed exits say the same on each look", "kind: steady, poll: 5s, steps: [{action: Look}], next: [{to: One, when: 'phase.age > duration(\"9000h\") && now > now'}, {to: One, when: 'result.n > 1'}], onDelete: {none: true}", 5 * time.Second},
		"steady in a wait":       {"a step that waits begins to wait once", "kind: steady, poll: 5s, steps: [{action: Look, until: 'result.n > 1'}], onDelete: {none: true}", 5 * time.Second},
		"steady with a timeout":  {"a deadline that has passed wakes nobody", "kind: steady, poll: 5s, timeout: {after: 1s, stalled: Slow}, onDelete: {none: true}", 5 * time.Second},
		"stalled without a poll": {"nor does it spin where nothing else wakes", "kind: steady, watch: [{apiVersion: v1, kind: Pod}], timeout: {after: 1s, stalled: Slow}, onDelete: {none: true}", 0},
		"terminal":               {"the end is the end", "terminal: success, onDelete: {none: true}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "test.yaml", []byte(spec("  phases: [{name: One, "+c.phase+"}]\n")), testBindings)
			w.settle()
			w.now = w.now.Add(time.Minute)
			w.settle()
			version, status := w.version, w.stored
			for range 3 {
				w.now = w.now.Add(time.Minute)
				cmd, err := w.pass()
				if err != nil || cmd.Do != Sleep || cmd.After != c.wake {
					t.Errorf("%s: got %s after %s, %v; want a sleep of %s", c.why, cmd.Do, cmd.After, err, c.wake)
				}
			}
			if version != w.version {
				t.Errorf("%s: the status changes (-first +later):\n%s", c.why, cmp.Diff(status, w.stored))
			}
		})
	}
}

func TestAnEndThatNobodyDeletes(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, next: [{to: End}], onDelete: {to: End}}\n  - {name: End, deletion: true, end: true}\n")), testBindings)
	var did []Verb
	for range 6 {
		cmd, err := w.pass()
		if err != nil {
			t.Fatal(err)
		}
		did = append(did, cmd.Do)
	}
	if d := cmp.Diff([]Verb{Commit, AddFinalizer, Commit, RemoveFinalizer, Sleep, Sleep}, did); d != "" {
		t.Errorf("a finalizer is removed once, not for ever (-want +got):\n%s", d)
	}
}

func TestDeadlineSurvivesTheDriverAndTheFile(t *testing.T) {
	const waiting = "kind: waiting, poll: 1m, next: [{to: Done, when: 'guards.a'}], onDelete: {to: Out}"
	file := func(timeout string) *Machine {
		return newWorld(t, "test.yaml", []byte(phases("  - {name: One, "+timeout+waiting+"}\n"+rest)), testBindings).m
	}
	for name, c := range map[string]struct {
		why           string
		before, after string
		at            time.Duration
		do            Verb
		wake          time.Duration
		to            string
	}{
		"honored":     {"it is stored as a time of day", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 1h, to: Done}, ", time.Hour, Commit, 0, "Done"},
		"cuts a poll": {"it does not wait for the next look", "timeout: {after: 90s, to: Done}, ", "timeout: {after: 90s, to: Done}, ", time.Minute, Sleep, 30 * time.Second, "One"},
		"first says":  {"a longer one in a new file is for new visits", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 2h, to: Done}, ", time.Hour, Commit, 0, "Done"},
		"added":       {"a new one counts from the entry", "", "timeout: {after: 1h, to: Done}, ", time.Hour, Commit, 0, "Done"},
		"removed":     {"and one that is gone must not wake a run again and again", "timeout: {after: 1h, to: Done}, ", "", 2 * time.Hour, Sleep, time.Minute, "One"},
		"now stalled": {"a target that is gone is not gone to", "timeout: {after: 1h, to: Done}, ", "timeout: {after: 1h, stalled: Late}, ", 2 * time.Hour, Sleep, time.Minute, "One"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(phases("  - {name: One, "+c.before+waiting+"}\n"+rest)), testBindings)
			w.guards["a"] = guardAnswer{}
			w.settle()
			w.m = file(c.after)
			w.now = w.now.Add(c.at)
			cmd, err := w.pass()
			if err != nil || cmd.Do != c.do || cmd.After != c.wake || w.stored.Phase != c.to {
				t.Errorf("%s: got %s after %s in %s, %v", c.why, cmd.Do, cmd.After, w.stored.Phase, err)
			}
		})
	}
}

func TestAChangedFileLeavesNoStepOut(t *testing.T) {
	old := one("    poll: 5s\n    steps: [{action: Look}, {action: Work}]\n" + toDone)
	w := newWorld(t, "test.yaml", []byte(old), testBindings)
	w.actions["Work"] = []answer{{Outcome: Outcome{Err: Wait("not yet")}}}
	w.settle()
	w.actions["Work"], w.acted = nil, nil
	w.m = newWorld(t, "test.yaml", []byte(strings.Replace(old, "[{action: Look}", "[{action: Take}, {action: Look}", 1)), testBindings).m
	w.settle()
	if d := cmp.Diff([]string{"Take", "Look", "Work"}, w.acted); d != "" {
		t.Errorf("a cursor that counts another file's steps must not be believed (-want +got):\n%s", d)
	}
	if w.stored.Phase != "Done" || w.stored.Revision != w.m.Revision() {
		t.Errorf("rests in %s with revision %s", w.stored.Phase, w.stored.Revision)
	}
}

func TestHeldEffectThatTheFileLost(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Take}]\n    next: [{to: Done, when: 'guards.a'}]\n")), testBindings)
	w.guards["a"] = guardAnswer{}
	w.settle()
	w.stored.Held = append(w.stored.Held, "older")
	w.delete()
	w.settle()
	if w.gone || len(w.stored.Held) != 2 || !strings.Contains(w.shown.Message, `older is held`) {
		t.Errorf("what cannot be given back keeps the object, and is named: gone=%t, held %v, %q", w.gone, w.stored.Held, w.shown.Message)
	}
}

func TestStatusEditedByHandDoesNotPanic(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{wait: 1h}]\n"+toDone)), testBindings)
	revision := w.m.Revision()
	for name, st := range map[string]v1alpha1.MachineStatus{
		"no times":       {Phase: "One", Step: "wait"},
		"cursor behind":  {Phase: "One", Cursor: 7},
		"cursor before":  {Phase: "One", Cursor: -1},
		"broken result":  {Phase: "One", Result: "{broken"},
		"nothing at all": {},
	} {
		st.Revision = revision
		w.finalizer = true
		run := w.m.Run(st, w.view())
		if cmd := run.Next(); cmd.Do != Sleep && cmd.Do != Commit {
			t.Errorf("%s: got %s", name, cmd.Do)
		}
	}
}

func TestResultHasTheSameTypesAfterARestart(t *testing.T) {
	for name, between := range map[string]string{"same run": "", "restart in between": ", {wait: 1m}"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Look}"+between+"]\n    next: [{to: Done, when: 'type(result.n) == int && result.n == 3 && result.list == [1, 2]'}]\n")), testBindings)
			w.actions["Look"] = []answer{{Outcome: Outcome{Outputs: map[string]any{"n": int32(3), "list": []int{1, 2}}}}}
			w.settle()
			w.now = w.now.Add(time.Minute)
			w.settle()
			if w.stored.Phase != "Done" {
				t.Errorf("rests in %s, blocked %+v", w.stored.Phase, w.stored.Blocked)
			}
		})
	}
}

func TestHistoryAndBlockedAreBounded(t *testing.T) {
	var exits strings.Builder
	for i := range 20 {
		fmt.Fprintf(&exits, "    - {to: Two, when: 'guards.a && size(held) == %d || guards.b'}\n", i)
	}
	w := newWorld(t, "test.yaml", []byte(spec("  phases:\n  - {name: One, poll: 1s, next: [{to: Two}], onDelete: {none: true}}\n  - name: Two\n    poll: 1s\n    onDelete: {none: true}\n    next:\n    - {to: One, when: 'guards.a'}\n"+exits.String())), testBindings)
	for range 60 {
		if _, err := w.pass(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.stored.History); n != v1alpha1.HistoryLimit {
		t.Errorf("history holds %d transitions", n)
	}
	last, before := w.stored.History[19], w.stored.History[18]
	if last.From != before.To || last.At.Before(&before.At) {
		t.Errorf("the newest is not the last: %+v after %+v", last, before)
	}
	long := strings.Repeat("ä", 5000)
	w.guards["a"], w.guards["b"] = guardAnswer{seen: long}, guardAnswer{seen: long}
	w.settle() // the world checks the bounds
	if n := len(w.stored.Blocked); w.stored.Phase == "Two" && n != maxBlocked {
		t.Errorf("blocked holds %d", n)
	}
}

func TestErrorsOfAnySizeFitTheStatus(t *testing.T) {
	long := strings.Repeat("no route to host ", 500)
	for name, o := range map[string]Outcome{
		"retried":  {Err: errors.New(long), Class: ClassUnavailable},
		"terminal": {Err: Terminal(long, "%s", long)},
		"waiting":  {Err: Wait("%s", long)},
	} {
		w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    steps: [{action: Work}]\n    onError: [{is: Terminal, to: Done}]\n"+toDone)), testBindings)
		w.actions["Work"] = []answer{{Outcome: o}}
		w.settle() // the world checks the bounds
		if len(w.shown.Message) > 1024 {
			t.Errorf("%s: a message of %d bytes", name, len(w.shown.Message))
		}
	}
}

func TestDelay(t *testing.T) {
	policy := retry{base: time.Second, max: 10 * time.Second, factor: 2, jitter: 0.5}
	for name, c := range map[string]struct {
		why     string
		attempt int32
		random  func() float64
		want    time.Duration
	}{
		"first":    {"the first retry comes after base", 1, nil, time.Second},
		"third":    {"each is factor times the one before", 3, nil, 4 * time.Second},
		"at most":  {"up to max", 5, nil, 10 * time.Second},
		"any":      {"no number of attempts overflows", 1 << 30, nil, 10 * time.Second},
		"jittered": {"jitter goes both ways", 1, func() float64 { return 0 }, 500 * time.Millisecond},
		"later":    {"jitter goes both ways", 1, func() float64 { return 1 }, 1500 * time.Millisecond},
	} {
		if got := policy.delay(c.attempt, c.random); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", name, c.why, got, c.want)
		}
	}
	if got := (retry{base: time.Second, max: time.Second, factor: 1, jitter: 1}).delay(1, func() float64 { return 0 }); got <= 0 {
		t.Errorf("a delay of %s would be a sleep until something changes", got)
	}
}

func TestRetryAfterIsHonored(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    steps: [{action: Work}]\n"+toDone)), testBindings)
	w.actions["Work"] = []answer{{Outcome: Outcome{Err: errors.New("slow down"), Class: ClassThrottled, RetryAfter: 42 * time.Second}}}
	var last Command
	for range 3 {
		last, _ = w.pass()
	}
	if want := (Command{Do: Sleep, After: 42 * time.Second}); cmp.Diff(want, last) != "" {
		t.Errorf("got %+v", last)
	}
}

func TestWaitHasAPaceOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		why, step string
		wait      *WaitError
		want      time.Duration
	}{
		"given":   {"the action knows best", "{action: Work, poll: 5s}", &WaitError{After: time.Second}, time.Second},
		"poll":    {"else the step's poll", "{action: Work, poll: 5s}", &WaitError{}, 5 * time.Second},
		"nothing": {"no poll anywhere must not mean never", "{action: Work}", &WaitError{}, defaultPoll},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "test.yaml", []byte(one("    steps: ["+c.step+"]\n"+toDone)), testBindings)
			w.actions["Work"] = []answer{{Outcome: Outcome{Err: c.wait}}}
			var last Command
			for range 3 {
				last, _ = w.pass()
			}
			if want := (Command{Do: Sleep, After: c.want}); cmp.Diff(want, last) != "" {
				t.Errorf("%s: got %+v", c.why, last)
			}
		})
	}
}

func TestRunLeavesTheStoredStatusAlone(t *testing.T) {
	w := shipped(t)
	reach["Migrating"](w)
	before, _ := json.Marshal(w.stored)
	run := w.m.Run(w.stored, w.view())
	for cmd := run.Next(); cmd.Do == Act; cmd = run.Next() {
		run.Done(Outcome{Outputs: sampleOutputs(w.bindings.Actions[cmd.Action])})
	}
	run.Done(Outcome{Err: errors.New("nobody asked")})
	if after, _ := json.Marshal(w.stored); string(after) != string(before) {
		t.Errorf("the stored status changed:\n%s\n%s", before, after)
	}
}

func TestOneMachineServesManyRuns(t *testing.T) {
	w := shipped(t)
	reach["WaitingForConflictResolution"](w)
	want := w.m.Run(w.stored, w.view()).Next()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				view := View{Self: w.self, Finalizer: true, Now: func() time.Time { return epoch }}
				run := w.m.Run(w.stored, view)
				if d := cmp.Diff(want, run.Next()); d != "" {
					t.Errorf("another answer (-alone +together):\n%s", d)
				}
				run.Done(Outcome{Outputs: map[string]any{"conflicts": 1, "examples": []string{"x"}}})
				run.Next()
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
		"progressing": {"something is going on", "poll: 5s, next: [{to: One, when: 'false'}], onDelete: {none: true}", ConditionReconciling},
		"waiting":     {"a person is asked, nothing is wrong", "kind: waiting, poll: 5s, next: [{to: One, when: 'false'}], onDelete: {none: true}", ConditionReconciling},
		"steady":      {"it runs", "kind: steady, poll: 5s, onDelete: {none: true}", ConditionReady},
		"success":     {"it is done", "terminal: success, onDelete: {none: true}", ConditionReady},
		"failure":     {"it needs a person", "terminal: failure, onDelete: {none: true}", ConditionStalled},
	} {
		w := newWorld(t, "test.yaml", []byte(spec("  phases: [{name: One, "+c.phase+"}]\n")), testBindings)
		w.settle()
		var raised string
		for _, x := range w.shown.Conditions {
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
		"too long":       {"n": strings.Repeat("x", maxResult)},
		"no plain value": {"n": func() {}},
	} {
		w := newWorld(t, "test.yaml", file, testBindings)
		w.finalizer = true
		run := w.m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: w.m.Revision()}, w.view())
		if cmd := run.Next(); cmd.Do != Act {
			t.Fatalf("%s: got %s, want Act", name, cmd.Do)
		}
		run.Done(Outcome{Outputs: outputs})
		if cmd := run.Next(); cmd.Do != Sleep || run.Status().Result != "" || !strings.Contains(run.Summary().Message, "Look: outputs") {
			t.Errorf("%s: %s, result %.20q, %q; want it named and not stored, because the API server would refuse the whole status",
				name, cmd.Do, run.Status().Result, run.Summary().Message)
		}
	}
}
