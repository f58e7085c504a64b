package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/test/bench/report"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// askEvery is the interval of each other client's requests: 20 a second.
	askEvery = time.Second / 20
	// idleEnv is how many seconds the other clients ask before the migration. Of 30 seconds, the slowest hundredth is
	// six answers: one hiccup of the machine made it 5, 21 or 86 ms.
	idleEnv = "BENCH_IDLE"
	// writtenObjects are what the writer writes in turn: writes of one object that overlap would conflict, and be as late as
	// they are often repeated.
	writtenObjects = 100
)

// idleSeconds are those of idleEnv; without it 120, or 5 in a short run.
func idleSeconds() (int, error) {
	switch text := os.Getenv(idleEnv); {
	case text != "":
		return strconv.Atoi(text)
	case os.Getenv(objectsEnv) != "":
		return 5, nil
	}
	return 120, nil
}

// besideOthers runs a migration next to other clients, and measures what they notice of it.
func besideOthers(ctx context.Context, s *setup.Setup, o *ours) (map[report.Metric]float64, error) {
	idle, err := idleSeconds()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", idleEnv, err)
	}
	before, err := asking(ctx, s.Config, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(idle) * time.Second):
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	whole, err := asking(ctx, s.Config, o.run)
	if err != nil {
		return nil, err
	}
	figures := map[report.Metric]float64{}
	for _, c := range report.Clients() {
		copying, err := o.copying(whole[c.Name])
		if err != nil {
			return nil, err
		}
		fmt.Print(o.worst(c.Name, whole[c.Name]))
		for _, p := range report.Percentiles() {
			figures[c.Idle(p)], figures[c.Copying(p)] = percentile(before[c.Name], p), percentile(copying, p)
		}
	}
	return figures, nil
}

// answer is when a request was sent, and how long its answer took.
type answer struct {
	at   time.Time
	took time.Duration
}

// others are the requests of other clients, by the names of report.Clients.
func others(client kubernetes.Interface) map[string]func(context.Context) error {
	var written atomic.Int64
	return map[string]func(context.Context) error{
		report.Reader: func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
			return err
		},
		report.Writer: func(ctx context.Context) error {
			n := written.Add(1)
			name := fmt.Sprintf("neighbour-%d", n%writtenObjects)
			apply := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"written":"%d"}}`, name, n)
			_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Patch(ctx, name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "neighbour"})
			return err
		},
	}
}

// asking lets each other client ask while do runs, in time even while earlier answers are late. The answers are by client,
// in the order of asking.
func asking(ctx context.Context, config *rest.Config, do func(context.Context) error) (map[string][]answer, error) {
	var mu sync.Mutex
	answers := map[string][]answer{}
	group, working := errgroup.WithContext(ctx)
	done := make(chan struct{})
	for _, c := range report.Clients() {
		client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
		if err != nil {
			return nil, err
		}
		request := others(client)[c.Name]
		ask := func() error {
			began := time.Now()
			if err := request(ctx); err != nil {
				return fmt.Errorf("another client's %s: %w", c.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[c.Name] = append(answers[c.Name], answer{began, time.Since(began)})
			return nil
		}
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
	}
	group.Go(func() error {
		defer close(done)
		return do(working)
	})
	err := group.Wait()
	for _, of := range answers {
		slices.SortFunc(of, func(a, b answer) int { return a.at.Compare(b.at) })
	}
	return answers, err
}

// copying are the answers to what was asked while the migration copied ahead.
func (o *ours) copying(all []answer) ([]answer, error) {
	begins := slices.IndexFunc(o.turns, func(t turn) bool { return t.phase == "Pending" && t.step == "CopyResources" })
	ends := slices.IndexFunc(o.turns, func(t turn) bool { return t.phase == "Migrating" })
	if begins < 0 || ends < 0 {
		return nil, fmt.Errorf("nobody has seen the migration copy ahead, or end doing so: it went through %v", o.turns)
	}
	return between(all, o.turns[begins].at, o.turns[ends].at), nil
}

func between(all []answer, from, to time.Time) []answer {
	return slices.DeleteFunc(slices.Clone(all), func(a answer) bool { return a.at.Before(from) || !a.at.Before(to) })
}

// worst tells of each turn of the migration how long others waited in it.
func (o *ours) worst(client string, all []answer) string {
	var b strings.Builder
	for i, t := range o.turns {
		end := time.Now()
		if i+1 < len(o.turns) {
			end = o.turns[i+1].at
		}
		here := between(all, t.at, end)
		fmt.Fprintf(&b, "  %-9s %-18s %4d %s, p50 %6.2f ms, p99 %6.2f ms\n", t.phase, t.step, len(here), client, percentile(here, 50), percentile(here, 99))
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
