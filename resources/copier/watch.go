package copier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// barrierShown is how long a watch may take to show what we have written.
const barrierShown = 2 * time.Second

// barrierAgain is after how long one is tried again whose object was behind.
const barrierAgain = 5 * time.Millisecond

// WithWatches lets a Copier Follow, by watches of this client, until ending is closed. With a nil client
// everything is listed.
func WithWatches(c metadata.Interface, ending <-chan struct{}) Option {
	return func(copier *Copier) { copier.watches, copier.ending = c, ending }
}

// MayWatch is false for a kind that is listed whole in any case.
func MayWatch(kind *resources.Kind) bool {
	return !kind.InOrder() && kind.Selector().String() == labels.Everything().String()
}

// LargeKinds are the kinds of which v1 has so many objects, or more, and that may be followed.
func (c *Copier) LargeKinds(ctx context.Context, many int64) ([]*resources.Kind, error) {
	if c.watches == nil {
		return nil, nil
	}
	kinds := c.reg.Kinds()
	objects, err := c.totals(ctx, kinds)
	var crowded []*resources.Kind
	for i, kind := range kinds {
		if MayWatch(kind) && objects[i] >= max(many, 1) {
			crowded = append(crowded, kind)
		}
	}
	return crowded, err
}

// Watch watches these kinds on both sides, until Unwatch of the EqualityCache. A Copier need not list them then: it writes an object of each instead, which is called a barrier. To find out whether a watch
// has shown everything, it waits for what it has written: an API server shows the writes to a kind in their
// order. Before, all kinds are to be on record, for LiftBarriers. It may be called again. The error says which
// kinds are listed as if there were no watch.
func (c *Copier) Watch(ctx context.Context, kinds []*resources.Kind) error {
	if c.watches == nil || c.cache == nil || len(kinds) == 0 {
		return nil
	}
	living := c.cache.watch(ctx, c.ending)
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	for _, kind := range kinds {
		all.Go(func() {
			f, err := c.watchKind(ctx, living, kind)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			c.cache.keepWatched(kind, f)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// watchKind lists both sides of a kind and goes on with watches.
func (c *Copier) watchKind(ctx, living context.Context, kind *resources.Kind) (*watchedKind, error) {
	f := c.newWatched()
	if err := f.v1.start(ctx, living, c, kind.V1GVK(), kind.V1GVR()); err != nil {
		return nil, err
	}
	return f, f.v3.start(ctx, living, c, kind.V3GVK(), kind.V3GVR())
}

// LiftBarriers takes our notes off the v1 objects of these kinds, and makes no more: nothing is followed from then
// on. It may be called again.
func (c *Copier) LiftBarriers(ctx context.Context, kinds []*resources.Kind) error {
	c.cache.Unwatch()
	noted, err := c.findV1(ctx, kinds, func(obj *Meta) bool { return resources.HasBarrier(obj) })
	if err != nil {
		return err
	}
	return c.EditAll(ctx, noted, func(obj *Meta) error {
		resources.DropBarrier(obj)
		return nil
	})
}

// watchedKind is a kind that is watched on both sides.
type watchedKind struct {
	v1 *replica[v1Object]
	v3 *replica[entry]
}

func (c *Copier) newWatched() *watchedKind {
	f := &watchedKind{v1: newReplica(v1ObjectOf, nil)}
	f.v3 = newReplica(func(obj *Meta) entry { return c.entryOf(obj) }, func(e entry) bool { return e.ours && !e.terminating })
	f.v3.shared = func(key client.ObjectKey) client.ObjectKey {
		f.v1.mu.Lock()
		defer f.v1.mu.Unlock()
		if obj := f.v1.objects[key]; obj != nil {
			return obj.is.key
		}
		return key
	}
	return f
}

// watch ends what was followed, and returns what lives until that is done again, or until ending is closed.
func (l *EqualityCache) watch(ctx context.Context, ending <-chan struct{}) context.Context {
	l.Unwatch()
	l.mu.Lock()
	defer l.mu.Unlock()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	l.unwatch = end
	go func() {
		defer end()
		select {
		case <-ending:
		case <-living.Done():
		}
	}()
	return living
}

// Unwatch ends all watches. It may be called again, and without an EqualityCache.
func (l *EqualityCache) Unwatch() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.watched)
	if l.unwatch != nil {
		l.unwatch()
	}
}

func (l *EqualityCache) keepWatched(kind *resources.Kind, f *watchedKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched[kind.Name()] = f
}

// watched is nil for a kind that has to be listed.
func (c *Copier) watched(kind *resources.Kind) *watchedKind {
	if c.cache == nil {
		return nil
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return c.cache.watched[kind.Name()]
}

// v1Now is the metadata of all that v1 holds of a kind now.
func (c *Copier) v1Now(ctx context.Context, kind *resources.Kind) (v1List, error) {
	if f := c.watched(kind); f != nil && f.v1.pass(ctx, c, kind.V1GVK()) {
		return listOf(f.v1), nil
	}
	return c.listV1(ctx, kind)
}

func listOf(r *replica[v1Object]) (of v1List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of.revision, of.newest, of.objects = r.revision, r.newest, int64(len(r.objects))
	of.all = make([]*v1Object, 0, len(r.objects))
	for _, obj := range r.objects {
		of.all = append(of.all, &obj.is)
	}
	return of
}

// v3Now is an index of the metadata of all that v3 holds of a kind now; nil where it has to be listed.
func (c *Copier) v3Now(ctx context.Context, kind *resources.Kind) *index {
	f := c.watched(kind)
	if f == nil || !f.v3.pass(ctx, c, kind.V3GVK()) {
		return nil
	}
	return indexOf(f.v3)
}

// replica is what one side holds of a kind, as far as a watch has shown it.
type replica[T any] struct {
	of  func(*Meta) T
	may func(T) bool // tells which objects may be barriers; nil: all
	// shared is an equal key that is kept in any case: names are the most of what is kept. nil: there is none.
	shared func(client.ObjectKey) client.ObjectKey

	turn sync.Mutex // one barrier at a time

	mu       sync.Mutex
	objects  map[client.ObjectKey]*replicated[T]
	revision uint64        // of the newest event
	newest   uint64        // of the newest event that is not a barrier of ours
	broken   bool          // the watch has ended, or is too far behind
	barrier  *Meta         // the object that is written for barriers, as it was shown last; nil where there is none
	value    string        // of the barrier that is waited for
	shown    chan struct{} // closed when it has come; nil when none is waited for
}

// replicated does not change: lists and indexes go on with it when the replica has another.
type replicated[T any] struct {
	is      T
	version uint64
}

func newReplica[T any](of func(*Meta) T, may func(T) bool) *replica[T] {
	return &replica[T]{of: of, may: may, objects: map[client.ObjectKey]*replicated[T]{}}
}

// start lists a kind, and watches it from there on while it lives.
func (r *replica[T]) start(ctx, living context.Context, c *Copier, gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(gvk))
	from := ""
	err := c.pagesServed(ctx, list, metadataPage, labels.Everything(), func() error {
		if from == "" {
			from = list.ResourceVersion // later pages may be newer; what is shown twice is taken once
		}
		return eachOf(list.Items, func(obj *Meta) error {
			r.see(watch.Added, obj)
			return nil
		})
	})
	var watcher *watchtools.RetryWatcher
	if err == nil {
		watcher, err = watchtools.NewRetryWatcherWithContext(living, from, watches{c.watches, gvr})
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			obj, ok := event.Object.(*Meta)
			if !ok {
				break // an error: the watch has lost its place
			}
			r.see(event.Type, obj)
		}
		watcher.Stop()
		r.fail()
	}()
	return nil
}

// watches starts watches of one resource.
type watches struct {
	client metadata.Interface
	gvr    schema.GroupVersionResource
}

func (w watches) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.client.Resource(w.gvr).Watch(ctx, options)
}

