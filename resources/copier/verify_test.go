package copier_test

import (
	"context"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// Where v3 has nothing there is nothing to be in conflict with: before the first copy, that is nearly everywhere.
func TestConflictsReadsNoV1WhereV3IsEmpty(t *testing.T) {
	var read atomic.Int32
	s := newScene(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if gvk := list.GetObjectKind().GroupVersionKind(); gvk.Group == resources.V1Group && gvk.Kind == "IPReservationList" {
			read.Add(1)
		}
		return c.List(ctx, list, opts...)
	}})
	s.v1("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	look := func() int {
		t.Helper()
		found, err := s.copier.Compare(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Conflicts)
	}
	if found := look(); found != 0 || read.Load() != 0 {
		t.Errorf("%d conflicts, and %d lists of v1; want none, nothing is in v3", found, read.Load())
	}
	s.v3("IPReservation", "metadata: {name: one}\nspec: {reservedCIDRs: [11.0.0.0/8]}")
	if found := look(); found != 1 || read.Load() == 0 {
		t.Errorf("%d conflicts, and %d lists of v1; want one conflict", found, read.Load())
	}
}
