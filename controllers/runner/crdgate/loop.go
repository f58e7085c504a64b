package crdgate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// loop is the one goroutine that starts and stops the controller.
type loop struct {
	run     func(context.Context) error
	want    func() types.UID
	changed <-chan struct{}
	// seen is where the loop shows to others what it last saw.
	seen *atomic.Pointer[sight]

	log      logr.Logger
	running  prometheus.Gauge
	restarts prometheus.Counter
}

// life is what the loop knows of the copy of the controller, or of the pause
// after it. The zero value is no copy; its nil channels never fire.
type life struct {
	// uid is the CRD that the copy runs for, empty when there is no copy.
	uid      types.UID
	stopping bool
	cancel   context.CancelFunc
	// ended receives what run returned.
	ended   <-chan error
	started time.Time

	// failures counts how often in a row run returned without being told to.
	failures int
	// resting is set until rested fires.
	resting types.UID
	rested  <-chan time.Time
}

// serve keeps the controller as it is wanted until ctx is done, and returns when
// the last copy has ended.
func (l *loop) serve(ctx context.Context) {
	var now life
	for ctx.Err() == nil {
		want := l.want()
		switch decide(situation{wanted: want, running: now.uid, stopping: now.stopping, resting: now.resting}) {
		case start:
			now = l.start(ctx, want, now.failures)
		case stop:
			now = l.stop(now, "its CRD is gone, replaced or not established")
		case wait:
		}
		l.seen.Store(&sight{wanted: want, running: now.uid})

		select {
		case <-ctx.Done():
		case <-l.changed:
		case <-now.rested:
			now.resting, now.rested = "", nil
		case err := <-now.ended:
			now = l.end(now, err)
		}
	}
	if now.uid != "" {
		now = l.stop(now, "the process ends or is no longer the leader")
		l.end(now, <-now.ended)
	}
}

func (l *loop) start(ctx context.Context, uid types.UID, failures int) life {
	l.log.Info("starting the controller", "uid", uid)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	l.running.Set(1)
	return life{uid: uid, cancel: cancel, ended: ended, started: time.Now(), failures: failures}
}

// stop tells the copy to end. It still exists, and bars the next one, until end.
func (l *loop) stop(now life, why string) life {
	l.log.Info("stopping the controller", "uid", now.uid, "why", why)
	now.cancel()
	now.stopping = true
	return now
}

// end is called once the copy has returned.
func (l *loop) end(now life, err error) life {
	now.cancel()
	l.running.Set(0)
	if now.stopping {
		l.log.Info("the controller has stopped", "uid", now.uid, "result", err)
		return life{}
	}
	failures := now.failures + 1
	if time.Since(now.started) >= longRest {
		failures = 1
	}
	pause := pauseAfter(failures)
	l.restarts.Inc()
	l.log.Error(err, "the controller returned by itself and is started again", "uid", now.uid, "in", pause.String())
	return life{failures: failures, resting: now.uid, rested: time.After(pause)}
}
