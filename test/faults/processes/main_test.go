// Package processes breaks processes: bin/manager, kube-apiserver and etcd are killed,
// stopped and started again while a migration runs, at random instants.
//
//	FAULTS=all go test ./test/faults/processes   # in full; else a part in seconds
//	FAULTS_SEED=7 …                              # again as it was with that seed
//
// What is compared are the objects before and after; of how the manager works inside
// it knows nothing.
package processes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// soon is within what an end has to come that nobody disturbs any more: machines are busy. The table of recoveries
	// has how long it took.
	soon = harness.Patience
	// objects is how many v1 objects a cluster has: all kinds, and each awkward sort.
	objects = 150
)

// everything is more than `make test-all` has time for.
var everything = os.Getenv("FAULTS") == "all"

// shared is the cluster of the experiments that leave no trace; nil: none yet.
var shared *world

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	code := m.Run()
	if err := report.Print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if err := closeShared(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func closeShared() error {
	if shared == nil {
		return nil
	}
	s := shared.Setup
	shared = nil
	return s.Close()
}

// pristine lends the shared cluster to a run, which must leave it as it was, or say that
// it is spent. A run that fails takes the cluster with it.
func pristine(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		shared = newWorld(t)
	}
	w := shared
	t.Cleanup(func() {
		if t.Failed() || w.spent {
			if err := closeShared(); err != nil {
				t.Log(err)
			}
		}
	})
	return w
}

// newWorld is a cluster of its own; apiServer are flags of its API server.
func newWorld(t *testing.T, apiServer ...string) *world {
	t.Helper()
	s, err := setup.New(context.Background(), setup.Options{Objects: fixture.Demo(3, objects), // it may outlive this test
		Cluster: harness.Options{Own: true, Audit: true, Fsync: true, APIServerArgs: apiServer}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Setup: s}
	if w.dynamic, err = dynamic.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	w.grant(t)
	w.addSentinel(t)
	w.before = w.look(t)
	return w
}

// experiment is what is done many times, each time at another instant.
type experiment struct {
	name string
	// all and some are how often it is run in full, and in `make test-all`, where 0 is not at all.
	all, some int
	// run answers how long it took to recover from the fault.
	run func(t *testing.T, random *rand.Rand) time.Duration
}

// repeat runs an experiment and reports it in a line. The first run that fails is the
// last: the cluster is not fit for another one.
func repeat(t *testing.T, e experiment) {
	t.Helper()
	runs := e.some
	if everything {
		runs = e.all
	}
	if runs == 0 {
		return
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FAULTS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FAULTS_SEED: %v", err)
		}
	}
	t.Logf("%s: FAULTS_SEED=%d", e.name, seed)
	for n := range runs {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		var took time.Duration
		chosen := false // by -run
		passed := t.Run(strconv.Itoa(n), func(t *testing.T) {
			chosen = true
			took = e.run(t, random)
		})
		if chosen {
			report.Of(e.name).Ran(passed, took)
		}
		if !passed {
			break
		}
	}
}

// pause lets some of a migration happen. There is no event to wait for: any moment is right.
func pause(d time.Duration) { <-time.After(d) }

// upTo is a random duration.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
