// Package migration_test puts faults into the way of a migration, in process: crashes,
// deletions and storms at every write, and checks after each run what must hold
// whatever happens.
//
//	FAULTS=all go test -timeout 45m -v ./test/faults/migration   # everything
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
	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/scene"
)

// objects make a migration of more than 200 writes.
const objects = 190

var (
	// everything is set by `make faults`.
	everything = os.Getenv("FAULTS") == "all"
	seed       = uint64(time.Now().UnixNano())
	// from is the first write of the sweeps.
	from = uint64(1)
	// shared is the cluster of the runs that end where they began; nil when there is none.
	shared *world
)

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
	if err := drop(); err != nil {
		fmt.Fprintln(os.Stderr, "end the shared cluster:", err)
		code = 1
	}
	return code
}

// random is the same for a test whatever runs besides.
func random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// common lends the shared cluster to a test, whose migrations must give back what they
// take. A test that fails takes the cluster with it.
func common(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		machine, err := quick(true)
		if err != nil {
			t.Fatal(err)
		}
		if shared, err = newWorld(scene.Options{Objects: fixture.Demo(1, objects)}, machine); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			if err := drop(); err != nil {
				t.Log(err)
			}
		}
	})
	return shared
}

func drop() error {
	if shared == nil {
		return nil
	}
	s := shared.Scene
	shared = nil
	return s.Close()
}

// allOnly leaves a test to `make faults`.
func allOnly(t *testing.T) {
	t.Helper()
	if !everything {
		t.Skip("only with FAULTS=all")
	}
}
