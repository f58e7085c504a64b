package copier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// Barrier names the v1 object of a kind that is written to find out whether a watch has shown everything. An
// API server shows what was written to a kind in the order of writing: who has seen the newest write has seen
// them all.
type Barrier struct {
	Kind      string `json:"kind"` // as v3 calls it
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// WithWatches lets a Copier Follow, by watches of this client, until ending is closed. With a nil client
// everything is listed.
func WithWatches(c metadata.Interface, ending <-chan struct{}) Option {
	return func(copier *Copier) { copier.watches, copier.ending = c, ending }
}

// MayFollow is false for a kind that is listed whole in any case.
func MayFollow(kind *resources.Kind) bool {
	return !kind.InOrder() && kind.Selector().String() == labels.Everything().String()
}

// Barriers chooses an object of each kind of which there are so many, or more. It changes nothing.
func (c *Copier) Barriers(ctx context.Context, many int64) ([]Barrier, error) {
	if c.watches == nil {
		return nil, nil
	}
	var mu sync.Mutex
	var barriers []Barrier
	err := eachKind(ctx, c.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		if !MayFollow(kind) {
			return nil
		}
		now, err := c.momentOf(ctx, kind)
		if err == nil && now.objects >= max(many, 1) {
			mu.Lock()
			defer mu.Unlock()
			barriers = append(barriers, Barrier{Kind: kind.Name(), Namespace: now.first.Namespace, Name: now.first.Name})
		}
		return err
	})
	return barriers, err
}

