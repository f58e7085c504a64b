package runner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/fsm"
)

// How soon a kind that the API server does not serve is looked for again: the
// machine's own, whose CRD is established, is served in a moment; for any other,
// the poll of a phase does what the watch would do.
const (
	ownAgain   = 200 * time.Millisecond
	otherAgain = 30 * time.Second
)

// waker enqueues the objects of a machine: when they change themselves, when
// something changes that the machine watches, and when the machine changes. It is
// the source of a controller, and follows a reload by itself: informers of what is
// not watched any more are freed, the controller and its running passes go on.
//
// Informers hold metadata only, since an event only wakes: the pass reads for
// itself.
type waker struct {
	machine *machinestore.Handle
	client  metadata.Interface
	mapper  meta.RESTMapper
	// namespace is the only one in which others' objects are watched; empty: all.
	namespace string
	// also are watched besides what the machine says.
	also []v1alpha1.Watch
	// selector is that of the labels of all objects that such a watch is about; nil, or empty: any.
	selector func(*fsm.Machine, v1alpha1.Watch) string
	// references are which objects name which others; whole reads those. Both are nil where specs name none.
	references *references
	whole      dynamic.Interface
	// states learns which objects there are; it may be nil.
	states *stateSource
	// refused tells about a file that is not used.
	refused func(ctx context.Context, machine *fsm.Machine, note string)
	// shapes are what the CRD keeps of a status: each view is looked at when that changes. served is called once the API
	// server serves the kind.
	shapes *shapes
	served func(ctx context.Context, resource schema.GroupResource)

	// semaphore wakes those that wait for their turn.
	semaphore *semaphore

	spread spread
	ended  sync.WaitGroup
}

// Start does not block. It is called once; wait returns after ctx is done.
func (w *waker) Start(ctx context.Context, q queue) error {
	w.semaphore.wakes(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) })
	w.ended.Go(func() { w.serve(ctx, q) })
	return nil
}

func (w *waker) wait() { w.ended.Wait() }

// watched is an informer, or the wish for one; own is that of the machine's kind.
type watched struct {
	v1alpha1.Watch
	selector string
	own      bool
}

// informers are those that run.
type informers struct {
	*waker
	queue queue
	stop  map[watched]context.CancelFunc
	// told is why each that does not run does not, as the log has it: a kind may
	// never be installed.
	told map[watched]string
	// owners is the machine's own kind; nil until it is served. Nothing else is
	// watched before.
	owners *owners
}

// owners are the objects of the machine, and where they live.
type owners struct {
	kind       schema.GroupKind
	namespaced bool
	store      cache.Store
}

func (w *waker) serve(ctx context.Context, q queue) {
	all := &informers{waker: w, queue: q, stop: map[watched]context.CancelFunc{}, told: map[watched]string{}}
	last, note := w.machine.InForce(), ""
	for {
		changed, machine := w.machine.Changed(), w.machine.InForce()
		missing := all.follow(ctx, machine)
		if machine != last { // also where only a message is another one, which is shown then
			last = machine
			all.wakeAll()
		}
		if now := w.machine.Refused(); now != note {
			note = now
			if note != "" {
				w.refused(ctx, machine, note)
			}
		}
		var again <-chan time.Time
		if missing > 0 {
			again = time.After(missing)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case <-w.shapes.changed:
			all.wakeAll()
		}
	}
}

// follow starts and stops informers until they are those of the machine. While a
// kind is not served it answers how soon to try again.
func (i *informers) follow(ctx context.Context, machine *fsm.Machine) (again time.Duration) {
	logger := log.FromContext(ctx)
	own := watched{Watch: v1alpha1.Watch{APIVersion: machine.For().APIVersion, Kind: machine.For().Kind}, own: true}
	if i.owners == nil {
		if err := i.start(ctx, own); err != nil {
			logger.V(1).Info("the objects cannot be watched yet", "kind", own.Kind, "apiVersion", own.APIVersion, "error", err.Error())
			return ownAgain
		}
	}
	wanted := []watched{own}
	for _, w := range slices.Concat(machine.Watches(), i.also) {
		one := watched{Watch: w}
		if i.selector != nil {
			one.selector = i.selector(machine, w)
		}
		wanted = append(wanted, one)
	}
	maps.DeleteFunc(i.stop, func(w watched, stop context.CancelFunc) bool {
		gone := !slices.Contains(wanted, w)
		if gone {
			logger.Info("watched no more", "kind", w.Kind, "apiVersion", w.APIVersion, "name", w.Name)
			stop()
		}
		return gone
	})
	for _, w := range wanted {
		if i.stop[w] != nil {
			continue
		}
		if err := i.start(ctx, w); err != nil {
			if i.told[w] != err.Error() {
				logger.Info("cannot be watched yet, the poll does without", "kind", w.Kind, "apiVersion", w.APIVersion, "error", err.Error())
			}
			i.told[w], again = err.Error(), otherAgain
			continue
		}
		delete(i.told, w)
	}
	return again
}

