package runnertest

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// Case is an action to be called, and the world that it is called in.
type Case[T runner.Object[T]] struct {
	// Client is of the API server that the action works on.
	Client client.WithWatch
	// Setup makes a world in which nothing was done yet, and answers the object that
	// the action is called for, as it was stored. It is called for each run; with
	// names that the server generates, runs do not disturb each other.
	Setup func(ctx context.Context, c client.Client) (T, error)
	// Action makes the action with a client that notes its writes and may crash.
	Action func(c client.Client) runner.Action[T]
	// With are the parameters for an object.
	With func(obj T) fsm.Params
	// Meanwhile plays everybody else whenever the action waits: the controller of a
	// Job, for example. Nil: the action must not wait.
	Meanwhile func(ctx context.Context, c client.Client, obj T) error
	// Progress are fields of the object, as dotted paths, that show how far the action
	// has come, and may tell another story after a crash: status.message, for example.
	Progress []string
	// Clock is the action's; nil stands still at the same time in every run, so that
	// times that are stored can be compared.
	Clock clock.WithTickerAndDelayedExecution
}

// Covered tells what Idempotent has tried.
type Covered struct {
	// Writes of the undisturbed run, as VERB KIND. Twice as many crashes were tried.
	Writes []string
}

// noon is where clocks stand still.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// Idempotent runs the action undisturbed, and then checks that
//
//   - calling it again changes no object that it had written;
//   - a crash right before and right after each write, and a call after it, lead
//     to the same objects and outputs as the undisturbed run.
//
// What differs is an error of the test. Objects are compared without what the
// server makes up: names, UIDs and addresses of what was created, resourceVersions,
// times of creation, managed fields. It answers what it has tried, and logs it.
func Idempotent[T runner.Object[T]](t testing.TB, c Case[T]) Covered {
	t.Helper()
	if c.Clock == nil {
		c.Clock = clocktesting.NewFakeClock(noon)
	}
	calm := c.start(t, crash{})
	calm.finish()
	want, writes := calm.state(), calm.recorder.writes()
	calm.again()

	for n := range writes {
		for _, lost := range []bool{false, true} {
			point := crash{at: n + 1, lost: lost}
			r := c.start(t, point)
			r.finish()
			r.compare(want, point, writes[n])
		}
	}
	t.Logf("%d writes, %d crashes: %v", len(writes), 2*len(writes), writes)
	return Covered{Writes: writes}
}
