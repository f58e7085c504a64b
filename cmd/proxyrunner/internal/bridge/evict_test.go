package bridge

import "testing"

func TestSessionsMakeRoom(t *testing.T) {
	b := New(Options{})
	open := func() *session {
		s, why := b.open()
		if why != nil {
			t.Fatalf("with %d sessions: %s", len(b.sessions), why.message)
		}
		return s
	}
	used, oldest, listening := open(), open(), open()
	b.mail.attend(listening.box, false, func() {})
	for range maxSessions - 3 {
		open()
	}
	b.find(used.id)
	open()
	for name, c := range map[string]struct {
		*session
		want bool
		why  string
	}{
		"used":      {used, true, "its client has just been there"},
		"oldest":    {oldest, false, "nobody has used it for longest"},
		"listening": {listening, true, "its client is there"},
	} {
		if _, ok := b.find(c.id); ok != c.want {
			t.Errorf("%s: kept %v, want %v: %s", name, ok, c.want, c.why)
		}
	}
	if len(b.sessions) != maxSessions {
		t.Errorf("%d sessions, want %d", len(b.sessions), maxSessions)
	}
}
