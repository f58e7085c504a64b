package loadgenerator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
)

// Window is when v1 was closed, as revisions: whatever is accepted after From and before
// Until is a breach.
type Window struct {
	// From is the first MachineState that holds the lock, and what is only taken behind a
	// proved fence.
	From uint64
	// Until is the write that opened v1 again; math.MaxUint64 while there is none.
	Until uint64
}

// Watcher notes when v1 is closed.
type Watcher struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu             sync.Mutex
	closed, opened []uint64
}

// Watch begins to note, and goes on when the API server was away. The client knows
// MachineState. The caller stops it.
func Watch(ctx context.Context, c client.WithWatch) (*Watcher, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watcher{cancel: cancel}
	infos := &unstructured.UnstructuredList{}
	infos.SetAPIVersion(resources.V1Group + "/" + resources.V1Version)
	infos.SetKind("ClusterInformationList")
	for _, list := range []client.ObjectList{&v1alpha1.MachineStateList{}, infos} {
		stream, err := c.Watch(ctx, list)
		if err != nil {
			w.Stop()
			return nil, fmt.Errorf("watch when v1 is closed: %w", err)
		}
		w.done.Go(func() { w.follow(ctx, c, list, stream) })
	}
	return w, nil
}

// follow ends with ctx. A stream that ends is followed by another one, which begins with
// what is there by then.
func (w *Watcher) follow(ctx context.Context, c client.WithWatch, list client.ObjectList, stream watch.Interface) {
	for {
		for event := range stream.ResultChan() {
			w.note(event)
		}
		var err error
		for stream, err = c.Watch(ctx, list); err != nil; stream, err = c.Watch(ctx, list) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func (w *Watcher) note(event watch.Event) {
	var to *[]uint64
	switch obj := event.Object.(type) {
	case *v1alpha1.MachineState:
		// v1Owners is what is taken next after the fence was proved.
		if obj.Status.IsHeld("v1Lock") && obj.Status.IsHeld("v1Owners") {
			to = &w.closed
		}
	case *unstructured.Unstructured:
		ready, found, _ := unstructured.NestedBool(obj.Object, "spec", "datastoreReady")
		if ready || !found {
			to = &w.opened
		}
	}
	if to == nil {
		return
	}
	obj := event.Object.(client.Object)
	if revision, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64); err == nil {
		w.mu.Lock()
		*to = append(*to, revision)
		w.mu.Unlock()
	}
}

// Stop answers the windows, in order. It may be called twice.
func (w *Watcher) Stop() []Window {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return windows(w.closed, w.opened)
}

// windows puts together when v1 was seen closed, any number of times, and open.
func windows(closed, opened []uint64) []Window {
	slices.Sort(closed)
	slices.Sort(opened)
	var found []Window
	until := uint64(0)
	for _, from := range closed {
		if from < until {
			continue // seen once more
		}
		until = math.MaxUint64
		if i, _ := slices.BinarySearch(opened, from); i < len(opened) {
			until = opened[i]
		}
		found = append(found, Window{From: from, Until: until})
	}
	return found
}

// Breaches are the attempts that were accepted while v1 was closed.
func Breaches(log []Attempt, windows []Window) []Attempt {
	var found []Attempt
	for _, a := range log {
		within := func(w Window) bool { return w.From < a.Revision && a.Revision < w.Until }
		if a.Accepted && slices.ContainsFunc(windows, within) {
			found = append(found, a)
		}
	}
	return found
}
