package mcpserver_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/runnertest"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/report"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/proxies"
)

type server = v1beta1.MCPServer

const (
	// busy is what a pass asks for that wants to go on at once.
	busy = time.Millisecond
	// retryAfter is the pause after a pass that failed.
	retryAfter = 100 * time.Millisecond
)

// shared is the cluster of all tests here: each has a namespace of its own.
var shared = harness.Shared{Start: startCluster, Ended: func() error { return report.Print(os.Stdout) }}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // a crash is no news here
	// More at once than there are processors: it is mostly waiting for pods.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	shared.Main(m)
}

func startCluster() (*harness.Cluster, error) {
	ctx := context.Background() // it outlives the test that asks first
	c, err := harness.Start(ctx, harness.Options{
		Own: true, Nodes: 6, Types: []func(*runtime.Scheme) error{v1beta1.AddToScheme, v1alpha1.AddToScheme},
	})
	if err != nil {
		return nil, err
	}
	ours, err := crds.Driven(filepath.Join("..", "..", ".."))
	if err == nil {
		err = crds.Install(ctx, c.Config, ours)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// world is one MCPServer, and the life of the controller that drives it.
type world struct {
	*harness.Cluster
	t         *testing.T
	namespace string
	store     *machinestore.Store
	// changed has a token when a workload or a Service has changed.
	changed chan struct{}
	// clock is that of all processes.
	clock clock.WithTickerAndDelayedExecution
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldIn(t, shared.Cluster(t))
}

// worldIn is newWorld in a cluster of the test's own.
func worldIn(t *testing.T, cluster *harness.Cluster) *world {
	t.Helper()
	w := &world{Cluster: cluster, t: t, changed: make(chan struct{}, 1), clock: clock.RealClock{}}
	namespace := &corev1.Namespace{}
	namespace.GenerateName = "faults-"
	if err := w.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	w.namespace = namespace.Name
	var err error
	if w.store, err = shipped(); err != nil {
		t.Fatal(err)
	}
	w.watch(&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &corev1.ServiceList{})
	return w
}

// watch makes changes of these kinds known, until the end of the test.
func (w *world) watch(lists ...client.ObjectList) {
	w.t.Helper()
	for _, list := range lists {
		there, err := w.Client.Watch(w.t.Context(), list, client.InNamespace(w.namespace))
		if err != nil {
			w.t.Fatal(err)
		}
		go func() {
			for range there.ResultChan() {
				select {
				case w.changed <- struct{}{}:
				default:
				}
			}
		}()
	}
}

// shipped are the machines of a manager without files of its own.
var shipped = sync.OnceValues(func() (*machinestore.Store, error) {
	return machinestore.Load(machinestore.Options{Shipped: phases.Files, Bindings: catalog.Bindings, Log: logr.Discard()})
})

// process is what a new process of the manager has: nothing but the API server,
// behind faults.
func (w *world) process(faulty *faults.Transport) *runner.Reconciler[*server] {
	w.t.Helper()
	config := rest.CopyConfig(w.Config)
	config.Wrap(faulty.Wrap)
	c, err := client.New(config, client.Options{Scheme: mcpserver.NewScheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	return &runner.Reconciler[*server]{
		States: runnertest.States(w.Client, mcpserver.MachineName),
		Shape:  w.shape, Client: c, Machine: w.store.Of(mcpserver.MachineName).InForce,
		Program: mcpserver.Program(c, mcpserver.Settings{ProxyImage: "proxy:test"}),
		Clock:   w.clock, Recorder: &events.FakeRecorder{}, Metrics: runner.NewMetrics(prometheus.NewRegistry()),
	}
}

// drive lets a process work on the server until it is at rest where it should be,
// or until the process has crashed. A pass follows when something changed that the
// machine watches, or when the last one asked for it. Before, a proxy that runs does
// its part.
func (w *world) drive(faulty *faults.Transport, name string, where func(*server) error) {
	w.t.Helper()
	p := w.process(faulty)
	req := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}}
	late := time.After(harness.Patience)
	for {
		result, err := p.Reconcile(w.t.Context(), req)
		switch {
		case faulty.Crashed():
			return
		case err == nil && result.RequeueAfter > 0 && result.RequeueAfter <= busy:
			continue
		}
		again := result.RequeueAfter
		if err = errors.Join(err, w.playProxy(name)); err != nil {
			again = retryAfter
		} else if err = where(w.get(name)); err == nil {
			return
		}
		var next <-chan time.Time
		if again > 0 {
			next = time.After(again)
		}
		select {
		case <-w.changed:
		case <-next:
		case <-late:
			w.t.Fatalf("MCPServer %s: not within %s: %v", name, harness.Patience, err)
		}
	}
}

// survive drives the server with a fault, and on with the next process if the fault
// was a crash. It tells whether the fault came.
func (w *world) survive(faulty *faults.Transport, name string, where func(*server) error) bool {
	w.t.Helper()
	w.drive(faulty, name, where)
	if faulty.Crashed() {
		w.drive(faults.New(), name, where)
	}
	return len(faulty.Met()) > 0
}

func (w *world) playProxy(name string) error {
	proxy := &appsv1.Deployment{}
	err := w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, proxy)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return proxies.Start(w.t.Context(), w.Client, proxy)
}

// shape is what the CRD of the moment keeps.
func (w *world) shape() (*runner.Shape, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := w.Client.Get(context.Background(), client.ObjectKey{Name: v1beta1.CRDName}, crd); err != nil {
		return nil, err
	}
	return runner.ShapeOf(crd, v1beta1.GroupVersion.Version)
}

// get reads the server, with its state in place of status.machine. It is nil when the
// server is gone. Phase, message and conditions are those that people see.
func (w *world) get(name string) *server {
	w.t.Helper()
	srv := &server{}
	err := w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, srv)
	if apierrs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	srv.Status.Machine = v1alpha1.MachineStatus{}
	if state := w.state(srv.UID); state != nil {
		srv.Status.Machine = state.Status.MachineStatus
	}
	return srv
}

