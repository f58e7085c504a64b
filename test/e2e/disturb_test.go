package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/phasegate/phasegate/test/support/harness"
)

// fromEnv is a number from the environment, for the long form of a test.
func fromEnv(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// disturbed is a run that is made again and again, to be disturbed at a random moment.
type disturbed struct {
	// object are the arguments that name it for kubectl; within is how long it may run before it is disturbed.
	object []string
	within time.Duration
	// begin makes the object. killed waits for the end of a run whose manager was killed, deleted looks at what a deletion
	// in the middle has left.
	begin, killed, deleted func(label string)
}

// disturb kills the manager in the middle of a run, and deletes the object in the middle of another, as often as it is told.
// It returns the manager that runs then.
func (w *world) disturb(t *testing.T, rounds int, manager *harness.Process, d disturbed, args ...string) *harness.Process {
	t.Helper()
	for round := range rounds {
		label := fmt.Sprintf("killed-%d", round)
		d.begin(label)
		time.Sleep(rand.N(d.within))
		manager.Kill()
		manager = w.manager(t, args...)
		d.killed(label)
		w.kubectl(t, append([]string{"delete", "--timeout=60s"}, d.object...)...)

		label = fmt.Sprintf("deleted-%d", round)
		d.begin(label)
		time.Sleep(rand.N(d.within))
		w.kubectl(t, append([]string{"delete", "--timeout=60s"}, d.object...)...)
		d.deleted(label)
		if t.Failed() {
			t.Fatalf("the cluster is not fit for another round")
		}
	}
	return manager
}
