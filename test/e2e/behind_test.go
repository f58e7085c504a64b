package e2e

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// behind does something to the v3 CRDs while the aggregated API server is out of the way.
func (w *world) behind(t *testing.T, do func(context.Context) error) {
	t.Helper()
	if err := w.Behind(context.Background(), do); err != nil { // also for what a test cleans up
		t.Fatal(err)
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
