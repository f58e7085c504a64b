package copier

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/pager"
)

// Meta is the metadata of one object, of any kind.
type Meta = metav1.PartialObjectMetadata

// defaultBackoff bounds the tries of one request to about half a minute: an API server that restarts is
// back by then.
var defaultBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 14}

// longestPause bounds the pause between two tries: a migration that waits holds the lock.
const longestPause = 3 * time.Second

// api is the API server. A request that failed on the way is sent again.
type api struct {
	client  client.Client
	backoff wait.Backoff
	retried func(kind, operation string)
}

// try calls until it succeeds, fails for good, or has failed often enough. The call must be one that
// may be repeated after it took effect unseen.
func (a *api) try(ctx context.Context, call func() error) error {
	return a.tryWhile(ctx, mayPass, call)
}

// tryWrite is try for writing a copy. It also waits for a right that is missing, and for our credentials to be known: an
// API server that was started a moment ago does not know of them yet, and the copy would end for it.
func (a *api) tryWrite(ctx context.Context, call func() error) error {
	return a.tryWhile(ctx, func(err error) bool { return mayPass(err) || apierrors.NotAllowed(err) || apierrors.Unauthorized(err) }, call)
}

func mayPass(err error) bool {
	return apierrors.Retryable(apierrors.Classify(err)) && !apierrors.StoreFull(err)
}

func (a *api) tryWhile(ctx context.Context, again func(error) bool, call func() error) error {
	backoff := a.backoff
	for left := backoff.Steps; ; left-- {
		err := call()
		if !again(err) || left <= 1 || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, max(min(backoff.Step(), longestPause), apierrors.RetryAfter(err))) {
			return err
		}
	}
}

// counted reports every repetition of a call.
func (a *api) counted(kind, operation string, call func() error) func() error {
	again := false
	return func() error {
		if again {
			a.retried(kind, operation)
		}
		again = true
		return call()
	}
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// get reads one object.
func (a *api) get(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return obj, a.try(ctx, a.counted(gvk.Kind, "get", func() error { return a.client.Get(ctx, key, obj) }))
}

// getMeta reads the metadata of one object.
func (a *api) getMeta(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*Meta, error) {
	obj := &Meta{}
	obj.SetGroupVersionKind(gvk)
	return obj, a.try(ctx, a.counted(gvk.Kind, "get", func() error { return a.client.Get(ctx, key, obj) }))
}

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// crd returns nil without error if the API server says that there is no CRD of this name.
func (a *api) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := a.get(ctx, crdKind, client.ObjectKey{Name: name})
	if pager.IsAbsent(err, name) {
		return nil, nil
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd)
	}
	if err != nil {
		return nil, fmt.Errorf("read crd %s: %w", name, err)
	}
	return crd, nil
}

// patchMeta changes the metadata of an object as it was seen.
func (a *api) patchMeta(ctx context.Context, obj *Meta, change func(), opts ...client.PatchOption) error {
	patch := client.MergeFromWithOptions(obj.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change()
	return a.try(ctx, func() error { return a.client.Patch(ctx, obj, patch, opts...) })
}

// deleteExactly deletes an object as it was seen.
func (a *api) deleteExactly(ctx context.Context, obj *Meta, opts ...client.DeleteOption) error {
	uid, version := obj.UID, obj.ResourceVersion
	// As unstructured: the metadata client fails on the answer to a delete, which is no metadata.
	target := nameOnly(obj)
	opts = append(opts, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return a.try(ctx, func() error { return a.client.Delete(ctx, target, opts...) })
}

// nameOnly names an object.
func nameOnly(obj client.Object) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	out.SetNamespace(obj.GetNamespace())
	out.SetName(obj.GetName())
	return out
}