// see takes one event.
func (r *replica[T]) see(what watch.EventType, obj *Meta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, version := client.ObjectKeyFromObject(obj), parseVersion(obj.ResourceVersion)
	if version <= r.version(key) {
		return // shown by the list already
	}
	if what == watch.Deleted {
		delete(r.objects, key)
	} else {
		if r.shared != nil {
			key = r.shared(key)
		}
		r.objects[key] = &replicated[T]{is: r.of(obj), version: version}
	}
	r.revision = max(r.revision, version)
	if r.choose(key, obj) && r.shown != nil && obj.Annotations[migrationv1.AnnotationBarrier] == r.value {
		close(r.shown)
		r.shown = nil
		return
	}
	r.newest = max(r.newest, version)
}

// version is 0 for an object that is not there.
func (r *replica[T]) version(key client.ObjectKey) uint64 {
	if obj := r.objects[key]; obj != nil {
		return obj.version
	}
	return 0
}

// choose keeps the first object that may be a barrier, as it is now, and tells whether it is this one.
func (r *replica[T]) choose(key client.ObjectKey, obj *Meta) bool {
	if r.barrier != nil && client.ObjectKeyFromObject(r.barrier) != key {
		return false
	}
	r.barrier = nil
	if now, there := r.objects[key]; there && (r.may == nil || r.may(now.is)) {
		r.barrier = obj.DeepCopy() // a list uses its items again
	}
	return r.barrier != nil
}

// follows is false for a replica that knows nothing any more.
func (r *replica[T]) follows() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.broken
}

// fail ends all use of the replica.
func (r *replica[T]) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = true
	if r.shown != nil {
		close(r.shown)
		r.shown = nil
	}
}

// expect makes ready for a barrier, which is a write of this very version of an object. obj is nil where there
// is none to be had.
func (r *replica[T]) expect() (obj *Meta, value string, shown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken || r.barrier == nil {
		return nil, "", nil
	}
	r.value, r.shown = resources.BarrierOver(r.barrier), make(chan struct{})
	return r.barrier.DeepCopy(), r.value, r.shown
}

// pass writes a barrier and waits until the watch shows it. Then the replica has all that was written before
// the call. Where it is false, nothing is known: whoever asked lists the kind.
func (r *replica[T]) pass(ctx context.Context, c *Copier, gvk schema.GroupVersionKind) bool {
	r.turn.Lock()
	defer r.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, barrierShown)
	defer cancel()
	var shown <-chan struct{}
	err := wait.PollUntilContextCancel(ctx, barrierAgain, true, func(ctx context.Context) (written bool, err error) {
		shown, err = r.writeBarrier(ctx, c, gvk)
		if apierrors.Classify(err) == apierrors.Conflict {
			return false, nil // a copy of a moment ago, which the watch is about to show
		}
		return err == nil, err
	})
	if err != nil {
		return false
	}
	select {
	case <-shown:
	case <-ctx.Done():
		r.fail()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.broken
}

// writeBarrier returns what is closed when the watch has shown it.
func (r *replica[T]) writeBarrier(ctx context.Context, c *Copier, gvk schema.GroupVersionKind) (<-chan struct{}, error) {
	obj, value, shown := r.expect()
	if obj == nil {
		return nil, errors.New("there is no object to write")
	}
	obj.SetGroupVersionKind(gvk)
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // of strings
		"resourceVersion": obj.ResourceVersion, "annotations": map[string]string{migrationv1.AnnotationBarrier: value}}})
	return shown, c.try(ctx, func() error { return c.c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)) })
}
