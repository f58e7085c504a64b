package copier

import (
	"context"
	"fmt"
	"slices"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// wantManagers compares the field managers of an object, as "name version".
func (w *world) wantManagers(obj client.Object, want ...string) {
	w.Helper()
	var names []string
	for _, entry := range obj.GetManagedFields() {
		names = append(names, entry.Manager+" "+entry.APIVersion)
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, want) {
		w.Errorf("%s is managed by %q, want %q", obj.GetName(), names, want)
	}
}

// Whoever owns an object in v1 owns its copy, by whatever name; what is no copy keeps its owners; a second call
// writes nothing; and what is refused is named, and does not keep the others.
func TestHandOver(t *testing.T) {
	const hidden = `projectcalico.org/metadata: '{"name":"%s"}'`
	w := newWorld(t)
	for i := range 5 {
		w.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d}\nspec: {nets: [192.0.2.0/24]}", i))
		// Of these the order of the names is another one in v3.
		w.v1("GlobalNetworkPolicy", fmt.Sprintf("metadata: {name: policy-%d, annotations: {%s}}\nspec: {order: 1}", i, fmt.Sprintf(hidden, fmt.Sprintf("p-%d", 9-i))))
	}
	set, _ := resources.Default().Kind("GlobalNetworkSet")
	policy, _ := resources.Default().Kind("GlobalNetworkPolicy")
	foreign := object(t, "metadata: {name: foreign}\nspec: {nets: [192.0.2.0/24]}")
	foreign.SetGroupVersionKind(set.V3GVK())
	w.must(w.client.Create(t.Context(), foreign, client.FieldOwner("bob")))

	writes, refuse := 0, "set-3"
	c := w.copier(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if obj.GetName() == refuse {
			return apierrs.NewForbidden(schema.GroupResource{Resource: "globalnetworksets"}, refuse, fmt.Errorf("a policy says no"))
		}
		w.mu.Lock()
		writes++
		w.mu.Unlock()
		return c.Patch(ctx, obj, patch, opts...)
	}})
	w.mustCopy(c)
	refused, err := c.HandOver(t.Context(), func(string) bool { return true })
	w.must(err)
	if len(refused) != 1 || refused[0].Name != "set-3" {
		t.Errorf("refused: %v, want set-3", refused)
	}
	refuse = ""
	if refused, err = c.HandOver(t.Context(), func(string) bool { return true }); err != nil || len(refused) > 0 || writes != 10 {
		t.Errorf("refused %v, error %v, %d writes in all, want one for each copy", refused, err, writes)
	}
	for i := range 5 {
		w.wantManagers(w.get(set.V3GVK(), fmt.Sprintf("set-%d", i)), "phasegate projectcalico.org/v3", "test projectcalico.org/v3")
		w.wantManagers(w.get(policy.V3GVK(), fmt.Sprintf("p-%d", i+5)), "phasegate projectcalico.org/v3", "test projectcalico.org/v3")
	}
	w.wantManagers(w.get(set.V3GVK(), "foreign"), "bob projectcalico.org/v3") // which we did not copy
	if refused, err = c.HandOver(t.Context(), func(string) bool { return true }); err != nil || len(refused) > 0 || writes != 10 {
		t.Errorf("a second call: refused %v, error %v, %d writes", refused, err, writes)
	}
}
