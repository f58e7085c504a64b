// Package migration_test puts faults into the way of a migration, in process: crashes,
// deletions and storms at every write, and checks after each run what must hold
// whatever happens.
//
//	FAULTS=all go test -timeout 2h -v ./test/faults/migration    # everything
//	go test -v ./test/faults/migration                           # a sample; the seed is printed
//	FAULTS_SEED=17 go test -v ./test/faults/migration            # the same sample again
//	FAULTS=all FAULTS_FROM=246 go test -v -run TestAbort …       # a sweep from one write on
package migration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

var (
	// everything is set by `make faults`.
	everything = os.Getenv("FAULTS") == "all"
	seed       = uint64(time.Now().UnixNano())
	// from is the first write of the sweeps.
	from = uint64(1)
)

// shared are the clusters of the runs that end where they began.
var shared = harness.Pool[*world]{
	New: func(t testing.TB) *world {
		machine, err := quick(true)
		if err != nil {
			t.Fatal(err)
		}
		w, err := newWorld(setup.Options{Objects: fixture.Demo(1, 0)}, machine)
		if err != nil {
			t.Fatal(err)
		}
		return w
	},
	End: func(w *world) error { return w.Close() },
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // a crash is no news here
	klog.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	for name, number := range map[string]*uint64{"FAULTS_SEED": &seed, "FAULTS_FROM": &from} {
		if text := os.Getenv(name); text != "" {
			given, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
				return 1
			}
			*number = given
		}
	}
	fmt.Printf("repeat it with FAULTS_SEED=%d\n", seed)
	code := m.Run()
	if err := report.Print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "end the clusters:", err)
		code = 1
	}
	return code
}

// random is the same for a test whatever runs besides.
func random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// beside lets a test that takes many minutes go on beside others, each in a cluster of its own.
func beside(t *testing.T) {
	t.Helper()
	if everything {
		t.Parallel()
	}
}

// allOnly leaves a test to `make faults`.
func allOnly(t *testing.T) {
	t.Helper()
	if !everything {
		t.Skip("only with FAULTS=all")
	}
}
