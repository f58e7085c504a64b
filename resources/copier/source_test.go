package copier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
)

// refusing refuses and counts every write, except deletes, while full.
func refusing(w *world, full *bool, writes *int) interceptor.Funcs {
	refuse := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !*full {
			return nil
		}
		*writes++
		return apierrs.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded"))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}
}

// A full store refuses each write in one way, and takes deletes.
func TestFreeStore(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d}\nspec: {nets: [192.0.2.0/24]}", i))
	}
	w.v1("IPPool", "metadata: {name: pool, finalizers: [theirs]}\nspec: {cidr: 10.0.0.0/8}")
	full, writes := false, 0
	c := w.copier(refusing(w, &full, &writes))
	w.mustCopy(c)
	full = true
	w.v1("GlobalNetworkSet", "metadata: {name: one-too-many}\nspec: {nets: [192.0.2.0/24]}")
	if _, err := c.Copy(t.Context(), nil); err == nil || writes != 1 {
		t.Errorf("a copy into a full store: %v after %d tries, want the answer to the first", err, writes)
	}
	deleted, err := c.FreeStore(t.Context())
	if err != nil || deleted != 5 || writes != 1 {
		t.Errorf("%d deleted, %v, %d writes: want all but the one with a finalizer, without a write", deleted, err, writes)
	}
	full = false
	if d, err := c.DeleteCopies(t.Context(), false); err != nil || d.Deleted != 1 || len(d.Remaining) > 0 {
		t.Errorf("and then: %+v, %v", d, err)
	}
}

// What the copies add is known from a page of each kind.
func TestBytes(t *testing.T) {
	w := newWorld(t)
	w.v1("GlobalNetworkSet", "metadata: {name: small}\nspec: {nets: [192.0.2.0/24]}")
	small, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	w.v1("GlobalNetworkSet", "metadata: {name: large, annotations: {filler: "+strings.Repeat("x", 100000)+"}}\nspec: {nets: [192.0.2.0/24]}")
	both, err := w.copier(interceptor.Funcs{}).Bytes(t.Context())
	w.must(err)
	if small < 500 || small > 3000 || both < 250000 || both > 260000 {
		t.Errorf("%d and %d bytes", small, both)
	}
}
