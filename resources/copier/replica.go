package copier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

const (
	// barrierShown is how long a watch may take to show what we have written.
	barrierShown = 2 * time.Second
	// barrierAgain is after how long one is tried again whose object was behind.
	barrierAgain = 5 * time.Millisecond
)

// replica is what one side holds of a kind, as far as a watch has shown it.
type replica[T seen] struct {
	*api
	gvk schema.GroupVersionKind
	of  func(*Meta) T
	// mayBarrier says which objects may be barriers; nil: all.
	mayBarrier func(T) bool
	// shared is an equal key that is kept in any case: names are the most of what is kept. nil: there is none.
	shared func(client.ObjectKey) client.ObjectKey

	turn sync.Mutex // one barrier at a time

	mu       sync.Mutex
	objects  map[client.ObjectKey]T
	lent     bool          // an index has the objects: they are changed in a copy
	revision uint64        // of the newest event
	newest   uint64        // of the newest event that is not a barrier of ours
	broken   bool          // the watch has ended, or is too far behind
	barrier  *Meta         // the object that is written for barriers, as it was shown last; nil where there is none
	value    string        // of the barrier that is waited for
	shown    chan struct{} // closed when it has come; nil when none is waited for
}

// seen is what is kept of an object. It does not change: lists and indexes go on with it when the replica has another.
type seen interface {
	comparable
	revision() uint64
}

func newReplica[T seen](a *api, gvk schema.GroupVersionKind, of func(*Meta) T) *replica[T] {
	return &replica[T]{api: a, gvk: gvk, of: of, objects: map[client.ObjectKey]T{}}
}

// start lists the kind, and watches it from there on while it lives.
func (r *replica[T]) start(ctx, living context.Context, c metadata.Interface, gvr schema.GroupVersionResource) error {
	from := ""
	err := r.eachMetaPage(ctx, served(r.gvk, metadataPage), func(page *metav1.PartialObjectMetadataList) error {
		if from == "" {
			from = page.ResourceVersion // later pages may be newer; what is shown twice is taken once
		}
		return eachOf(page.Items, func(obj *Meta) error {
			r.see(watch.Added, obj)
			return nil
		})
	})
	var watcher *watchtools.RetryWatcher
	if err == nil {
		watcher, err = watchtools.NewRetryWatcherWithContext(living, from, watches{c, gvr})
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
	if known, there := r.objects[key]; there && version <= known.revision() || version == 0 {
		return // shown by the list already
	}
	if r.lent {
		r.objects, r.lent = maps.Clone(r.objects), false
	}
	if what == watch.Deleted {
		delete(r.objects, key)
	} else {
		if r.shared != nil {
			key = r.shared(key)
		}
		r.objects[key] = r.of(obj)
	}
	r.revision = max(r.revision, version)
	if r.choose(key, obj) && r.shown != nil && obj.Annotations[migrationv1.AnnotationBarrier] == r.value {
		close(r.shown)
		r.shown = nil
		return
	}
	r.newest = max(r.newest, version)
}

// choose keeps the first object that may be a barrier, as it is now, and says whether it is this one.
func (r *replica[T]) choose(key client.ObjectKey, obj *Meta) bool {
	if r.barrier != nil && client.ObjectKeyFromObject(r.barrier) != key {
		return false
	}
	r.barrier = nil
	if now, there := r.objects[key]; there && (r.mayBarrier == nil || r.mayBarrier(now)) {
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

// pass writes a barrier and waits until the watch shows it. Then the replica has all that was written before
// the call. Where it is false, nothing is known, and the kind is to be listed.
func (r *replica[T]) pass(ctx context.Context) bool {
	r.turn.Lock()
	defer r.turn.Unlock()
	ctx, cancel := context.WithTimeout(ctx, barrierShown)
	defer cancel()
	var shown <-chan struct{}
	err := wait.PollUntilContextCancel(ctx, barrierAgain, true, func(ctx context.Context) (written bool, err error) {
		shown, err = r.writeBarrier(ctx)
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
	return r.follows()
}

// writeBarrier writes an object in the version that was shown last. It returns what is closed when the watch has
// shown the write.
func (r *replica[T]) writeBarrier(ctx context.Context) (<-chan struct{}, error) {
	r.mu.Lock()
	if r.broken || r.barrier == nil {
		r.mu.Unlock()
		return nil, errors.New("there is no object to write")
	}
	r.value, r.shown = resources.BarrierOver(r.barrier), make(chan struct{})
	obj, value, shown := r.barrier.DeepCopy(), r.value, r.shown
	r.mu.Unlock()
	obj.SetGroupVersionKind(r.gvk)
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // of strings
		"resourceVersion": obj.ResourceVersion, "annotations": map[string]string{migrationv1.AnnotationBarrier: value}}})
	return shown, r.try(ctx, func() error { return r.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)) })
}

// listOf is what a watch of v1 has shown.
func listOf(r *replica[*v1Object]) (of v1List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of.revision, of.newest, of.objects = r.revision, r.newest, int64(len(r.objects))
	of.all = slices.Collect(maps.Values(r.objects))
	return of
}

// indexOf is what a watch of v3 has shown.
func indexOf(r *replica[*entry]) *index {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = true
	return newIndex(r.objects)
}
