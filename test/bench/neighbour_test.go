package bench

import (
	"cmp"
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
	// idleEnv is for how many seconds it asks before the migration. In thirty, six late answers are the slowest
	// hundredth: one hiccup of the machine made it 5, 21 or 86 ms.
	idleEnv     = "BENCH_IDLE"
	defaultIdle = 120
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
				b.ReportMetric(l.CopyP99/l.IdleP99, strings.ReplaceAll(m.name, " ", "-")+"-p99-ratio")
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
	s, err := newScene(ctx, n, true)
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
		whole, err := asking(ctx, s.Config, o.run)
		if err != nil {
			return l, err
		}
		copying, err := o.copying(whole)
		fmt.Print(o.worst(whole))
		return report.Latency{
			Objects: n, Asked: len(copying), IdleP50: percentile(before, 50), IdleP99: percentile(before, 99),
			CopyP50: percentile(copying, 50), CopyP99: percentile(copying, 99), WholeP99: percentile(whole, 99),
		}, err
	})
}

// answer is when somebody asked, and how long it took.
type answer struct {
	at   time.Time
	took time.Duration
}

// asking asks while do runs, in time even while earlier answers are late. The answers are in the order of asking.
func asking(ctx context.Context, config *rest.Config, do func(context.Context) error) ([]answer, error) {
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var answers []answer
	ask := func() error {
		began := time.Now()
		if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("another client's GET: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		answers = append(answers, answer{began, time.Since(began)})
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
	slices.SortFunc(answers, func(a, b answer) int { return a.at.Compare(b.at) })
	return answers, err
}

// copying are the answers to what was asked while the migration copied ahead.
func (o *ours) copying(all []answer) ([]answer, error) {
	begins := slices.IndexFunc(o.turns, func(t turn) bool { return t.phase == "Pending" && t.step == "CopyResources" })
	ends := slices.IndexFunc(o.turns, func(t turn) bool { return t.phase == "Migrating" })
	if begins < 0 || ends < 0 {
		return nil, fmt.Errorf("nobody has seen the migration copy ahead, or end doing so: it went through %v", o.turns)
	}
	return slices.DeleteFunc(slices.Clone(all), func(a answer) bool {
		return a.at.Before(o.turns[begins].at) || !a.at.Before(o.turns[ends].at)
	}), nil
}

// worst tells of each turn of the migration how long others waited in it.
func (o *ours) worst(all []answer) string {
	var b strings.Builder
	for i, t := range o.turns {
		here := slices.DeleteFunc(slices.Clone(all), func(a answer) bool {
			return a.at.Before(t.at) || i+1 < len(o.turns) && !a.at.Before(o.turns[i+1].at)
		})
		fmt.Fprintf(&b, "  %-9s %-18s %4d GETs, p50 %6.2f ms, p99 %6.2f ms\n", t.phase, t.step, len(here), percentile(here, 50), percentile(here, 99))
	}
	return b.String()
}

// percentile is in milliseconds; 0 where there is nothing.
func percentile(answers []answer, p int) float64 {
	if len(answers) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(answers), func(a, b answer) int { return cmp.Compare(a.took, b.took) })
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].took.Seconds() * 1000
}
