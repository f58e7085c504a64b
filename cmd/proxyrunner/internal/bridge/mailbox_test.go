package bridge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/limit"
)

func TestSlowIsAMatterOfTime(t *testing.T) {
	for name, test := range map[string]struct {
		why      string
		pause    time.Duration // between two messages
		count    int
		reads    bool // the reader takes one in each pause
		budget   int64
		cut      bool
		messages int // that are in the mailbox at the end
	}{
		"much at once":         {"a reader needs a moment", 0, 5000, false, limit.Total, false, 5000},
		"a minute, and reads":  {"it is always about to read the next one", 20 * time.Second, 100, true, limit.Total, false, 0},
		"a minute, no reading": {"it reads nothing", 20 * time.Second, 3, false, limit.Total, true, 0},
		"no room":              {"the proxy has no memory left", 0, 6, false, 5000, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(Options{Answers: limit.NewBudget(test.budget)})
				box := newMailbox()
				r, _ := b.mail.attend(box, false, func() {})
				for range test.count {
					time.Sleep(test.pause) // on the clock of the bubble
					push(b, box, 1000, false)
					if test.reads {
						b.mail.take(box, r)
					}
				}
				if r.isCut != test.cut || len(box.items) != test.messages {
					t.Errorf("cut %v with %d messages, want %v with %d: %s", r.isCut, len(box.items), test.cut, test.messages, test.why)
				}
				b.mail.discard(box)
				if left := b.o.Answers.Left(); left != test.budget {
					t.Errorf("%d bytes are lost", test.budget-left)
				}
			})
		})
	}
}
