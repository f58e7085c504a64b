package bridge

import (
	"testing"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

// opened is a session, and its client if there is one.
func opened(t *testing.T, b *Bridge, from string, listens bool) *session {
	t.Helper()
	s, why := b.open(from)
	if why != nil {
		t.Fatalf("with %d sessions: %s", len(b.sessions), why.message)
	}
	if listens {
		b.mail.attend(s.box, false, func() {})
	}
	return s
}

// one is a session that a test looks for.
type one struct {
	*session
	want bool
	why  string
}

func areKept(t *testing.T, b *Bridge, sessions map[string]one) {
	t.Helper()
	for name, c := range sessions {
		if _, ok := b.find(c.id); ok != c.want {
			t.Errorf("%s: kept %v, want %v: %s", name, ok, c.want, c.why)
		}
	}
}

// A client that opens sessions without end ends its own, which nobody uses.
func TestSessionsMakeRoom(t *testing.T) {
	b := New(Options{State: limit.NewShares(1000 * sessionBytes)})
	other := opened(t, b, "another address", false)
	used, oldest, listening := opened(t, b, "greedy", false), opened(t, b, "greedy", false), opened(t, b, "greedy", true)
	for range 740 {
		opened(t, b, "greedy", false)
	}
	b.find(used.id)
	for range 260 {
		opened(t, b, "greedy", false)
	}
	areKept(t, b, map[string]one{
		"used":      {used, true, "its client has just been there"},
		"oldest":    {oldest, false, "nobody has used it for longest"},
		"listening": {listening, true, "its client is there"},
		"other":     {other, true, "its client has not opened too many"},
	})
	if got := len(b.sessions); got < 745 || got > 755 {
		t.Errorf("%d sessions, want three quarters of 1000", got)
	}
	b.endAll()
	if left := b.o.State.Left(); left != 1000*sessionBytes {
		t.Errorf("%d bytes are left when all sessions have ended, want %d", left, 1000*sessionBytes)
	}
}

func TestExpire(t *testing.T) {
	b := New(Options{SessionTTL: time.Minute})
	idle, listening, late := opened(t, b, "", false), opened(t, b, "", true), opened(t, b, "", false)
	late.used = late.used.Add(time.Hour)
	b.expire(idle.used.Add(2 * time.Minute))
	areKept(t, b, map[string]one{
		"idle":      {idle, false, "nobody has used it for longer than the TTL"},
		"listening": {listening, true, "its client is there"},
		"used":      {late, true, "its time has not come"},
	})
}
