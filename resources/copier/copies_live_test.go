package copier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// An abort opens v1 when the copies are gone: what need not wait for each other must not. A tier goes
// after its policies, whose finalizers would have work to do for a deletion by the garbage collector.
func TestKindsAreDeletedAtOnce(t *testing.T) {
	var mu sync.Mutex
	var order []string
	var both sync.WaitGroup // deletions of kinds that have nothing to do with each other
	both.Add(2)
	s := newScene(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if kind == "IPAMHandle" || kind == "IPReservation" {
			both.Done()
			if !waited(&both) {
				return errors.New("the other kind waits")
			}
		}
		err := c.Delete(ctx, obj, opts...)
		mu.Lock()
		defer mu.Unlock()
		order = append(order, kind)
		return err
	}})
	s.v1("Tier", "metadata: {name: shop}\nspec: {order: 10}")
	s.v1("GlobalNetworkPolicy", "metadata: {name: shop.allow}\nspec: {tier: shop, selector: all()}")
	s.v1("IPAMHandle", "metadata: {name: h}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}")
	s.v1("IPReservation", "metadata: {name: r}\nspec: {reservedCIDRs: [10.0.0.0/30]}")
	s.mustCopy()
	if deletion := s.mustDelete(); deletion.Deleted != 4 {
		t.Errorf("%+v, want all four deleted", deletion)
	}
	if slices.Index(order, "Tier") < slices.Index(order, "GlobalNetworkPolicy") {
		t.Errorf("deleted in the order %q, want the tier after its policy", order)
	}
}

// waited is false if it takes too long.
func waited(group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { defer close(done); group.Wait() }()
	select {
	case <-done:
		return true
	case <-time.After(20 * time.Second):
		return false
	}
}

func TestForgetCopies(t *testing.T) {
	var races sync.Once
	s := newScene(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		races.Do(func() { // somebody writes right before us
			other := &unstructured.Unstructured{}
			other.SetGroupVersionKind(v3("IPReservation"))
			other.SetName(obj.GetName())
			if err := live.Client.Patch(ctx, other, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"his":"own"}}}`))); err != nil {
				t.Error(err)
			}
		})
		return c.Patch(ctx, obj, patch, opts...)
	}})
	for i := range 3 {
		s.v1("IPReservation", fmt.Sprintf("metadata: {name: ours-%d, annotations: {keep: me}}\nspec: {reservedCIDRs: [10.0.0.0/8]}", i))
	}
	s.v3("IPReservation", "metadata: {name: theirs, annotations: {"+resources.MigratedByAnnotation+": another}}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	s.mustCopy()
	for range 2 {
		if kept, err := s.copier.RemoveMigrationAnnotations(t.Context()); len(kept) > 0 || err != nil {
			t.Errorf("kept %v, %v", kept, err)
		}
	}
	got := map[string]int{}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v3("IPReservation"))
	if err := live.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, obj := range list.Items {
		got[obj.GetName()] = len(obj.GetAnnotations())
	}
	if diff := cmp.Diff(map[string]int{"ours-0": 1, "ours-1": 1, "ours-2": 1, "theirs": 1}, got); diff != "" {
		t.Errorf("annotations left (-want +got):\n%s", diff)
	}
}
