package fsm

import (
	"testing"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestDelay(t *testing.T) {
	policy := program.Backoff{Base: time.Second, Max: 10 * time.Second, Factor: 2, Jitter: 0.5}
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
		if got := delayOf(policy, c.attempt, c.random); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", name, c.why, got, c.want)
		}
	}
	if got := delayOf(program.Backoff{Base: time.Second, Max: time.Second, Factor: 1, Jitter: 1}, 1, func() float64 { return 0 }); got <= 0 {
		t.Errorf("a delay of %s would be a sleep until something changes", got)
	}
}
