package crdgate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	firstRest = time.Second
	longRest  = time.Minute
)

// loop is the one goroutine that starts and stops the controller.
type loop struct {
	run     func(context.Context, target) error
	want    func() target
	changed <-chan struct{}
	// seen is where the loop shows to others what it last saw.
	seen *atomic.Pointer[sight]

	log      logr.Logger
	running  prometheus.Gauge
	restarts prometheus.Counter
}

// serve keeps the controller as it is wanted until ctx is done, and returns when
// the last copy has ended.
func (l *loop) serve(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		wanted := l.look(target{})
		if wanted == (target{}) {
			select {
			case <-ctx.Done():
			case <-l.changed:
			}
			continue
		}
		started := time.Now()
		told, err := l.live(ctx, wanted)
		if told {
			l.log.Info("the controller has stopped", "uid", wanted.uid, "result", err)
			failures = 0
			continue
		}
		if failures++; time.Since(started) >= longRest { // these failures are of another day
			failures = 1
		}
		pause := pauseAfter(failures)
		l.restarts.Inc()
		l.log.Error(err, "the controller returned by itself and is started again", "uid", wanted.uid, "in", pause.String())
		l.rest(ctx, wanted, pause)
	}
}

// look is what a copy should be running for; running is what one runs for.
func (l *loop) look(running target) target {
	want := l.want()
	l.seen.Store(&sight{wanted: want, running: running})
	return want
}

// live runs one copy until it has returned, and tells it to when another CRD is wanted, or none: it is not reused, since
// its informers belong to a CRD that is gone, perhaps with another schema. told is false where it returned by itself.
func (l *loop) live(ctx context.Context, t target) (told bool, err error) {
	if t.missing == (Missing{}) {
		l.log.Info("starting the controller", "uid", t.uid)
		l.running.Set(1)
		defer l.running.Set(0)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.run(running, t) }()
	stop := func(why string) {
		l.log.Info("stopping the controller", "uid", t.uid, "why", why)
		cancel()
		told = true
	}
	for over := ctx.Done(); ; {
		if l.look(t) != t && !told {
			stop("its CRD is gone, replaced, not established, or serves other versions")
		}
		select {
		case err := <-ended:
			return told || ctx.Err() != nil, err
		case <-l.changed:
		case <-over:
			stop("the process ends or is no longer the leader")
			over = nil
		}
	}
}

// rest returns after the pause, or when something else is wanted than what the copy failed with.
func (l *loop) rest(ctx context.Context, failed target, pause time.Duration) {
	over := time.After(pause)
	for {
		if want := l.look(target{}); want != (target{}) && want != failed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-l.changed:
		}
	}
}

// pauseAfter is the pause before a copy that returned by itself is started again, for
// the n-th time in a row (n starts at 1).
func pauseAfter(n int) time.Duration {
	d := firstRest
	for ; n > 1 && d < longRest; n-- {
		d *= 2
	}
	return min(d, longRest)
}
