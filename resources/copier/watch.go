package copier

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Watcher watches large kinds on both sides, so that nobody has to list them. To find out whether a watch has shown
// everything, an object of the kind is written, which is called a barrier, and waited for: an API server shows the
// writes to a kind in their order.
type Watcher struct {
	*api
	me      owner
	editor  *Editor
	watches metadata.Interface // nil: everything is listed
	ending  <-chan struct{}
	kinds   *watchedKinds
}

// watchedKind is a kind that is watched on both sides.
type watchedKind struct {
	v1 *replica[*v1Object]
	v3 *replica[*entry]
}

// Watch watches these kinds from now on, until Unwatch of the EqualityCache. Before, all kinds are to be on record,
// for LiftBarriers. It may be called again. The error says which kinds are listed as if there were no watch.
func (w *Watcher) Watch(ctx context.Context, kinds []*resources.Kind) error {
	if w.watches == nil || len(kinds) == 0 {
		return nil
	}
	living := w.kinds.begin(ctx, w.ending)
	var failed gathered[error]
	var all sync.WaitGroup
	for _, kind := range kinds {
		all.Go(func() {
			watched := w.newWatched(kind)
			err := watched.v1.start(ctx, living, w.watches, kind.V1GVR())
			if err == nil {
				err = watched.v3.start(ctx, living, w.watches, kind.V3GVR())
			}
			if err != nil {
				failed.add(err)
				return
			}
			w.kinds.keep(kind, watched)
		})
	}
	all.Wait()
	return errors.Join(failed.all...)
}

func (w *Watcher) newWatched(kind *resources.Kind) *watchedKind {
	v1 := newReplica(w.api, kind.V1GVK(), v1ObjectOf)
	v3 := newReplica(w.api, kind.V3GVK(), func(obj *Meta) *entry { return entryOf(w.me, obj) })
	v3.mayBarrier = func(e *entry) bool { return e.ours && !e.terminating }
	v3.shared = func(key client.ObjectKey) client.ObjectKey {
		v1.mu.Lock()
		defer v1.mu.Unlock()
		if obj := v1.objects[key]; obj != nil {
			return obj.key
		}
		return key
	}
	return &watchedKind{v1: v1, v3: v3}
}

// LiftBarriers takes our notes off the v1 objects of these kinds, and makes no more: nothing is watched from then
// on. It may be called again.
func (w *Watcher) LiftBarriers(ctx context.Context, kinds []*resources.Kind) error {
	w.kinds.end()
	noted, err := w.editor.findV1(ctx, kinds, func(obj *Meta) bool { return resources.HasBarrier(obj) })
	if err != nil {
		return err
	}
	return w.editor.EditAll(ctx, noted, func(obj *Meta) error {
		resources.DropBarrier(obj)
		return nil
	})
}

// watchedKinds are kept in an EqualityCache: they outlive a Watcher.
type watchedKinds struct {
	mu   sync.Mutex
	by   map[string]*watchedKind
	stop context.CancelFunc
}

// begin ends all watches, and returns what lives until that is done again, or until ending is closed.
func (k *watchedKinds) begin(ctx context.Context, ending <-chan struct{}) context.Context {
	k.end()
	k.mu.Lock()
	defer k.mu.Unlock()
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	go func() {
		defer stop()
		select {
		case <-ending:
		case <-living.Done():
		}
	}()
	return living
}

// end may be called again.
func (k *watchedKinds) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.by)
	if k.stop != nil {
		k.stop()
	}
}

func (k *watchedKinds) keep(kind *resources.Kind, watched *watchedKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by[kind.Name()] = watched
}

// of is nil for a kind that has to be listed.
func (k *watchedKinds) of(kind *resources.Kind) *watchedKind {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.by[kind.Name()]
}
