package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What the control does as Calico's own controller does: the numbers are those of its
// public source.
const (
	controlQPS     = 100 // for each kind: the client limits each by itself
	controlBurst   = 200
	controlWorkers = 10
	shippedDrain   = 10 * time.Second
	shortDrain     = time.Second
)

// control is a migration as Calico's controller makes it. It knows no fence, no crash
// and no conflict: the figures are what it is for.
type control struct {
	scene *setup.Setup
	// limited reads and writes v3, admin does the rest.
	limited, admin client.Client
	drain          time.Duration
}

// newControl makes a control: with its own limits, or with none.
func newControl(s *setup.Setup, unlimited bool) (*control, error) {
	c := &control{scene: s, admin: s.Client, drain: shippedDrain}
	config := rest.CopyConfig(s.Config)
	config.QPS, config.Burst = controlQPS, controlBurst
	if unlimited {
		config.QPS, c.drain = -1, shortDrain
	}
	var err error
	c.limited, err = client.New(config, client.Options{Scheme: s.Client.Scheme()})
	return c, err
}

// run locks, waits, cuts over, looks for conflicts, copies kind after kind, unlocks.
func (c *control) run(ctx context.Context) error {
	lock := c.scene.Registry.Lock()
	if err := c.setReady(ctx, lock.V1GVK(), false); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(c.drain): // it is fixed, and a part of what is measured
	}
	if err := c.cutOver(ctx); err != nil {
		return err
	}
	for _, kind := range c.scene.Registry.Kinds() {
		if err := c.detect(ctx, kind); err != nil {
			return err
		}
	}
	if err := c.lockV3(ctx, lock); err != nil {
		return err
	}
	for _, kind := range c.scene.Registry.Kinds() {
		if err := c.copy(ctx, kind); err != nil {
			return err
		}
	}
	return c.setReady(ctx, lock.V3GVK(), true)
}

// end has nothing to do: nothing of it outlives run.
func (c *control) end() {}

func (c *control) setReady(ctx context.Context, gvk schema.GroupVersionKind, ready bool) error {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(gvk)
	info.SetName(lockName)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"datastoreReady":%t}}`, ready))
	if err := c.admin.Patch(ctx, info, patch); err != nil {
		return fmt.Errorf("set datastoreReady of %s: %w", gvk, err)
	}
	return nil
}

// cutOver takes the aggregated API server away and waits until the CRDs are served.
func (c *control) cutOver(ctx context.Context) error {
	svc := &apiregistrationv1.APIService{}
	svc.Name = resources.V3Version + "." + resources.V3Group
	if err := c.admin.Delete(ctx, svc); err != nil {
		return fmt.Errorf("delete APIService %s: %w", svc.Name, err)
	}
	return harness.Await(ctx, "v3 to be served from its CRDs", patience, func(ctx context.Context) error {
		if err := c.admin.Get(ctx, client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		if svc.Spec.Service != nil {
			return fmt.Errorf("APIService %s is still the aggregated one", svc.Name)
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(c.scene.Registry.Lock().V3GVK())
		if err := c.admin.List(ctx, list); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return errors.New("v3 still shows v1")
		}
		return nil
	})
}

func (c *control) lockV3(ctx context.Context, lock *resources.Kind) error {
	info := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"datastoreReady": false}}}
	info.SetGroupVersionKind(lock.V3GVK())
	info.SetName(lockName)
	if err := c.admin.Create(ctx, info); err != nil {
		return fmt.Errorf("create v3's lock: %w", err)
	}
	return nil
}

// detect asks for the v3 object of every v1 object, one after the other.
func (c *control) detect(ctx context.Context, kind *resources.Kind) error {
	objects, err := c.converted(ctx, kind)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.absent(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// copy asks for each v3 object and creates it, some at a time.
func (c *control) copy(ctx context.Context, kind *resources.Kind) error {
	objects, err := c.converted(ctx, kind)
	if err != nil {
		return err
	}
	return each(ctx, objects, controlWorkers, func(ctx context.Context, obj *unstructured.Unstructured) error {
		if err := c.absent(ctx, obj); err != nil {
			return err
		}
		return c.limited.Create(ctx, obj)
	})
}

// absent is an error where an object is there: the scene has no conflicts.
func (c *control) absent(ctx context.Context, obj *unstructured.Unstructured) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	err := c.limited.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if err == nil {
		return fmt.Errorf("%s %s is there already", obj.GetKind(), client.ObjectKeyFromObject(obj))
	}
	return client.IgnoreNotFound(err)
}

// converted lists all v1 objects of a kind, in one go, as they will be in v3.
func (c *control) converted(ctx context.Context, kind *resources.Kind) ([]*unstructured.Unstructured, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.admin.Get(ctx, types.NamespacedName{Name: kind.V3CRDName()}, crd); err != nil {
		return nil, err
	}
	schema, err := resources.NewSchema(crd, resources.V3Version)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.V1GVK())
	if err := c.admin.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.V1GVK(), err)
	}
	var out []*unstructured.Unstructured
	for i := range list.Items {
		conv, err := resources.Convert(kind, &list.Items[i], schema)
		if err != nil {
			return nil, err
		}
		out = append(out, conv.Object)
	}
	return out, nil
}
