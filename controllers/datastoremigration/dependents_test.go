package datastoremigration

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/resources"
)

// Owners come back also where somebody has removed the note of which kinds have lost theirs.
func TestAttachWithoutTheNote(t *testing.T) {
	cases := map[string]struct {
		why   string
		owner metav1.OwnerReference
		lost  bool // the note
	}{
		"with the note":     {why: "it says where to look", owner: metav1.OwnerReference{APIVersion: "projectcalico.org/v3", Kind: "Tier", Name: "t", UID: "1"}},
		"without":           {why: "every kind is looked at", owner: metav1.OwnerReference{APIVersion: "projectcalico.org/v3", Kind: "Tier", Name: "t", UID: "1"}, lost: true},
		"nothing to detach": {why: "an owner of another kind is none of ours", owner: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "2"}, lost: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", OwnerReferences: []metav1.OwnerReference{c.owner}}}
			cl := interceptor.NewClient(fake.NewClientBuilder().WithScheme(NewScheme()).WithStatusSubresource(dm).WithObjects(dm, owned).Build(), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if _, ok := obj.(*v1alpha1.MachineState); ok {
						return c.Create(ctx, obj, opts...)
					}
					return apierrs.NewForbidden(corev1.Resource("configmaps"), obj.GetName(), nil) // the canary: there is no collector to wait for
				},
			})
			served := preferring{nothingServed(), []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
			}}}}
			actions := Program(cl, Settings{Registry: resources.Default(), CalicoNamespace: "calico-system", Discovery: served}).Actions
			owners := func() []metav1.OwnerReference {
				t.Helper()
				must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(owned), owned))
				return owned.OwnerReferences
			}
			before := owners()
			if _, err := runner.Once(t.Context(), cl, dm, actions[DetachAction], nil, clock.RealClock{}); err != nil {
				t.Fatal(err)
			}
			if detached := len(owners()) == 0; detached != (c.owner.Kind == "Tier") {
				t.Fatalf("detached: %t", detached)
			}
			if c.lost {
				must(t, client.IgnoreNotFound(cl.Delete(t.Context(), onceState(dm.UID, detachedKindsKey, ""))))
			}
			if _, err := runner.Once(t.Context(), cl, dm, actions["AttachDependents"], nil, clock.RealClock{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, owners()); diff != "" {
				t.Errorf("owners afterwards (-want +got): %s\n%s", c.why, diff)
			}
		})
	}
}

// preferring is discovery that knows some kinds; the fake one of client-go prefers none.
type preferring struct {
	*discoveryfake.FakeDiscovery
	lists []*metav1.APIResourceList
}

func (p preferring) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return p.lists, nil
}
