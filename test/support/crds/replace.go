package crds

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// Replace puts a CRD in the place of the one of its name, as kubectl replace does. It does not
// wait until the API server serves it, which takes some milliseconds.
func Replace(ctx context.Context, cfg *rest.Config, crd *unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(unlimited(cfg))
	if err != nil {
		return fmt.Errorf("client for CRDs: %w", err)
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := client.Resource(crdGVR).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Object["spec"] = runtime.DeepCopyJSON(crd.Object)["spec"]
		_, err = client.Resource(crdGVR).Update(ctx, live, metav1.UpdateOptions{})
		return err
	})
}
