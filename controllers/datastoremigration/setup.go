package datastoremigration

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/crdgate"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// MachineName is the name of the machine file that this controller runs.
const MachineName = "datastore-migration"

// controllerName is also the reporting controller of Events.
const controllerName = "phasegate-datastoremigration"

// The backoff of passes that ended in an error outside the machine: a status
// that could not be written, for example.
const (
	passRetryBase = 100 * time.Millisecond
	passRetryMax  = 30 * time.Second
)

// NewScheme knows the types that the steps read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(apiregistrationv1.AddToScheme(scheme))
	return scheme
}

// Bindings are the names that a machine file for DatastoreMigration may use.
func Bindings() fsm.Bindings { return Program(nil, Settings{}).Bindings() }

// Gate makes the controller, to be added to a manager: it runs while the CRD of
// DatastoreMigration is established.
func Gate(cfg *rest.Config, machine *fsm.Machine, settings Settings, metrics *runner.Metrics) *crdgate.Gate {
	return &crdgate.Gate{CRDName: migrationv1.CRDName, Config: cfg, Run: func(ctx context.Context) error {
		live, err := client.New(cfg, client.Options{Scheme: NewScheme()})
		if err != nil {
			return fmt.Errorf("make the client of %s: %w", controllerName, err)
		}
		build := func(own cluster.Cluster) (controller.Options, []source.Source, error) {
			reconciler := &runner.Reconciler[*migration]{
				Client: live, Machine: machine, Program: Program(live, settings),
				Clock: clock.RealClock{}, Recorder: own.GetEventRecorder(controllerName), Metrics: metrics,
			}
			return controller.Options{
				Reconciler:              reconciler,
				MaxConcurrentReconciles: 2, // a long copy must not keep a second object from being answered
				RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](passRetryBase, passRetryMax),
			}, sources(own, machine), nil
		}
		return crdgate.RunController(ctx, cfg, controllerName, build, func(o *cluster.Options) {
			o.Scheme = NewScheme()
			o.Cache.ByObject = watchedOnlyIn(settings.CalicoNamespace, machine)
		})
	}}
}

// watchedOnlyIn keeps the informers of the declared watches to one namespace.
func watchedOnlyIn(namespace string, machine *fsm.Machine) map[client.Object]cache.ByObject {
	only := map[client.Object]cache.ByObject{}
	for _, obj := range watched(machine) {
		only[obj] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
	}
	return only
}

// watched lists the kinds that the machine file watches, as metadata: an event
// only wakes, the step reads for itself.
func watched(machine *fsm.Machine) []*metav1.PartialObjectMetadata {
	var kinds []*metav1.PartialObjectMetadata
	seen := map[schema.GroupVersionKind]bool{}
	for _, w := range machine.Watches() {
		gvk := schema.FromAPIVersionAndKind(w.APIVersion, w.Kind)
		if seen[gvk] {
			continue
		}
		seen[gvk] = true
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(gvk)
		kinds = append(kinds, obj)
	}
	return kinds
}

// sources wake a migration: its own changes, except of its status, which only
// the runner writes; and what the machine file declares under watch.
func sources(own cluster.Cluster, machine *fsm.Machine) []source.Source {
	all := []source.Source{source.Kind(own.GetCache(), &migration{}, &handler.TypedEnqueueRequestForObject[*migration]{},
		predicate.Or[*migration](predicate.TypedGenerationChangedPredicate[*migration]{},
			predicate.TypedAnnotationChangedPredicate[*migration]{}))}
	names := map[string]bool{}
	for _, w := range machine.Watches() {
		names[w.Name] = true
	}
	named := predicate.NewTypedPredicateFuncs(func(o *metav1.PartialObjectMetadata) bool { return names[o.Name] })
	for _, obj := range watched(machine) {
		all = append(all, source.Kind(own.GetCache(), obj, wakeAll(own.GetCache()), named))
	}
	return all
}

// wakeAll enqueues every migration; there are seldom two.
func wakeAll(reader client.Reader) handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *metav1.PartialObjectMetadata) []reconcile.Request {
		list := &migrationv1.DatastoreMigrationList{}
		if err := reader.List(ctx, list); err != nil {
			return nil // the poll of the phase looks anyway
		}
		requests := make([]reconcile.Request, len(list.Items))
		for i := range list.Items {
			requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
		}
		return requests
	})
}