// Follow watches the kinds of these barriers on both sides, until Unfollow of the ledger. Under the lock a
// Copier need not list them then. Before, all barriers are to be on record, for LiftBarriers. It may be called
// again. The error says which kinds are listed as if there were no watch.
func (c *Copier) Follow(ctx context.Context, barriers []Barrier) error {
	if c.watches == nil || c.ledger == nil || len(barriers) == 0 {
		return nil
	}
	living := c.ledger.follow(ctx, c.ending)
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	for _, barrier := range barriers {
		kind, known := c.reg.Kind(barrier.Kind)
		if !known {
			continue
		}
		all.Go(func() {
			f, err := c.followKind(ctx, living, kind, barrier)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err)
				return
			}
			c.ledger.keepFollowed(kind, f)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// followKind lists both sides of a kind and goes on with watches.
func (c *Copier) followKind(ctx, living context.Context, kind *resources.Kind, barrier Barrier) (*followed, error) {
	f := &followed{at: client.ObjectKey{Namespace: barrier.Namespace, Name: barrier.Name}}
	var err error
	if f.v1, err = startReplica(ctx, living, c, kind.V1GVK(), kind.V1GVR(), v1ObjectOf); err != nil {
		return nil, err
	}
	f.v3, err = startReplica(ctx, living, c, kind.V3GVK(), kind.V3GVR(), func(obj *Meta) entry { return c.entryOf(obj) })
	return f, err
}

// LiftBarriers takes our notes off the objects of these barriers. It may be called again.
func (c *Copier) LiftBarriers(ctx context.Context, barriers []Barrier) error {
	for _, barrier := range barriers {
		kind, known := c.reg.Kind(barrier.Kind)
		if !known {
			continue
		}
		obj, err := c.readMeta(ctx, kind.V1GVK(), client.ObjectKey{Namespace: barrier.Namespace, Name: barrier.Name})
		if apierrors.Classify(err) == apierrors.NotFound {
			continue
		}
		if err == nil {
			err = c.Edit(ctx, obj, func(obj *Meta) error {
				delete(obj.Annotations, migrationv1.AnnotationBarrier)
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("take our note off %s %s: %w", kind.V1GVK().Kind, barrier.Name, err)
		}
	}
	return nil
}

// followed is a kind that is watched on both sides.
type followed struct {
	v1 *replica[v1Object]
	v3 *replica[entry]
	at client.ObjectKey // the barrier in v1
}

// follow ends what was followed, and returns what lives until that is done again, or until ending is closed.
func (l *Ledger) follow(ctx context.Context, ending <-chan struct{}) context.Context {
	l.Unfollow()
	l.mu.Lock()
	defer l.mu.Unlock()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	l.unfollow = end
	go func() {
		defer end()
		select {
		case <-ending:
		case <-living.Done():
		}
	}()
	return living
}

// Unfollow ends all watches. It may be called again.
func (l *Ledger) Unfollow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.followed)
	if l.unfollow != nil {
		l.unfollow()
	}
}

func (l *Ledger) keepFollowed(kind *resources.Kind, f *followed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followed[kind.Name()] = f
}

// followed is nil for a kind that has to be listed: where v1 is not locked all are.
func (c *Copier) followed(kind *resources.Kind) *followed {
	if !c.locked || c.ledger == nil {
		return nil
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	return c.ledger.followed[kind.Name()]
}

// v1Now is the metadata of all that v1 holds of a kind now.
func (c *Copier) v1Now(ctx context.Context, kind *resources.Kind) (v1List, error) {
	if f := c.followed(kind); f != nil && pass(ctx, c, kind.V1GVK(), f.v1, f.at) {
		return listOf(f.v1), nil
	}
	return c.listV1(ctx, kind)
}

func listOf(r *replica[v1Object]) (of v1List) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of.revision, of.newest, of.objects = r.revision, r.newest, int64(len(r.objects))
	of.all = make([]v1Object, 0, len(r.objects))
	for _, obj := range r.objects {
		of.all = append(of.all, obj.is)
	}
	return of
}

// v3Now is an index of the metadata of all that v3 holds of a kind now; nil where it has to be listed.
func (c *Copier) v3Now(ctx context.Context, kind *resources.Kind) *index {
	f := c.followed(kind)
	if f == nil {
		return nil
	}
	at, found := ourCopy(f.v3)
	if !found || !pass(ctx, c, kind.V3GVK(), f.v3, at) {
		return nil
	}
	f.v3.mu.Lock()
	defer f.v3.mu.Unlock()
	idx := &index{entries: make(map[client.ObjectKey]entry, len(f.v3.objects)), total: int64(len(f.v3.objects))}
	for key, obj := range f.v3.objects {
		idx.entries[key] = obj.is
	}
	return idx
}

// ourCopy is a copy of ours that may be written: the one that was written before, if it is still there.
func ourCopy(r *replica[entry]) (key client.ObjectKey, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, there := r.objects[r.at]; there && last.is.ours && !last.is.terminating {
		return r.at, true
	}
	for key, obj := range r.objects {
		if obj.is.ours && !obj.is.terminating {
			return key, true
		}
	}
	return key, false
}

// replica is what one side holds of a kind, as far as a watch has shown it.
type replica[T any] struct {
	of func(*Meta) T

	turn sync.Mutex // one barrier at a time

	mu       sync.Mutex
	objects  map[client.ObjectKey]replicated[T]
	revision uint64 // of the newest event
	newest   uint64 // of the newest event that is not a barrier of ours
	broken   bool   // the watch has ended, or is too far behind
	at       client.ObjectKey
	value    string        // of the barrier that is waited for
	shown    chan struct{} // closed when it has come; nil when none is waited for
}

type replicated[T any] struct {
	is      T
	version uint64
}

// startReplica lists a kind, and watches it from there on while it lives.
func startReplica[T any](ctx, living context.Context, c *Copier, gvk schema.GroupVersionKind, gvr schema.GroupVersionResource, of func(*Meta) T) (*replica[T], error) {
	r := &replica[T]{of: of, objects: map[client.ObjectKey]replicated[T]{}}
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
		return nil, fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
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
	return r, nil
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
	if version <= r.objects[key].version {
		return // shown by the list already
	}
	if what == watch.Deleted {
		delete(r.objects, key)
	} else {
		r.objects[key] = replicated[T]{is: r.of(obj), version: version}
	}
	r.revision = max(r.revision, version)
	if r.shown != nil && key == r.at && obj.Annotations[migrationv1.AnnotationBarrier] == r.value {
		close(r.shown)
		r.shown = nil
		return
	}
	r.newest = max(r.newest, version)
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

// expect makes ready for a barrier, which is a write of this very version of the object. ok is false where
// there is none to be had.
func (r *replica[T]) expect(key client.ObjectKey) (value string, shown <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	obj, there := r.objects[key]
	if r.broken || !there {
		return "", nil, false
	}
	r.at, r.value, r.shown = key, strconv.FormatUint(obj.version, 10), make(chan struct{})
	return r.value, r.shown, true
}

// pass writes a barrier and waits until the watch shows it. Then the replica has all that was written before
// the call. Where it is false, nothing is known: whoever asked lists the kind.
func pass[T any](ctx context.Context, c *Copier, gvk schema.GroupVersionKind, r *replica[T], key client.ObjectKey) bool {
	r.turn.Lock()
	defer r.turn.Unlock()
	value, shown, ok := r.expect(key)
	if !ok {
		return false
	}
	obj := &Meta{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	obj.SetGroupVersionKind(gvk)
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // of strings
		"resourceVersion": value, "annotations": map[string]string{migrationv1.AnnotationBarrier: value}}})
	if err := c.try(ctx, func() error { return c.c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)) }); err != nil {
		return false
	}
	select {
	case <-shown:
	case <-ctx.Done():
		return false
	case <-time.After(barrierShown):
		r.fail()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.broken
}
