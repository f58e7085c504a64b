package harness

import (
	"testing"
	"time"
)

func TestNextPoll(t *testing.T) {
	tests := map[string]struct {
		waited, want time.Duration
		why          string
	}{
		"at first":   {want: pollEvery, why: "most things come soon"},
		"a while":    {waited: time.Second, want: 50 * time.Millisecond, why: "what comes is seen a twentieth later at most"},
		"for ever":   {waited: time.Minute, want: pollLater, why: "a phase that lasts a moment is still seen"},
		"the border": {waited: 500 * time.Millisecond, want: pollEvery, why: "both rules agree"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nextPoll(tc.waited); got != tc.want {
				t.Errorf("after %s: %s, want %s: %s", tc.waited, got, tc.want, tc.why)
			}
		})
	}
}
