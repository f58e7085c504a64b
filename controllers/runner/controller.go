package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
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

// Controller drives all objects of a kind. It is the same for every kind: what
// differs is in the fields, which are all set before Run and never change.
type Controller[T Object[T]] struct {
	// Name is also the reporting controller of Events.
	Name   string
	Config *rest.Config
	// Scheme knows T under the kind that the machine is for, and what the program
	// reads and writes as Go types.
	Scheme  *runtime.Scheme
	Machine *machinestore.Handle
	// Program binds the names of the machine to work that is done with the client.
	Program func(client.Client) *Program[T]
	// Namespace is the only one in which other objects are watched; empty: all.
	Namespace string
	Metrics   *Metrics
	// Busy keeps a pass over an object apart from one over what an object has left that is
	// gone; Leftovers has the same.
	Busy   *Busy
	Limits Limits
	// Gone is told of an object that does not exist any more; nil: nobody asks.
	Gone func(types.NamespacedName)
}

// Run is for a crdgate.Gate: it returns when ctx is done and everything it used
// is freed, and may be called again then.
func (c *Controller[T]) Run(ctx context.Context) error {
	live, err := client.New(c.Config, client.Options{Scheme: c.Scheme})
	if err != nil {
		return fmt.Errorf("make the client of %s: %w", c.Name, err)
	}
	onlyMetadata, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make the metadata client of %s: %w", c.Name, err)
	}
	crds, err := clientset.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make the client for the CRD of %s: %w", c.Name, err)
	}
	kind := c.Machine.InForce().For()
	shapes := newShapes(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind).Version)
	wake := &waker{machine: c.Machine, client: onlyMetadata, namespace: c.Namespace, reshaped: shapes.changed,
		served: func(ctx context.Context, resource schema.GroupResource) {
			shapes.follow(ctx, crds, resource.String(), log.FromContext(ctx))
		}}
	defer wake.wait()
	var reconciler *Reconciler[T]
	defer func() {
		if reconciler != nil {
			reconciler.forgetAll(c.Machine.InForce())
		}
	}()
	build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
		recorder := own.GetEventRecorder(c.Name)
		wake.mapper = own.GetRESTMapper()
		wake.refused = func(ctx context.Context, machine *fsm.Machine, note string) {
			tellRefused(ctx, live, recorder, machine, note)
		}
		program := c.Program(live)
		wake.also = program.Watches
		reconciler = &Reconciler[T]{
			Client: live, Machine: c.Machine.InForce, Program: program, Clock: clock.RealClock{},
			Random: rand.Float64, Recorder: recorder, Metrics: c.Metrics, Shape: shapes.get, Busy: c.Busy, Gone: c.Gone, missing: &missing{},
			turns: c.Limits.turns(),
		}
		return controller.Options{
			Reconciler:              reconciler,
			MaxConcurrentReconciles: c.Limits.workers(),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](passRetryBase, passRetryMax),
		}, []source.Source{wake}, nil
	}
	return crdgate.RunController(ctx, c.Config, c.Name, build, func(o *cluster.Options) { o.Scheme = c.Scheme })
}
