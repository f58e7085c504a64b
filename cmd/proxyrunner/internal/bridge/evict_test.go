package bridge

import (
	"testing"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

// A client that opens sessions without end ends its own, which nobody uses.
func TestSessionsMakeRoom(t *testing.T) {
	b := New(Options{State: limit.NewShares(1000 * sessionBytes)})
	open := func(from string) *session {
		s, why := b.open(from)
		if why != nil {
			t.Fatalf("with %d sessions: %s", len(b.sessions), why.message)
		}
		return s
	}
	other := open("another address")
	used, oldest, listening := open("greedy"), open("greedy"), open("greedy")
	b.mail.attend(listening.box, false, func() {})
	for range 740 {
		open("greedy")
	}
	b.find(used.id)
	for range 260 {
		open("greedy")
	}
	for name, c := range map[string]struct {
		*session
		want bool
		why  string
	}{
		"used":      {used, true, "its client has just been there"},
		"oldest":    {oldest, false, "nobody has used it for longest"},
		"listening": {listening, true, "its client is there"},
		"other":     {other, true, "its client has not opened too many"},
	} {
		if _, ok := b.find(c.id); ok != c.want {
			t.Errorf("%s: kept %v, want %v: %s", name, ok, c.want, c.why)
		}
	}
	if got := len(b.sessions); got < 745 || got > 755 {
		t.Errorf("%d sessions, want three quarters of 1000", got)
	}
	b.endAll()
	if left := b.o.State.Left(); left != 1000*sessionBytes {
		t.Errorf("%d bytes are left when all sessions have ended, want %d", left, 1000*sessionBytes)
	}
}
