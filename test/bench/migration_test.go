// Package bench measures what a migration costs: the locked window against raw
// creates of the same objects on the same API server, and the pure functions
// that every object passes. It knows how to measure, not what is right: that is
// for the tests of the rooms and test/e2e.
//
//	BENCH_OBJECTS=5000 go test -run '^$' -bench Migration -benchtime 3x -v ./test/bench
//
// Each loop is one round on a cluster of its own. CALICO_CRDS takes the real CRDs.
package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/fixture"
	"github.com/phasegate/phasegate/test/harness"
	"github.com/phasegate/phasegate/test/scene"
)

const (
	// objectsEnv is how many objects to migrate.
	objectsEnv     = "BENCH_OBJECTS"
	defaultObjects = 5000
	// maxRatio is what the locked window may cost, in raw creates of as many
	// objects. It binds from boundFrom objects on: below, what does not grow with
	// the datastore (the quiet second of Drain) is all there is to see.
	maxRatio  = 1.5
	boundFrom = 5000
	// patience is many times what a migration of 5,000 objects takes.
	patience = 10 * time.Minute
)

// BenchmarkMigration measures a whole migration by the manager's own process, and
// then raw creates of the very objects that it made. The migration goes first: it
// meets an API server that has never served the v3 kinds, the raw creates one that
// is warm. etcd does not sync to disk: a slow disk slows the raw creates most and
// would flatter the ratio.
func BenchmarkMigration(b *testing.B) {
	n := objects(b)
	log.SetLogger(logr.Discard()) // else controller-runtime complains in the middle
	var rounds []round
	for b.Loop() {
		r, err := measure(b.Context(), n)
		if err != nil {
			b.Fatal(err)
		}
		b.Log(r)
		rounds = append(rounds, r)
	}
	migrating := median(rounds, func(r round) float64 { return r.migrating.Seconds() })
	raw := median(rounds, func(r round) float64 { return r.raw.Seconds() })
	b.ReportMetric(0, "ns/op") // hides it: setting the cluster up is most of it
	b.ReportMetric(migrating, "migrating-s")
	b.ReportMetric(raw, "raw-s")
	b.ReportMetric(float64(n)/raw, "raw-objects/s")
	b.ReportMetric(median(rounds, func(r round) float64 { return float64(r.peak) / (1 << 20) }), "manager-peak-MiB")
	ratio := migrating / raw
	b.ReportMetric(ratio, "migrating/raw")
	if n >= boundFrom && ratio > maxRatio {
		b.Fatalf("%d objects are %.2f s in Migrating, %.2f times the raw creates: at most %.1f is allowed; the rounds above tell which step takes it",
			n, migrating, ratio, maxRatio)
	}
}

func objects(b *testing.B) int {
	text := os.Getenv(objectsEnv)
	if text == "" {
		return defaultObjects
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s=%q: give a positive number of objects", objectsEnv, text)
	}
	return n
}

func median(rounds []round, of func(round) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 0 {
		return (values[mid-1] + values[mid]) / 2
	}
	return values[mid]
}

// round is one migration and one raw run on one cluster.
type round struct {
	objects        int
	migrating, raw time.Duration
	steps          []stepTime
	peak           int64 // resident memory of the manager, bytes
}

// String shows where the time goes.
func (r round) String() string {
	text := fmt.Sprintf("%d objects: Migrating %.2f s, raw creates %.2f s (%.0f objects/s), ratio %.2f, manager's peak %d MiB\n",
		r.objects, r.migrating.Seconds(), r.raw.Seconds(), float64(r.objects)/r.raw.Seconds(),
		r.migrating.Seconds()/r.raw.Seconds(), r.peak>>20)
	rest := r.migrating
	for _, s := range r.steps {
		text += fmt.Sprintf("  %-14s %6.0f ms in %d\n", s.action, s.took.Seconds()*1000, s.times)
		rest -= s.took
	}
	return text + fmt.Sprintf("  %-14s %6.0f ms (status writes, waits between looks)", "between steps", rest.Seconds()*1000)
}

func measure(ctx context.Context, n int) (r round, err error) {
	s, err := scene.New(ctx, scene.Options{
		Cluster: harness.Options{Own: true},
		Objects: append(append(fixture.Mix(n), fixture.BuiltinTiers()...), fixture.ClusterInformation()),
	})
	if err != nil {
		return r, err
	}
	defer func() {
		if closeErr := s.Close(); err == nil {
			err = closeErr
		}
	}()
	r.objects = n
	if err := migrate(ctx, s, &r); err != nil {
		return r, err
	}
	r.raw, err = rawCreates(ctx, s, n)
	return r, err
}

// migrate runs a migration until v3 is open, and ends the manager.
func migrate(ctx context.Context, s *scene.Scene, r *round) error {
	metrics, err := freeAddress()
	if err != nil {
		return err
	}
	manager, err := s.StartManager("--metrics-bind-address", metrics)
	if err != nil {
		return err
	}
	defer manager.Kill()
	if err := s.Migrate(ctx, scene.MigrationName); err != nil {
		return err
	}
	dm, err := s.AwaitPhase(ctx, scene.MigrationName, "Converged", patience)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, manager.Tail(20))
	}
	for _, t := range dm.Status.Machine.History {
		if t.From == "Migrating" {
			r.migrating += t.Took.Duration
		}
	}
	if r.steps, err = stepTimes(ctx, metrics); err != nil {
		return err
	}
	if r.peak, err = peakMemory(manager.PID()); err != nil {
		return err
	}
	return manager.Stop(patience)
}
