package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/bench/report"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// patience is many times what anything but a migration takes; a migration may take
	// patienceEach more for every object.
	patience     = 10 * time.Minute
	patienceEach = 100 * time.Millisecond
)

// BenchmarkMigration measures all contenders at all sizes, interleaved, but for what was measured before. It fails where a
// promise is broken.
func BenchmarkMigration(b *testing.B) {
	log.SetLogger(logr.Discard()) // else controller-runtime complains in the middle
	o := options(b)
	results, err := openResults(o.out, o.command())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		plan := o.plan()
		left := slices.DeleteFunc(slices.Clone(plan), func(p planned) bool { return !o.anew && results.Has(p.contender, p.objects, p.repeat) })
		if len(left) < len(plan) {
			fmt.Printf("%d of %d runs are in %s already, and stay: %s=1 measures them again\n", len(plan)-len(left), len(plan), filepath.Join(o.out, figuresFile), anewEnv)
		}
		for i, p := range left {
			fmt.Printf("run %d of %d: %s\n", i+1, len(left), p)
			runs, err := runsOf(b.Context(), p.contender, p.objects)
			if err == nil {
				err = results.add(p.objects, p.repeat, runs)
			}
			if err != nil {
				b.Fatalf("%s: %v", p, err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // hides it: setting the clusters up is most of it
	for _, c := range report.Contenders() {
		if v, has := results.Median(c, o.sizes[len(o.sizes)-1], report.Locked); has {
			b.ReportMetric(v, units[c])
		}
	}
	for _, broken := range report.Broken(&results.Figures) {
		b.Error(broken)
	}
}

// runsOf measures one run of a contender on a cluster of its own. Both raw ones share a cluster.
func runsOf(ctx context.Context, c report.Contender, n int) ([]report.Run, error) {
	switch c {
	case report.Raw:
		return rawCreates(ctx, n)
	case report.Whole:
		return wholeLife(ctx, n)
	}
	return measure(ctx, c, n)
}

// units are what the benchmark's own output calls locked times.
var units = map[report.Contender]string{
	report.Shipped: "shipped-locked-s", report.Unlimited: "unlimited-locked-s",
	report.UnderLock: "under-lock-locked-s", report.Ahead: "ahead-locked-s", report.Served: "served-locked-s", report.Two: "two-servers-locked-s",
	report.Quiet: "quiet-locked-s", report.Flooded: "flooded-locked-s",
}

// migrator brings a scene from v1 to v3.
type migrator interface {
	run(context.Context) error
	// end leaves nothing of it running.
	end()
}

// measure lets a contender migrate a scene of its own, beside a bystander.
func measure(ctx context.Context, c report.Contender, n int) ([]report.Run, error) {
	s, err := newScene(ctx, n, c)
	if err != nil {
		return nil, err
	}
	return ended(s, func() ([]report.Run, error) {
		ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(n)*patienceEach)
		defer cancel()
		how, err := prepare(ctx, s, c)
		if err != nil {
			return nil, err
		}
		defer how.end()
		figures, err := observe(ctx, s, c, n, how)
		if err != nil {
			return nil, err
		}
		return []report.Run{{Contender: c, Figures: figures}}, nil
	})
}

// newScene has n objects in v1, behind an aggregated API server unless the contender is for clusters without one.
func newScene(ctx context.Context, n int, c report.Contender) (*setup.Setup, error) {
	cluster := harness.Options{Own: true, Audit: c == report.Quiet || c == report.Flooded || c == report.Whole}
	if c == report.Quiet || c == report.Flooded {
		cluster.APIServerArgs = fewSeats()
	}
	s, err := setup.New(ctx, setup.Options{
		Cluster: cluster, NoStandIn: c == report.Served,
		Objects: append(append(fixture.Mix(n), fixture.BuiltinTiers()...), fixture.ClusterInformation()),
	})
	if err != nil {
		return nil, err
	}
	if err := settled(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ended closes the scene after do.
func ended[T any](s *setup.Setup, do func() (T, error)) (T, error) {
	v, err := do()
	return v, errors.Join(err, s.Close())
}

// prepare makes a contender ready to start.
func prepare(ctx context.Context, s *setup.Setup, c report.Contender) (migrator, error) {
	switch c {
	case report.Shipped, report.Unlimited:
		return newControl(s, c == report.Unlimited)
	case report.UnderLock:
		if err := refuseDoor(ctx, s); err != nil {
			return nil, err
		}
	case report.Two:
		if err := secondServer(ctx, s); err != nil {
			return nil, err
		}
	case report.Quiet:
		return asInstalled(ctx, s)
	case report.Flooded:
		if err := flood(ctx, s); err != nil {
			return nil, err
		}
		return asInstalled(ctx, s)
	}
	return newOurs(ctx, s)
}

// secondServer starts another API server, which ends with the cluster, and lists both where a real cluster does, until ctx
// ends.
func secondServer(ctx context.Context, s *setup.Setup) error {
	_, config, err := s.AddAPIServer(ctx, harness.APIServer+"-2", "")
	if err != nil {
		return err
	}
	end, err := s.Advertise(ctx, s.Config, config)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = end() }) // the cluster may be gone by then
	return nil
}

// observe measures a migration from outside, and what it tells itself.
func observe(ctx context.Context, s *setup.Setup, c report.Contender, n int, how migrator) (map[report.Metric]float64, error) {
	load, err := loadNow()
	if err != nil {
		return nil, err
	}
	before, err := servedBy(ctx, s.Config)
	if err != nil {
		return nil, err
	}
	home := filepath.Dir(s.Kubeconfig)
	began, cpu := time.Now(), cpuNow(home)
	var seen closure
	latencies := map[report.Metric]float64{}
	switch c {
	case report.Alone:
		err = how.run(ctx)
	case report.Beside:
		latencies, err = besideOthers(ctx, s, how.(*ours))
	default:
		seen, err = beside(ctx, s, how.run)
	}
	if err != nil {
		return nil, err
	}
	took, spent := time.Since(began), cpuNow(home).Since(cpu)
	fmt.Println(cpuOfEach(spent, n))
	figures := latencies
	if o, is := how.(*ours); is {
		took = o.took
		maps.Copy(figures, o.figures(n))
		fmt.Printf("%d objects: locked %.2f s, total %.2f s, of which the steps took%s\n", n, seen.locked().Seconds(), took.Seconds(), o.shown())
	}
	if c == report.Quiet {
		if err := waterfallOf(s.AuditLog, seen); err != nil {
			return nil, err
		}
	}
	after, err := servedBy(ctx, s.Config)
	if err != nil {
		return nil, err
	}
	each := func(sum float64) float64 { return sum / float64(n) }
	if seen.wrote > 0 {
		figures[report.Locked] = seen.locked().Seconds()
	}
	figures[report.Total] = took.Seconds()
	figures[report.Rate] = float64(n) / took.Seconds()
	figures[report.Writes] = each(after.writes - before.writes - float64(seen.wrote))
	figures[report.DryRuns], figures[report.Reads] = each(after.dryRuns-before.dryRuns), each(after.reads-before.reads)
	figures[report.Lists] = after.lists - before.lists
	figures[report.CPU] = each(spent.Sum().Seconds() * 1000)
	figures[report.Load] = load
	return figures, nil
}

// beside runs a migration while a bystander writes v1 and watches the locks.
func beside(ctx context.Context, s *setup.Setup, run func(context.Context) error) (seen closure, err error) {
	group, ctx := errgroup.WithContext(ctx)
	b, err := watchLock(ctx, s.Config, s.Registry)
	if err != nil {
		return seen, err
	}
	group.Go(func() error { return run(ctx) })
	group.Go(func() (err error) {
		seen, err = b.sees(ctx)
		return err
	})
	return seen, group.Wait()
}
