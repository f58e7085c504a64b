package fsm

import (
	"errors"
	"testing"
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
