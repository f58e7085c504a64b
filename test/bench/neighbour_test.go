package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/test/bench/report"
)

const (
	// askEvery is how often another client asks.
	askEvery = time.Second / 20
	// idleEnv is for how many seconds it asks before the migration.
	idleEnv     = "BENCH_IDLE"
	defaultIdle = 10
)

// BenchmarkNeighbour measures what another client of the API server notices of a copy.
func BenchmarkNeighbour(b *testing.B) {
	log.SetLogger(logr.Discard())
	o := options(b)
	results, err := openResults(o.out, o.command())
	if err != nil {
		b.Fatal(err)
	}
	idle := time.Duration(number(b, idleEnv, defaultIdle)) * time.Second
	for b.Loop() {
		for _, n := range o.sizes {
			for _, m := range manners {
				l, err := neighbour(b.Context(), n, idle, m.args)
				if err != nil {
					b.Fatalf("%s, %d objects: %v", m.name, n, err)
				}
				l.Contender = m.name
				if err := results.addLatency(l); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(l.BusyP99/l.IdleP99, strings.ReplaceAll(m.name, " ", "-")+"-p99-ratio")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// manners are how a manager may copy.
var manners = []struct {
	name string
	args []string
}{
	{name: "as fast as it goes"},
	{name: report.Polite, args: []string{"--polite"}},
}

func neighbour(ctx context.Context, n int, idle time.Duration, args []string) (report.Latency, error) {
	s, err := newScene(ctx, n)
	if err != nil {
		return report.Latency{}, err
	}
	return ended(s, func() (l report.Latency, err error) {
		ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(n)*patienceEach)
		defer cancel()
		o, err := newOurs(ctx, s, args...)
		if err != nil {
			return l, err
		}
		defer o.end()
		before, err := asking(ctx, s.Config, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(idle): // so long is what it is compared with
				return nil
			}
		})
		if err != nil {
			return l, err
		}
		during, err := asking(ctx, s.Config, o.run)
		return report.Latency{
			Objects: n, Asked: len(during), IdleP50: percentile(before, 50), IdleP99: percentile(before, 99),
			BusyP50: percentile(during, 50), BusyP99: percentile(during, 99),
		}, err
	})
}

// asking asks while do runs, and answers how long each answer took, in milliseconds.
// It asks in time even while earlier answers are late.
func asking(ctx context.Context, config *rest.Config, do func(context.Context) error) ([]float64, error) {
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var took []float64
	ask := func() error {
		began := time.Now()
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("another client's GET: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began).Seconds()*1000)
		return nil
	}
	group, working := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return do(working)
	})
	group.Go(func() error {
		ticker := time.NewTicker(askEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return nil
			case <-ticker.C:
				group.Go(ask)
			}
		}
	})
	err = group.Wait()
	slices.Sort(took)
	return took, err
}

// percentile of what is sorted; 0 where there is nothing.
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
