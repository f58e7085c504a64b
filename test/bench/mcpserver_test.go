package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/proxies"
)

const (
	// serversEnv is how many MCPServers to run.
	serversEnv     = "BENCH_SERVERS"
	defaultServers = 500
	// podsPerNode is what a node of the test cluster takes, less what is not ours.
	podsPerNode = 100
	// proxyWorkers is how many proxies apply their backends at once.
	proxyWorkers = 16
)

// BenchmarkMCPServers measures one manager with many servers, from their creation
// until all are Ready, and then a full resync: another manager, which looks at every
// server once and must write nothing. The pods are simulated, and the backends are
// applied by this process instead of 500 proxies.
func BenchmarkMCPServers(b *testing.B) {
	n := number(b, serversEnv, defaultServers)
	log.SetLogger(logr.Discard())
	for b.Loop() {
		f, err := newFleet(b.Context(), n)
		if err == nil {
			err = errors.Join(f.measure(b.Context()), f.cluster.Stop())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Log(f)
		b.ReportMetric(0, "ns/op") // hides it: setting the cluster up is a part of it
		b.ReportMetric(f.ready.wall.Seconds(), "ready-s")
		b.ReportMetric(f.each(f.untilReady.writes()), "writes/server")
		b.ReportMetric(f.each(f.untilReady["GET"]), "reads/server")
		b.ReportMetric(f.each(f.managerCPU.Seconds())*1000, "manager-cpu-ms/server")
		b.ReportMetric(f.resync.writes(), "resync-writes")
		b.ReportMetric(f.resynced.wall.Seconds(), "resync-s")
		b.ReportMetric(float64(f.peak)/(1<<20), "manager-peak-MiB")
		if writes := f.resync.writes(); writes > 0 {
			b.Fatalf("a resync of %d servers at rest wrote %v times, want 0: %v; the end of the manager's log:\n%s", n, writes, f.resync, f.said)
		}
	}
}

// fleet is a cluster with many servers, and what it cost to run them.
type fleet struct {
	n       int
	cluster *harness.Cluster

	// ready is the time from the first create until all are Ready.
	ready, resynced phaseTime
	// untilReady and resync are the requests of the manager.
	untilReady, resync requests
	managerCPU         time.Duration
	peak               int64 // resident memory of the manager, bytes
	// waited is how long a pass waited for a worker of the manager, worked how long
	// it took then; on average.
	waited, worked time.Duration
	// asked is what the API server was asked most often, by anybody.
	asked string
	// said is the end of the log of the manager that was to write nothing.
	said string
}

func (f *fleet) each(sum float64) float64 { return sum / float64(f.n) }

func (f *fleet) String() string {
	return fmt.Sprintf("%d servers: all Ready after %s, of which the manager's CPU %.2f s; requests of the manager %v, %.1f writes and %.1f reads for each server\n"+
		"  full resync (another manager) %s, requests %v; manager's peak %d MiB\n"+
		"  a pass waited %s for a worker and took %s, on average\n  asked of the API server until then: %s",
		f.n, f.ready, f.managerCPU.Seconds(), f.untilReady, f.each(f.untilReady.writes()), f.each(f.untilReady["GET"]),
		f.resynced, f.resync, f.peak>>20,
		f.waited.Round(time.Millisecond), f.worked.Round(time.Millisecond), f.asked)
}

func newFleet(ctx context.Context, n int) (*fleet, error) {
	c, err := harness.Start(ctx, harness.Options{
		Own: true, Nodes: 2*n/podsPerNode + 1, Types: []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1alpha1.AddToScheme},
	})
	if err != nil {
		return nil, err
	}
	ours, err := crds.Driven(filepath.Join("..", ".."))
	if err == nil {
		err = crds.Install(ctx, c.Config, ours)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return &fleet{n: n, cluster: c}, nil
}

func (f *fleet) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	playing, stop := context.WithCancel(ctx)
	defer stop()
	group, playing := errgroup.WithContext(playing)
	group.Go(func() error { return proxies.Run(playing, f.cluster.Client, proxyWorkers) })
	group.Go(func() error {
		defer stop()
		if err := f.start(playing); err != nil {
			return err
		}
		return f.lookAgain(playing)
	})
	return group.Wait()
}

