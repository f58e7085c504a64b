package crdgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"
)

// rig is a loop in a synctest bubble: time is fake, so nothing here waits, and a
// goroutine that outlives the loop fails the test.
type rig struct {
	*loop
	changed chan struct{}
	// leave ends a copy in mode "slow" after it was told to stop.
	leave chan struct{}

	mu     sync.Mutex
	crd    types.UID
	alive  int
	record []string
}

// newRig's controller runs until it is told to stop. Then it waits for leave if
// slow. It returns by itself with the errors of failing, one per start.
func newRig(slow bool, failing ...error) *rig {
	r := &rig{changed: make(chan struct{}, 1), leave: make(chan struct{})}
	r.loop = &loop{
		run: func(ctx context.Context, t target) error {
			if t.missing.Absent {
				<-ctx.Done()
				return nil
			}
			r.enter(t)
			defer r.exit()
			if len(failing) > 0 {
				err := failing[0]
				failing = failing[1:]
				return err
			}
			<-ctx.Done()
			if slow {
				<-r.leave
			}
			return nil
		},
		want:     r.wanted,
		changed:  r.changed,
		seen:     &atomic.Pointer[sight]{},
		log:      logr.Discard(),
		running:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "running"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{Name: "restarts"}),
	}
	return r
}

// wanted is what is wanted for the CRD; of one whose UID ends with "!" the version is not served.
func (r *rig) wanted() target {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid, unserved := strings.CutSuffix(string(r.crd), "!")
	if r.crd == "" {
		return target{missing: Missing{CRD: "doors.example.org", Absent: true}}
	}
	t := target{uid: types.UID(uid)}
	if unserved {
		t.missing.Version = "v1"
	}
	return t
}

func (r *rig) enter(t target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive++
	what := "start"
	if t.missing != (Missing{}) {
		what = "complain of"
	}
	r.record = append(r.record, fmt.Sprintf("%s %s, %d alive", what, t.uid, r.alive))
}

func (r *rig) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive--
	r.record = append(r.record, fmt.Sprintf("end, %d alive", r.alive))
}

// set changes the CRD and returns when the loop has nothing left to do.
func (r *rig) set(uid types.UID) {
	r.setQuietly(uid)
	synctest.Wait()
}

// setQuietly changes the CRD before the loop can look.
func (r *rig) setQuietly(uid types.UID) {
	r.mu.Lock()
	r.crd = uid
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetGauge().GetValue() + out.GetCounter().GetValue()
}