func (i *informers) start(ctx context.Context, w watched) error {
	gvk := schema.FromAPIVersionAndKind(w.APIVersion, w.Kind)
	mapping, err := i.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	namespace := ""
	if namespaced && !w.own {
		namespace = i.namespace
	}
	informer, handler := i.informerOf(w, mapping.Resource, namespace)
	if w.own {
		i.owners = &owners{kind: gvk.GroupKind(), namespaced: namespaced, store: informer.GetStore()}
		if i.states != nil {
			i.states.follow(informer)
		}
	}
	if err := informer.SetTransform(i.transformOf(w)); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	i.stop[w] = stop
	i.ended.Go(func() { informer.RunWithContext(watching) })
	if w.own && i.served != nil {
		i.ended.Go(func() { i.served(watching, mapping.Resource.GroupResource()) })
	}
	return nil
}

// byReference is how to read what specs name of a kind; nil for any other watch.
func (i *informers) byReference(w v1alpha1.Watch) func(*unstructured.Unstructured) string {
	if w.Owned || w.Name != "" {
		return nil
	}
	return i.references.readOf(schema.FromAPIVersionAndKind(w.APIVersion, w.Kind).GroupKind())
}

// informerOf makes an informer of metadata; it has whole objects only where a part of their status counts.
func (i *informers) informerOf(w watched, resource schema.GroupVersionResource, namespace string) (cache.SharedIndexInformer, cache.ResourceEventHandler) {
	only := func(o *metav1.ListOptions) {
		o.LabelSelector = w.selector
		if w.Name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.Name).String()
		}
	}
	switch {
	case !w.own && i.byReference(w.Watch) != nil:
		return dynamicinformer.NewFilteredDynamicInformer(i.whole, resource, namespace, 0, cache.Indexers{}, only).Informer(), i.referredHandler(w)
	case w.own:
		return metadatainformer.NewFilteredMetadataInformer(i.client, resource, namespace, 0, cache.Indexers{}, only).Informer(), i.ownHandler()
	default:
		return metadatainformer.NewFilteredMetadataInformer(i.client, resource, namespace, 0, cache.Indexers{}, only).Informer(), i.othersHandler(w)
	}
}

func (i *informers) transformOf(w watched) cache.TransformFunc {
	read := i.byReference(w.Watch)
	switch {
	case w.own:
		return stripOwn
	case read != nil:
		return stripReferred(read)
	default:
		return stripOthers(i.owners.kind)
	}
}

func (i *informers) ownHandler() cache.ResourceEventHandler {
	atOnce := func(obj any) {
		if m := metadataOf(obj); m != nil {
			i.spread.drop(types.NamespacedName{Namespace: m.Namespace, Name: m.Name})
			enqueue(i.queue, m)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: atOnce,
		UpdateFunc: func(old, now any) {
			switch before, after := metadataOf(old), metadataOf(now); {
			case before.UID != after.UID, before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero():
				atOnce(now)
			case matters(before, after):
				i.wake([]types.NamespacedName{{Namespace: after.Namespace, Name: after.Name}})
			}
		},
		DeleteFunc: atOnce,
	}
}

func (i *informers) othersHandler(w watched) cache.ResourceEventHandler {
	wake := func(obj any) {
		if m := metadataOf(obj); m != nil {
			i.wake(i.owners.wokenBy(w.Watch, m))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: wake,
		UpdateFunc: func(old, now any) {
			before, after := metadataOf(old), metadataOf(now)
			if before.ResourceVersion == after.ResourceVersion {
				return // listed again
			}
			if w.Owned && !equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) {
				wake(old) // the owner is another one now
			}
			wake(now)
		},
		DeleteFunc: wake,
	}
}

// referredHandler wakes the objects that name another one, when what they read of it has changed.
func (i *informers) referredHandler(w watched) cache.ResourceEventHandler {
	kind := schema.FromAPIVersionAndKind(w.APIVersion, w.Kind).GroupKind()
	wake := func(obj any) {
		if m := metadataOf(obj); m != nil {
			i.wake(i.references.naming(reference{kind, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}}))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: wake,
		UpdateFunc: func(old, now any) {
			if matters(metadataOf(old), metadataOf(now)) {
				wake(now)
			}
		},
		DeleteFunc: wake,
	}
}

// wokenBy lists the owners that a change of an object is for: its controller for
// an owned one. A named one is for all, but for those of its own namespace only
// where both have one.
func (o *owners) wokenBy(w v1alpha1.Watch, m *metav1.PartialObjectMetadata) []types.NamespacedName {
	if w.Owned {
		ref := metav1.GetControllerOf(m)
		if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != o.kind {
			return nil
		}
		key := types.NamespacedName{Name: ref.Name}
		if o.namespaced {
			key.Namespace = m.Namespace
		}
		return []types.NamespacedName{key}
	}
	var all []types.NamespacedName
	for _, key := range o.keys() {
		if key.Namespace == "" || m.Namespace == "" || key.Namespace == m.Namespace {
			all = append(all, key)
		}
	}
	return all
}

func (o *owners) keys() []types.NamespacedName {
	names := o.store.ListKeys()
	keys := make([]types.NamespacedName, len(names))
	for i, name := range names {
		keys[i].Namespace, keys[i].Name, _ = cache.SplitMetaNamespaceKey(name)
	}
	return keys
}

// wake has objects looked at, each at its turn.
func (i *informers) wake(keys []types.NamespacedName) {
	now := time.Now()
	for _, key := range keys {
		i.queue.AddAfter(reconcile.Request{NamespacedName: key}, i.spread.turn(key, now))
	}
}

func (i *informers) wakeAll() {
	if i.owners != nil {
		i.wake(i.owners.keys())
	}
}