// start creates the servers and waits until all are Ready.
func (f *fleet) start(ctx context.Context) error {
	m, err := f.manager("manager")
	if err != nil {
		return err
	}
	defer m.Kill()
	// It is up once it has looked for what there is: nothing.
	if err := harness.Await(ctx, "the manager", patience, func(ctx context.Context) error {
		_, err := harness.Scrape(ctx, http.DefaultClient, "http://"+m.metrics)
		return err
	}); err != nil {
		return err
	}
	began, cpu := time.Now(), cpuNow(filepath.Dir(f.cluster.Kubeconfig))
	if err := f.create(ctx); err != nil {
		return err
	}
	if err := allReady(ctx, f.cluster.Client, f.n); err != nil {
		return fmt.Errorf("%w\n%s", err, m.Tail(20))
	}
	f.ready = phaseTime{wall: time.Since(began), cpu: cpuNow(filepath.Dir(f.cluster.Kubeconfig)).Since(cpu).Sum()}
	shown, err := m.settled(ctx, f.n)
	if err != nil {
		return err
	}
	f.untilReady, f.managerCPU = requestsOf(shown), time.Duration(shown.Sum("process_cpu_seconds_total")*float64(time.Second))
	f.waited = shown.Mean("workqueue_queue_duration_seconds", "name", controllerOfServers)
	f.worked = shown.Mean("workqueue_work_duration_seconds", "name", controllerOfServers)
	if f.peak, err = memoryOf(m.PID(), "VmHWM"); err != nil {
		return err
	}
	if f.asked, err = busiest(ctx, f.cluster.Config, 20); err != nil {
		return err
	}
	return m.Stop(patience)
}

// lookAgain starts another manager, which looks at every server once.
func (f *fleet) lookAgain(ctx context.Context) error {
	began, cpu := time.Now(), cpuNow(filepath.Dir(f.cluster.Kubeconfig))
	m, err := f.manager("next-manager")
	if err != nil {
		return err
	}
	defer m.Kill()
	shown, err := m.settled(ctx, f.n)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, m.Tail(20))
	}
	f.resynced = phaseTime{wall: time.Since(began), cpu: cpuNow(filepath.Dir(f.cluster.Kubeconfig)).Since(cpu).Sum()}
	f.resync, f.said = requestsOf(shown), m.Tail(40)
	return m.Stop(patience)
}

func (f *fleet) create(ctx context.Context) error {
	namespace := &corev1.Namespace{}
	namespace.Name = "fleet"
	if err := f.cluster.Client.Create(ctx, namespace); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(rawWorkers)
	for i := range f.n {
		group.Go(func() error {
			srv := &v1beta1.MCPServer{}
			srv.Namespace, srv.Name = namespace.Name, fmt.Sprintf("srv-%d", i)
			srv.Spec.Image, srv.Spec.Transport = "server:bench", v1beta1.TransportStreamableHTTP
			return f.cluster.Client.Create(ctx, srv)
		})
	}
	return group.Wait()
}

// allReady waits until n servers are. A watch costs the API server less than looking.
func allReady(ctx context.Context, c client.WithWatch, n int) error {
	there, err := c.Watch(ctx, &v1beta1.MCPServerList{})
	if err != nil {
		return fmt.Errorf("watch the servers: %w", err)
	}
	defer there.Stop()
	now, last := map[string]bool{}, ""
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d servers are Ready, the last news was %s: %w", len(now), n, last, context.Cause(ctx))
		case event, open := <-there.ResultChan():
			if !open {
				return fmt.Errorf("%d of %d servers are Ready, and the watch has ended", len(now), n)
			}
			srv, is := event.Object.(*v1beta1.MCPServer)
			if !is {
				continue
			}
			last = fmt.Sprintf("%s in phase %s: %s", srv.Name, srv.Status.Phase, srv.Status.Message)
			if srv.Status.Phase == "Ready" {
				now[srv.Name] = true
			} else {
				delete(now, srv.Name)
			}
			if len(now) == n {
				return nil
			}
		}
	}
}
