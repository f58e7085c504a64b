package copier

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// try calls until it succeeds, fails for good, or has failed often enough. The call must be one that
// may be repeated after it took effect unseen.
func (c *Copier) try(ctx context.Context, call func() error) error {
	return c.tryWhile(ctx, mayPass, call)
}

// tryWrite is try for writing a copy. It also waits for a right that is missing: an API server that was
// started a moment ago does not know of it yet, and every object would be taken for one that it refuses.
func (c *Copier) tryWrite(ctx context.Context, call func() error) error {
	return c.tryWhile(ctx, func(err error) bool { return mayPass(err) || apierrors.NotAllowed(err) }, call)
}

func mayPass(err error) bool {
	return apierrors.Retryable(apierrors.Classify(err)) && !apierrors.StoreFull(err)
}

func (c *Copier) tryWhile(ctx context.Context, again func(error) bool, call func() error) error {
	backoff := c.backoff
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

// counted tells of every time but the first that a call is made.
func (c *Copier) counted(kind, operation string, call func() error) func() error {
	again := false
	return func() error {
		if again {
			c.retried(kind, operation)
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

// get reads one live object.
func (c *Copier) get(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	err := c.try(ctx, c.counted(gvk.Kind, "get", func() error { return c.c.Get(ctx, key, obj) }))
	return obj, err
}

// getMetadata reads the metadata of one v3 object.
func (c *Copier) getMetadata(ctx context.Context, kind *resources.Kind, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind.V3GVK())
	err := c.try(ctx, c.counted(kind.Name(), "get", func() error { return c.c.Get(ctx, key, obj) }))
	return obj, err
}
