package e2e

import (
	"context"
	"errors"
	"testing"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/harness"
)

// behind does something to the v3 CRDs while the aggregated API server is out of the way, then brings that
// back. It is how objects get there that a migration finds in its way.
func (w *world) behind(t *testing.T, do func(context.Context) error) {
	t.Helper()
	ctx := context.Background() // also for what a test cleans up
	svc := &apiregistrationv1.APIService{}
	name := types.NamespacedName{Name: fakeapiserver.APIServiceName}
	if err := w.Client.Get(ctx, name, svc); err != nil {
		t.Fatal(err)
	}
	aggregated := svc.DeepCopy()
	svc.Labels = map[string]string{"kube-aggregator.kubernetes.io/automanaged": "true"}
	svc.Annotations = nil
	svc.Spec = apiregistrationv1.APIServiceSpec{
		Group: resources.V3Group, Version: resources.V3Version, GroupPriorityMinimum: 1000, VersionPriority: 100,
	}
	if err := w.Client.Update(ctx, svc); err != nil {
		t.Fatal(err)
	}
	v1 := w.get(t, resources.V1Group+"/"+resources.V1Version, "ClusterInformation", "default")
	shown, err := resources.ReverseUID(v1.GetUID())
	if err != nil {
		t.Fatal(err)
	}
	served := func(byCRDs bool) func() error {
		return func() error {
			info := &unstructured.Unstructured{}
			info.SetAPIVersion(v3)
			info.SetKind("ClusterInformation")
			err := w.Client.Get(ctx, types.NamespacedName{Name: "default"}, info)
			if err != nil && !apierrs.IsNotFound(err) {
				return err
			}
			if byCRDs == (info.GetUID() == shown) {
				return errors.New("v3 is served by the other one")
			}
			return nil
		}
	}
	harness.Eventually(t, "v3 from the CRDs", served(true))
	doErr := do(ctx)
	if err := w.Client.Get(ctx, name, svc); err != nil {
		t.Fatal(err)
	}
	svc.Labels, svc.Annotations, svc.Spec = aggregated.Labels, aggregated.Annotations, aggregated.Spec
	if err := w.Client.Update(ctx, svc); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "v3 from the aggregated API server", served(false))
	if doErr != nil {
		t.Fatal(doErr)
	}
}

// contested is an object of the fixture that a test puts into v3 with other content.
func contested() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"nets": []any{"192.0.2.99/32"}},
	}}
	obj.SetAPIVersion(v3)
	obj.SetKind("GlobalNetworkSet")
	obj.SetName("blocklist-0")
	obj.SetLabels(map[string]string{"threat-feed": "somebody-else"})
	return obj
}

// obstruct puts the contested object into the storage of v3.
func (w *world) obstruct(t *testing.T) {
	t.Helper()
	w.behind(t, func(ctx context.Context) error { return w.Client.Create(ctx, contested()) })
}

// clear takes it away again.
func (w *world) clear(t *testing.T) {
	t.Helper()
	w.behind(t, func(ctx context.Context) error { return w.Client.Delete(ctx, contested()) })
}