func TestServe(t *testing.T) {
	broken := errors.New("broken")
	cases := map[string]struct {
		why     string
		slow    bool
		failing []error
		script  func(*rig)
		want    []string
		// running and restarts are the metrics at the end of script.
		running, restarts float64
	}{
		"a version that is not served": {
			why:     "the objects cannot be read; the controller comes when they can, and stops when they cannot any more",
			script:  func(r *rig) { r.set("a!"); r.set("a"); r.set("a!") },
			want:    []string{"complain of a, 1 alive", "end, 0 alive", "start a, 1 alive", "end, 0 alive", "complain of a, 1 alive", "end, 0 alive"},
			running: 0,
		},
		"waits for the CRD": {
			why:    "watching a CRD that is not there only makes errors",
			script: func(r *rig) { r.set("") },
		},
		"starts once": {
			why:     "further changes of the same CRD are none of its business",
			script:  func(r *rig) { r.set("a"); r.set("a"); r.set("a") },
			want:    []string{"start a, 1 alive", "end, 0 alive"},
			running: 1,
		},
		"stops with the CRD": {
			why:    "the informers must go with it",
			script: func(r *rig) { r.set("a"); r.set("") },
			want:   []string{"start a, 1 alive", "end, 0 alive"},
		},
		"starts again with the CRD": {
			why:     "an uninstall and install needs no restart of the manager",
			script:  func(r *rig) { r.set("a"); r.set(""); r.set("b") },
			want:    []string{"start a, 1 alive", "end, 0 alive", "start b, 1 alive", "end, 0 alive"},
			running: 1,
		},
		"replaced between two looks": {
			why:     "the absence in between was never seen",
			script:  func(r *rig) { r.set("a"); r.setQuietly(""); r.setQuietly("b"); synctest.Wait() },
			want:    []string{"start a, 1 alive", "end, 0 alive", "start b, 1 alive", "end, 0 alive"},
			running: 1,
		},
		"slow to stop while replaced twice": {
			why:  "the next one starts only when the old one has returned, and for the newest CRD",
			slow: true,
			script: func(r *rig) {
				r.set("a")
				r.set("")
				r.set("b")
				r.set("c")
				r.leave <- struct{}{}
				synctest.Wait()
			},
			want:    []string{"start a, 1 alive", "end, 0 alive", "start c, 1 alive", "end, 0 alive"},
			running: 1,
		},
		"back while it stops": {
			why:    "a copy that was told to stop cannot be kept",
			slow:   true,
			script: func(r *rig) { r.set("a"); r.set(""); r.set("a"); r.leave <- struct{}{}; synctest.Wait() },
			want:   []string{"start a, 1 alive", "end, 0 alive", "start a, 1 alive", "end, 0 alive"}, running: 1,
		},
		"slow to stop counts as running": {
			why:     "the gauge must not hide a copy that hangs",
			slow:    true,
			script:  func(r *rig) { r.set("a"); r.set("") },
			want:    []string{"start a, 1 alive", "end, 0 alive"},
			running: 1,
		},
		"returned by itself": {
			why:     "with an error or without, after a pause it is started again",
			failing: []error{broken, nil},
			script: func(r *rig) {
				r.set("a")
				time.Sleep(firstRest + 2*firstRest)
				synctest.Wait()
			},
			want: []string{
				"start a, 1 alive", "end, 0 alive", "start a, 1 alive", "end, 0 alive", "start a, 1 alive", "end, 0 alive",
			},
			running: 1, restarts: 2,
		},
		"rests before it is started again": {
			why:     "changes of the CRD do not cut the pause short",
			failing: []error{broken},
			script: func(r *rig) {
				r.set("a")
				time.Sleep(firstRest - 1)
				r.set("a")
			},
			want:     []string{"start a, 1 alive", "end, 0 alive"},
			restarts: 1,
		},
		"replaced while it rests": {
			why:     "the pause belongs to the CRD that it failed with",
			failing: []error{broken},
			script:  func(r *rig) { r.set("a"); r.set("b") },
			want:    []string{"start a, 1 alive", "end, 0 alive", "start b, 1 alive", "end, 0 alive"},
			running: 1, restarts: 1,
		},
		"gone while it rests": {
			why:      "the end of the pause finds nothing to do",
			failing:  []error{broken},
			script:   func(r *rig) { r.set("a"); r.set(""); time.Sleep(longRest); synctest.Wait() },
			want:     []string{"start a, 1 alive", "end, 0 alive"},
			restarts: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(tc.slow, tc.failing...)
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan struct{})
				go func() { defer close(served); r.serve(ctx) }()

				tc.script(r)
				if got := value(t, r.running); got != tc.running {
					t.Errorf("running = %v, want %v", got, tc.running)
				}
				if got := value(t, r.restarts); got != tc.restarts {
					t.Errorf("restarts = %v, want %v", got, tc.restarts)
				}

				cancel()
				close(r.leave)
				<-served
				if d := cmp.Diff(tc.want, r.record); d != "" {
					t.Errorf("%s: life (-want +got):\n%s", tc.why, d)
				}
				if got := value(t, r.running); got != 0 {
					t.Errorf("running = %v after the end", got)
				}
			})
		})
	}
}

// A controller that ran for long before it failed is not punished for failures
// of another day.
func TestPauseStartsAnewAfterALongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newRig(false).loop
		l.want = func() target { return target{uid: "a"} }
		var pauses []time.Duration
		ended := time.Now()
		l.run = func(context.Context, target) error {
			pauses = append(pauses, time.Since(ended))
			switch len(pauses) {
			case 4:
				time.Sleep(longRest - 1)
			case 5:
				time.Sleep(longRest)
			case 6:
				cancel()
			}
			ended = time.Now()
			return nil
		}
		l.serve(ctx)
		want := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, time.Second}
		if d := cmp.Diff(want, pauses); d != "" {
			t.Errorf("pauses before each run (-want +got):\n%s", d)
		}
	})
}
