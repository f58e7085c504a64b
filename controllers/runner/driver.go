package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// The backoff of passes that ended in an error outside the machine: a status
	// that could not be written, for example.
	passRetryBase = 100 * time.Millisecond
	passRetryMax  = 30 * time.Second
	// goneBuffer is how many objects may go before the states are looked at; a state that is
	// not heard of then is found by its own pace.
	goneBuffer = 1024
)

// Driver drives all objects of a kind, and releases what objects have left that are gone
// although something was held: their finalizer was removed by hand, or their CRD deleted. It
// is the same for every kind: what differs is in the fields, which are all set before Pair.
type Driver[T Object[T]] struct {
	// Name is also the reporting controller of Events.
	Name   string
	Config *rest.Config
	// CRDName is that of the objects; empty where only their kind is known, by the machine, which is in force then.
	CRDName string
	// Scheme knows T under the kind that the machine is for, MachineState, and what the program reads and writes as
	// Go types.
	Scheme  func() (*runtime.Scheme, error)
	Machine *machinestore.Handle
	// Program binds the names of the machine to work that is done with the client, until the context is done.
	Program func(context.Context, client.Client) (*Program[T], error)
	// Namespace is the only one in which other objects are watched; empty: all.
	Namespace string
	Metrics   *Metrics
	// Manager is who this manager says it is to others that drive the same objects.
	Manager string
	Limits  Limits

	busy *Busy
	gone chan types.NamespacedName
	seen *seen
}

// Pair makes both controllers. The one runs while the CRD of the objects is established,
// whosever it is; the other one works from the states, while their CRD is there.
func (d Driver[T]) Pair() *Pair {
	d.busy, d.gone, d.seen = &Busy{Manager: d.Manager}, make(chan types.NamespacedName, goneBuffer), &seen{}
	objects := &crdgate.Gate{CRDName: d.CRDName, Config: d.Config, Run: d.Run, Version: func() string { return d.kind().Version }, Unserved: d.tellUnserved}
	if d.CRDName == "" {
		objects.Kind = d.kind().GroupKind()
	}
	return &Pair{Machine: d.Machine, Objects: objects, Leftovers: &crdgate.Gate{CRDName: v1alpha1.MachineStateCRD, Config: d.Config, Run: d.runLeftovers}}
}

func (d *Driver[T]) kind() schema.GroupVersionKind {
	kind := d.Machine.InForce().For()
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
}

// clients are what one run of a controller works with.
type clients[T Object[T]] struct {
	scheme   *runtime.Scheme
	live     client.Client
	metadata metadata.Interface
	dynamic  dynamic.Interface
	crds     clientset.Interface
	leases   coordinationv1client.LeasesGetter
	program  *Program[T]
}

func (d *Driver[T]) connect(ctx context.Context) (c clients[T], err error) {
	if c.scheme, err = d.Scheme(); err != nil {
		return c, err
	}
	if c.live, err = client.New(d.Config, client.Options{Scheme: c.scheme}); err != nil {
		return c, fmt.Errorf("make the client of %s: %w", d.Name, err)
	}
	if c.metadata, err = metadata.NewForConfig(d.Config); err != nil {
		return c, fmt.Errorf("make the metadata client of %s: %w", d.Name, err)
	}
	if c.dynamic, err = dynamic.NewForConfig(d.Config); err != nil {
		return c, fmt.Errorf("make the dynamic client of %s: %w", d.Name, err)
	}
	if c.crds, err = clientset.NewForConfig(d.Config); err != nil {
		return c, fmt.Errorf("make the client for the CRD of %s: %w", d.Name, err)
	}
	if c.leases, err = coordinationv1client.NewForConfig(d.Config); err != nil {
		return c, fmt.Errorf("make the client for leases of %s: %w", d.Name, err)
	}
	c.program, err = d.Program(ctx, c.live)
	return c, err
}

