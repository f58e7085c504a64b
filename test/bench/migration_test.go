// Package bench measures what a migration costs: the locked window against raw
// creates of the same objects on the same API server, and the pure functions
// that every object passes; and what many MCP servers cost one manager. It knows
// how to measure, not what is right: that is for the tests of the rooms, test/e2e
// and test/mcpserver.
//
//	BENCH_OBJECTS=5000 go test -run '^$' -bench Migration -benchtime 3x -v ./test/bench
//	BENCH_SERVERS=500 go test -run '^$' -bench MCPServers -benchtime 1x -v ./test/bench
//
// Each loop is one round on a cluster of its own. CALICO_CRDS takes the real CRDs.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	n := number(b, objectsEnv, defaultObjects)
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
	// What disturbs a round makes it longer, never shorter: the shortest is the truest.
	migrating := least(rounds, func(r round) time.Duration { return r.migrating.wall })
	raw := least(rounds, func(r round) time.Duration { return r.raw.wall })
	b.ReportMetric(0, "ns/op") // hides it: setting the cluster up is most of it
	b.ReportMetric(migrating.Seconds(), "migrating-s")
	b.ReportMetric(raw.Seconds(), "raw-s")
	b.ReportMetric(float64(n)/raw.Seconds(), "raw-objects/s")
	b.ReportMetric(ratio(migrating, raw), "migrating/raw")
	b.ReportMetric(ratio(least(rounds, func(r round) time.Duration { return r.migrating.cpu }),
		least(rounds, func(r round) time.Duration { return r.raw.cpu })), "migrating/raw-cpu")
	b.ReportMetric(float64(slices.MaxFunc(rounds, func(a, b round) int { return cmp.Compare(a.peak, b.peak) }).peak)/(1<<20), "manager-peak-MiB")
	if n >= boundFrom && ratio(migrating, raw) > maxRatio {
		b.Fatalf("%d objects are %.2f s in Migrating, %.2f times the raw creates: at most %.1f is allowed; the rounds above tell which step takes it",
			n, migrating.Seconds(), ratio(migrating, raw), maxRatio)
	}
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

func least(rounds []round, of func(round) time.Duration) time.Duration {
	shortest := of(rounds[0])
	for _, r := range rounds[1:] {
		shortest = min(shortest, of(r))
	}
	return shortest
}

// number reads how many objects an environment variable asks for.
func number(b *testing.B, env string, otherwise int) int {
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("%s=%q: give a positive number", env, text)
	}
	return n
}

// phaseTime is how long something took, and what all who took part computed.
type phaseTime struct{ wall, cpu time.Duration }

func (p phaseTime) String() string {
	return fmt.Sprintf("%.2f s (CPU %.2f s)", p.wall.Seconds(), p.cpu.Seconds())
}

// round is one migration and one raw run on one cluster.
type round struct {
	objects        int
	migrating, raw phaseTime
	steps          []stepTime
	peak           int64 // resident memory of the manager, bytes
}

// String shows where the time goes.
func (r round) String() string {
	text := fmt.Sprintf("%d objects: Migrating %s, raw creates %s, %.0f objects/s; ratio %.2f (CPU %.2f); manager's peak %d MiB\n",
		r.objects, r.migrating, r.raw, float64(r.objects)/r.raw.wall.Seconds(),
		ratio(r.migrating.wall, r.raw.wall), ratio(r.migrating.cpu, r.raw.cpu), r.peak>>20)
	rest := r.migrating.wall
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
	metrics, err := harness.FreeAddress()
	if err != nil {
		return err
	}
	manager, err := s.StartManager("--metrics-bind-address", metrics, "--metrics-secure=false")
	if err != nil {
		return err
	}
	defer manager.Kill()
	if err := s.Migrate(ctx, scene.MigrationName); err != nil {
		return err
	}
	if r.migrating, err = lockedWindow(ctx, s); err != nil {
		return fmt.Errorf("%w\n%s", err, manager.Tail(20))
	}
	if r.steps, err = stepTimes(ctx, metrics); err != nil {
		return err
	}
	if r.peak, err = peakMemory(manager.PID()); err != nil {
		return err
	}
	return manager.Stop(patience)
}

// lockedWindow waits until the migration has converged. It looks seldom, because
// every look costs the API server something: how long it took is in the status.
func lockedWindow(ctx context.Context, s *scene.Scene) (window phaseTime, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for begun := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return window, fmt.Errorf("wait for the end of the migration: %w", ctx.Err())
		case <-ticker.C:
		}
		dm, err := s.Migration(ctx, scene.MigrationName)
		if err != nil {
			return window, err
		}
		switch dm.Status.Phase {
		case "", "Pending":
			begun = cpuTime(filepath.Dir(s.Kubeconfig))
		case "Migrating":
		case "Converged":
			window.cpu = cpuTime(filepath.Dir(s.Kubeconfig)) - begun
			for _, t := range dm.Status.Machine.History {
				if t.From == "Migrating" {
					window.wall += t.Took.Duration
				}
			}
			return window, nil
		default:
			return window, fmt.Errorf("the migration is in phase %s: %s", dm.Status.Phase, dm.Status.Message)
		}
	}
}
