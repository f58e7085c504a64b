package copier

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What a slow watch has not shown would be missing from the copy, and from the comparison with it: nothing such a watch
// has said is believed any more.
func TestABarrierThatIsNotShownEndsTheReplica(t *testing.T) {
	w := newWorld(t)
	pool := kindOf(t, "IPPool")
	w.v1("IPPool", "metadata: {name: pool}\nspec: {cidr: 10.0.0.0/8}")
	ctx, late := context.WithCancel(t.Context())
	c := w.copier(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		defer late() // the barrier is written, and no watch shows it in time
		return c.Patch(ctx, obj, patch, opts...)
	}})
	r := newReplica(c.api, pool.V1GVK(), v1ObjectOf)
	live := w.get(pool.V1GVK(), "pool")
	r.barrier = &Meta{ObjectMeta: metav1.ObjectMeta{Name: live.GetName(), ResourceVersion: live.GetResourceVersion()}}
	if r.pass(ctx) {
		t.Error("the replica is believed to have all that was written")
	}
	if got := w.get(pool.V1GVK(), "pool"); got.GetResourceVersion() == live.GetResourceVersion() {
		t.Fatal("no barrier was written")
	}
	if r.follows() {
		t.Error("the replica is used again")
	}
}
