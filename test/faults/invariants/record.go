package invariants

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
)

// Record is what was seen of a migration while it ran, in the order in which it was
// stored.
type Record struct {
	// Statuses are all that the migration had: what was shown of it.
	Statuses []*migrationv1.DatastoreMigration
	// States are all that was stored of it.
	States []*v1alpha1.MachineState
	// Gone is true when it was deleted in the end.
	Gone bool
	// V1Ready are all values of v1's datastoreReady, with the one at the beginning.
	V1Ready []bool
}

// Recorder watches a migration and the lock of v1, until Stop. It outlives API servers
// that restart.
type Recorder struct {
	migration, states, lock *tape
}

// StartRecorder begins to record the migration of this name, which need not exist yet.
func StartRecorder(ctx context.Context, client dynamic.Interface, name string) (*Recorder, error) {
	lockKind := resources.Default().Lock().V1GVR()
	r := &Recorder{}
	for _, t := range []struct {
		into *(*tape)
		gvr  schema.GroupVersionResource
		only metav1.ListOptions
	}{
		{&r.migration, migrationv1.GroupVersion.WithResource("datastoremigrations"), byName(name)},
		{&r.states, v1alpha1.GroupVersion.WithResource("machinestates"), metav1.ListOptions{LabelSelector: v1alpha1.MachineLabel + "=datastore-migration"}},
		{&r.lock, lockKind, byName("default")},
	} {
		var err error
		if *t.into, err = newTape(ctx, client, t.gvr, t.only); err != nil {
			r.Stop()
			return nil, err
		}
	}
	return r, nil
}

func byName(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// MayGap lets the record of what was shown end before the migration does: the API server ends
// watches when a CRD is exchanged, and forgets what was in between.
func (r *Recorder) MayGap() { r.migration.mayGap.Store(true) }

// Stop ends the recording. It may be called twice.
func (r *Recorder) Stop() {
	for _, t := range []*tape{r.migration, r.states, r.lock} {
		if t != nil {
			t.end()
		}
	}
}

// Seen answers what was recorded once everything that is stored now is on it. It may be
// called again, until Stop.
func (r *Recorder) Seen(ctx context.Context) (Record, error) {
	var out Record
	for _, tape := range []*tape{r.migration, r.states, r.lock} {
		if err := tape.catchUp(ctx); err != nil {
			return out, err
		}
	}
	versions, gone := r.migration.played()
	out.Gone = gone
	for _, version := range versions {
		dm := &migrationv1.DatastoreMigration{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object, dm); err != nil {
			return out, fmt.Errorf("read a recorded migration: %w", err)
		}
		out.Statuses = append(out.Statuses, dm)
	}
	versions, _ = r.states.played()
	for _, version := range versions {
		state := &v1alpha1.MachineState{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(version.Object, state); err != nil {
			return out, fmt.Errorf("read a recorded state: %w", err)
		}
		out.States = append(out.States, state)
	}
	versions, _ = r.lock.played()
	for _, version := range versions {
		ready, found, _ := unstructured.NestedBool(version.Object, "spec", "datastoreReady")
		out.V1Ready = append(out.V1Ready, ready || !found)
	}
	return out, nil
}

// tape records the versions of one object.
type tape struct {
	client dynamic.ResourceInterface
	only   metav1.ListOptions
	end    context.CancelFunc
	wrote  chan struct{}
	mayGap atomic.Bool

	mu       sync.Mutex
	versions []*unstructured.Unstructured
	gone     bool
	failed   error
}

func newTape(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, only metav1.ListOptions) (*tape, error) {
	t := &tape{client: client.Resource(gvr), only: only, wrote: make(chan struct{}, 1)}
	ctx, t.end = context.WithCancel(ctx)
	now, err := t.client.List(ctx, only)
	if err != nil {
		t.end()
		return nil, fmt.Errorf("record %s: %w", gvr.Resource, err)
	}
	for i := range now.Items {
		t.versions = append(t.versions, &now.Items[i])
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.LabelSelector = only.FieldSelector, only.LabelSelector
			return t.client.Watch(ctx, o)
		}})
	if err != nil {
		t.end()
		return nil, fmt.Errorf("record %s: %w", gvr.Resource, err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			t.write(event)
		}
	}()
	return t, nil
}

func (t *tape) write(event watch.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	obj, isObject := event.Object.(*unstructured.Unstructured)
	switch {
	case (event.Type == watch.Error || !isObject) && t.mayGap.Load():
	case event.Type == watch.Error || !isObject:
		t.failed = fmt.Errorf("record %s%s: the recording has a gap: %v", t.only.FieldSelector, t.only.LabelSelector, event.Object)
	case event.Type == watch.Deleted:
		t.gone = true
	case event.Type != watch.Bookmark:
		t.gone = false
		t.versions = append(t.versions, obj)
	}
	select {
	case t.wrote <- struct{}{}:
	default:
	}
}

// catchUp waits until the version that is stored now is on the tape.
func (t *tape) catchUp(ctx context.Context) error {
	now, err := t.client.List(ctx, t.only)
	there := err == nil && len(now.Items) > 0 // an error: not even its CRD is there
	switch {
	case err != nil || !t.mayGap.Load():
	case there:
		t.write(watch.Event{Type: watch.Modified, Object: &now.Items[0]})
	default:
		t.write(watch.Event{Type: watch.Deleted, Object: &unstructured.Unstructured{}})
	}
	for {
		t.mu.Lock()
		failed := t.failed
		done := t.gone || len(t.versions) == 0
		if there {
			done = !slices.ContainsFunc(now.Items, func(live unstructured.Unstructured) bool {
				return !slices.ContainsFunc(t.versions, func(v *unstructured.Unstructured) bool { return v.GetResourceVersion() == live.GetResourceVersion() })
			})
		}
		t.mu.Unlock()
		if failed != nil || done {
			return failed
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("record %s%s: the watch does not tell what is stored: %w", t.only.FieldSelector, t.only.LabelSelector, ctx.Err())
		case <-t.wrote:
		}
	}
}

func (t *tape) played() (versions []*unstructured.Unstructured, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.versions), t.gone
}
