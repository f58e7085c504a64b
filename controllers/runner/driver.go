package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// The backoff of passes that ended in an error outside the machine: a status
	// that could not be written, for example.
	passRetryBase = 100 * time.Millisecond
	passRetryMax  = 30 * time.Second
)

// Driver drives all objects of a kind, and releases what objects have left that are gone
// although something was held: their finalizer was removed by hand, or their CRD deleted. It
// is the same for every kind: what differs is in the fields, which are all set before Controller.
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
}

// Controller makes the controller of the kind.
func (d Driver[T]) Controller() *Controller {
	gate := &crdgate.Gate{CRDName: d.CRDName, Config: d.Config, Run: d.Run, Version: func() string { return d.kind().Version }}
	if d.CRDName == "" {
		gate.Kind = d.kind().GroupKind()
	}
	return &Controller{Machine: d.Machine, Gate: gate}
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
		Recorder: recorder, Metrics: d.Metrics, Manager: d.Manager, semaphore: d.Limits.semaphore(),
		Installed: d.installed(c.crds),
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

// Run drives the objects of the kind, and what objects have left that are gone: that alone where missing says why the
// objects cannot be watched. It is for a crdgate.Gate: it returns when ctx is done and everything it used is freed, and may
// be called again then. The error is that of clients or of a controller that could not be made, or whose sources did not
// sync in time.
func (d *Driver[T]) Run(ctx context.Context, missing *crdgate.Missing) error {
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	states := &stateSource{client: c.metadata, machine: d.Machine.InForce().Name()}
	defer states.wait()
	watch := d.waker(c, states)
	defer watch.wait()
	unserved := &unservedSource{client: c.metadata, missing: missing}
	defer unserved.wait()
	var reconciler *Reconciler[T]
	defer func() {
		if reconciler != nil {
			reconciler.forgetAll(d.Machine.InForce())
		}
	}()
	build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
		recorder := own.GetEventRecorder(d.Name)
		reconciler = d.reconciler(c, recorder)
		reconciler.States, states.mapper = states.of, own.GetRESTMapper()
		states.gone = func(state string) { d.Metrics.leftovers.remove(d.Machine.InForce().Name(), state) }
		if missing != nil {
			unserved.recorder = recorder
			return d.options(reconciler), []source.Source{states, unserved}, nil
		}
		watch.mapper, watch.semaphore = own.GetRESTMapper(), reconciler.semaphore
		watch.refused = func(ctx context.Context, machine *fsm.Machine, note string) {
			tellRefused(ctx, c.live, recorder, machine, note)
		}
		reconciler.Shape, reconciler.references = watch.shapes.get, watch.references
		return d.options(reconciler), []source.Source{states, watch}, nil
	}
	return crdgate.RunController(ctx, d.Config, d.Name, build, func(o *cluster.Options) { o.Scheme = c.scheme })
}

func (d *Driver[T]) waker(c clients[T], states *stateSource) *waker {
	shapes := newShapes(d.kind().Version)
	return &waker{machine: d.Machine, client: c.metadata, namespace: d.Namespace, also: c.program.Watches, selector: c.program.selectorOf,
		references: newReferences(c.program.References), whole: c.dynamic, states: states, shapes: shapes,
		served: func(ctx context.Context, resource schema.GroupResource) {
			shapes.follow(ctx, c.crds, resource.String(), log.FromContext(ctx))
		}}
}

// Controller drives the objects of a kind. It is a manager.Runnable that runs on the leader only.
type Controller struct {
	// Machine drives the objects; nothing runs before it is in force.
	Machine *machinestore.Handle
	Gate    *crdgate.Gate
}

// NeedLeaderElection makes the manager start it on the leader only.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start runs until ctx is done and the controller has ended. The error is that of crdgate.Gate.Start.
func (c *Controller) Start(ctx context.Context) error {
	if !c.Machine.Await(ctx) {
		return nil
	}
	return c.Gate.Start(ctx)
}

// Ready says for a probe what the controller does, and is an error while it should drive objects and does not.
func (c *Controller) Ready(ctx context.Context) (string, error) { return c.Gate.Ready(ctx) }

// installed tells whether there is a CRD of the kind.
func (d *Driver[T]) installed(crds clientset.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		options := metav1.ListOptions{}
		if d.CRDName != "" {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.CRDName).String()
		}
		list, err := crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, options)
		if err != nil {
			return false, fmt.Errorf("look for the CRD: %w", err)
		}
		kind := d.kind()
		return slices.ContainsFunc(list.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
			return crd.Spec.Group == kind.Group && crd.Spec.Names.Kind == kind.Kind
		}), nil
	}
}