// state is nil when there is none.
func (w *world) state(uid types.UID) *v1alpha1.MachineState {
	w.t.Helper()
	state := &v1alpha1.MachineState{}
	err := w.Client.Get(w.t.Context(), client.ObjectKey{Name: v1alpha1.MachineStateName(mcpserver.MachineName, uid)}, state)
	if apierrs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func (w *world) create(name string) types.UID {
	w.t.Helper()
	srv := &server{}
	srv.Namespace, srv.Name = w.namespace, name
	srv.Spec.Image, srv.Spec.Transport = "server:test", v1beta1.TransportStreamableHTTP
	if err := w.Client.Create(w.t.Context(), srv); err != nil {
		w.t.Fatal(err)
	}
	return srv.UID
}

func ready(srv *server) error {
	if srv == nil {
		return harness.Permanent(errors.New("it is gone"))
	}
	if srv.Status.Phase != "Ready" || srv.Status.Machine.Phase != "Ready" {
		return fmt.Errorf("it is in phase %s: %s", srv.Status.Machine.Phase, srv.Status.Message)
	}
	return nil
}

func gone(srv *server) error {
	if srv == nil {
		return nil
	}
	return fmt.Errorf("it is in phase %s: %s", srv.Status.Machine.Phase, srv.Status.Message)
}

// quiet checks that another process, which looks at everything anew, writes nothing.
func (w *world) quiet(name string) {
	w.t.Helper()
	listening := faults.New(&faults.Rule{When: faults.Write, Times: faults.Always, Do: faults.Pass})
	w.drive(listening, name, ready)
	if written := listening.Met(); len(written) > 0 {
		w.t.Errorf("a resync of a server at rest writes %q, want nothing; where it was: %v", written, w.get(name).Status.Machine.History)
	}
}
