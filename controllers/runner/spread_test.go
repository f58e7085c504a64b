package runner

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestWakeUpsAreSpread(t *testing.T) {
	every := func(gap time.Duration, n int) (at []time.Duration) {
		for i := range n {
			at = append(at, time.Duration(i)*gap)
		}
		return at
	}
	const second = time.Second
	cases := map[string]struct {
		why    string
		events []time.Duration
		want   []time.Duration
	}{
		"one":          {"it is looked at at once", []time.Duration{0}, []time.Duration{0}},
		"one deed":     {"the last of its events counts as much as the first", every(100*time.Millisecond, 5), every(100*time.Millisecond, 5)},
		"a busy watch": {"40 events a second for 5 seconds", every(25*time.Millisecond, 200), []time.Duration{0, 25 * time.Millisecond, 50 * time.Millisecond, 75 * time.Millisecond, 100 * time.Millisecond, second, 2 * second, 3 * second, 4 * second, 5 * second}},
		"now and then": {"nothing is put off", every(2*second, 20), every(2*second, 20)},
	}
	start := time.Unix(1_000_000, 0)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, woken := &spread{}, map[time.Duration]bool{}
			var got []time.Duration
			for _, at := range c.events {
				// A planned look may come sooner than planned, so each event asks for one after it.
				look := at + s.turn(types.NamespacedName{Name: "a"}, start.Add(at))
				if !woken[look] {
					woken[look] = true
					got = append(got, look)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s: woken at (-want +got):\n%s", c.why, d)
			}
		})
	}
}

// Objects come and go for years, and events about one that is gone come late.
func TestSpreadForgetsWhatWasNotWokenForAWhile(t *testing.T) {
	s, now := &spread{}, time.Unix(1_000_000, 0)
	for i := range 100_000 {
		s.turn(types.NamespacedName{Name: strconv.Itoa(i)}, now)
		now = now.Add(10 * time.Millisecond)
	}
	if len(s.last) > 2*sweepLeast {
		t.Errorf("%d objects are remembered, at most %d are wanted: a hundred were woken in the last second", len(s.last), 2*sweepLeast)
	}
	key := types.NamespacedName{Name: "99999"}
	for range wakeBurst {
		s.turn(key, now)
	}
	if s.turn(key, now) == 0 {
		t.Error("one that was woken a moment ago is not forgotten")
	}
}
