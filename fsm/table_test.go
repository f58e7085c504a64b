package fsm

import (
	"errors"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	tab := &table{}
	if err := tab.add("A.next[0]", "A", "B"); err != nil {
		t.Fatal(err)
	}
	if err := tab.add("A.next[0]", "A", "C"); err == nil {
		t.Error("a second target of one event is accepted: which of the two would be taken?")
	}
	shut := errors.New("shut")
	for name, c := range map[string]struct {
		why, event, from string
		guard            func() error
		to               string
		illegal          bool
		cause            error
	}{
		"legal":         {"an edge that was declared, and the first target of two", "A.next[0]", "A", nil, "B", false, nil},
		"guard open":    {"the guard is asked at the moment of firing", "A.next[0]", "A", func() error { return nil }, "B", false, nil},
		"guard shut":    {"no caller can skip the guard, and the cause is kept", "A.next[0]", "A", func() error { return shut }, "", true, shut},
		"other source":  {"an event fires from its own phase only", "A.next[0]", "B", nil, "", true, nil},
		"unknown event": {"there is no such edge", "A.next[1]", "A", func() error { t.Error("asked the guard of no edge"); return nil }, "", true, nil},
	} {
		to, err := tab.fire(c.event, c.from, c.guard)
		if to != c.to || errors.Is(err, errIllegal) != c.illegal || c.cause != nil && !errors.Is(err, c.cause) {
			t.Errorf("%s: %s: got %q, %v", name, c.why, to, err)
		}
	}
}

func TestGuardThatClosesAtTheLastMoment(t *testing.T) {
	w := newWorld(t, "test.yaml", []byte(one("    poll: 5s\n    next: [{to: Done, when: 'now < timestamp(\"2026-01-02T03:04:06Z\")'}]\n")), testBindings)
	_, _ = w.pass()
	w.finalizer = true
	refused := 0
	for shutAt := range 20 {
		view, looks := w.view(), 0
		view.Now = func() time.Time {
			looks++
			if looks > shutAt {
				return epoch.Add(time.Hour)
			}
			return epoch
		}
		run := w.m.Run(w.stored, view)
		cmd := run.Next()
		if moved := run.Status().Phase != "One"; moved != (cmd.Do == Commit) {
			t.Errorf("the clock passes at look %d: %s, but the phase is %s", shutAt, cmd.Do, run.Status().Phase)
		}
		if run.stall != nil && run.stall.reason == "IllegalTransition" {
			refused++
			if cmd.Do != Sleep || cmd.After <= 0 {
				t.Errorf("a refused transition must be looked at again: %+v", cmd)
			}
		}
	}
	if refused == 0 {
		t.Error("no look found the guard open before and shut at the moment of firing")
	}
}
