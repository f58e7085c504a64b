package migration_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/fixture"
)

// owned are the Calico objects that own something outside Calico, as kind and name.
var owned = []struct{ kind, name string }{
	{"Tier", fixture.OwnerTier},
	{"GlobalNetworkPolicy", fixture.OwnerTier + ".owned-00"},
	{"GlobalNetworkSet", "blocklist-1"},
	{"IPPool", "default-ipv4-ippool"},
}

// addSentinels makes objects outside Calico which a migration must not harm: some that
// a Calico object owns, as users see it, one that two own, one that nobody owns.
func (w *world) addSentinels(ctx context.Context) error {
	var refs []metav1.OwnerReference
	for _, o := range owned {
		owner := &unstructured.Unstructured{}
		kind, _ := w.Registry.Kind(o.kind)
		owner.SetGroupVersionKind(kind.V3GVK())
		if err := w.Client.Get(ctx, client.ObjectKey{Name: o.name}, owner); err != nil {
			return fmt.Errorf("find the owner of a sentinel: %w", err)
		}
		refs = append(refs, metav1.OwnerReference{
			APIVersion: resources.V3Group + "/v3", Kind: o.kind, Name: o.name, UID: owner.GetUID(),
		})
	}
	all := []struct {
		name   string
		owners []metav1.OwnerReference
	}{{"nobodys", nil}, {"of-two", refs[:2]}}
	for _, ref := range refs {
		for i := range 2 {
			all = append(all, struct {
				name   string
				owners []metav1.OwnerReference
			}{fmt.Sprintf("of-%s-%d", ref.UID, i), []metav1.OwnerReference{ref}})
		}
	}
	for _, s := range all {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: s.name, OwnerReferences: s.owners, Labels: map[string]string{invariants.SentinelLabel: "yes"}}
		for _, obj := range []client.Object{
			&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"keep": s.name}},
			&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"keep": s.name}},
		} {
			if err := w.Client.Create(ctx, obj); err != nil {
				return fmt.Errorf("create a sentinel: %w", err)
			}
		}
	}
	return nil
}