func (d *Driver[T]) reconciler(c clients[T], recorder events.EventRecorder) *Reconciler[T] {
	return &Reconciler[T]{
		Client: c.live, Machine: d.Machine.InForce, Program: c.program, Clock: clock.RealClock{}, Random: rand.Float64,
		Recorder: recorder, Metrics: d.Metrics, Busy: d.busy, turns: d.Limits.turns(),
		Lease: func(ctx context.Context, manager string) (*coordinationv1.Lease, error) {
			namespace, name, _ := strings.Cut(manager, "/")
			return c.leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		},
	}
}

func (d *Driver[T]) options(r reconcile.Reconciler) controller.Options {
	return controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: d.Limits.workers(),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](passRetryBase, passRetryMax),
	}
}

// Run drives the objects; it is for a crdgate.Gate: it returns when ctx is done and everything it used
// is freed, and may be called again then.
func (d *Driver[T]) Run(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	shapes := newShapes(d.kind().Version)
	references := newReferences(c.program.References)
	wake := &waker{machine: d.Machine, client: c.metadata, namespace: d.Namespace, also: c.program.Watches, selector: c.program.selectorOf,
		references: references, whole: c.dynamic, seen: d.seen, reshaped: shapes.changed,
		served: func(ctx context.Context, resource schema.GroupResource) {
			shapes.follow(ctx, c.crds, resource.String(), log.FromContext(ctx))
		}}
	defer wake.wait()
	defer d.seen.forget()
	var reconciler *Reconciler[T]
	defer func() {
		if reconciler != nil {
			reconciler.forgetAll(d.Machine.InForce())
		}
	}()
	build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
		recorder := own.GetEventRecorder(d.Name)
		wake.mapper = own.GetRESTMapper()
		wake.refused = func(ctx context.Context, machine *fsm.Machine, note string) {
			tellRefused(ctx, c.live, recorder, machine, note)
		}
		reconciler = d.reconciler(c, recorder)
		wake.turns = reconciler.turns
		reconciler.Shape, reconciler.references = shapes.get, references
		reconciler.Gone = func(key types.NamespacedName) { // it never blocks
			select {
			case d.gone <- key:
			default:
			}
		}
		return d.options(reconciler), []source.Source{wake}, nil
	}
	return crdgate.RunController(ctx, d.Config, d.Name, build, func(o *cluster.Options) { o.Scheme = c.scheme })
}

// runLeftovers runs the controller of the states, as Run does that of the objects.
func (d *Driver[T]) runLeftovers(ctx context.Context) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	states := &stateSource{client: c.metadata, machine: d.Machine.InForce().Name(), gone: d.gone, seen: d.seen}
	defer states.wait()
	build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
		r := d.reconciler(c, own.GetEventRecorder(d.Name))
		states.turns = r.turns
		r.Installed, r.Alive = d.installed(c.crds), states.alive
		return d.options(reconcile.Func(r.ReconcileState)), []source.Source{states}, nil
	}
	return crdgate.RunController(ctx, d.Config, d.Name+"-states", build, func(o *cluster.Options) { o.Scheme = c.scheme })
}

// Pair is the controller of a kind and that of what its objects have left. It is a
// manager.Runnable that runs on the leader only.
type Pair struct {
	// Machine drives the objects; nothing runs before it is in force.
	Machine            *machinestore.Handle
	Objects, Leftovers *crdgate.Gate
}

// NeedLeaderElection makes the manager start both on the leader only.
func (p *Pair) NeedLeaderElection() bool { return true }

// Start runs until ctx is done and both have ended.
func (p *Pair) Start(ctx context.Context) error {
	if !p.Machine.Await(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.Objects.Start(ctx) })
	group.Go(func() error { return p.Leftovers.Start(ctx) })
	return group.Wait()
}

// Ready says for a probe what the controller of the objects does, and is an error while one
// of the two should run and does not.
func (p *Pair) Ready(ctx context.Context) (string, error) {
	note, err := p.Objects.Ready(ctx)
	_, states := p.Leftovers.Ready(ctx)
	return note, errors.Join(err, states)
}
