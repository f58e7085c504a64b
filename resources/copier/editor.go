package copier

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Editor finds and changes the metadata of objects of any kind, Calico's or not.
type Editor struct{ *api }

// Find lists the metadata of all objects of a kind, and returns those that match. It changes nothing. The error wraps
// the API server's, also where the kind is not served.
func (e *Editor) Find(ctx context.Context, gvk schema.GroupVersionKind, match func(*Meta) bool) ([]*Meta, error) {
	return e.find(ctx, served(gvk, anyPage), match)
}

func (e *Editor) find(ctx context.Context, in side, match func(*Meta) bool) (found []*Meta, err error) {
	err = e.eachMeta(ctx, in, func(obj *Meta) error {
		if match(obj) {
			found = append(found, obj.DeepCopy())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// findV1 is Find over the v1 objects of some kinds. A kind without a CRD has none.
func (e *Editor) findV1(ctx context.Context, kinds []*resources.Kind, match func(*Meta) bool) (found []*Meta, err error) {
	some := make([][]*Meta, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for i, kind := range kinds {
		g.Go(func() (err error) {
			some[i], err = e.find(ctx, everyV1(kind), match)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, those := range some {
		found = append(found, those...)
	}
	return found, nil
}

// Edit changes the metadata of one object as it was found, and of what it has become if it has changed
// since. change must leave alone what needs no change: nothing is written then. An object that is gone is
// none to change. It may be called again after any failure.
func (e *Editor) Edit(ctx context.Context, obj *Meta, change func(*Meta) error) error {
	key := client.ObjectKeyFromObject(obj)
	gvk := obj.GroupVersionKind()
	for range maxRaces {
		before := obj.DeepCopy()
		if err := change(obj); err != nil {
			return fmt.Errorf("%s %s: %w", gvk.Kind, key, err)
		}
		if equality.Semantic.DeepEqual(before, obj) {
			return nil
		}
		err := e.try(ctx, func() error {
			return e.client.Patch(ctx, obj.DeepCopy(), client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		})
		if apierrors.Classify(err) == apierrors.Conflict {
			obj, err = e.readAgain(ctx, gvk, key)
			if err == nil {
				continue
			}
		}
		if apierrors.ObjectNotFound(err) {
			return nil
		}
		if err != nil {
			err = fmt.Errorf("change the metadata of %s %s: %w", gvk.Kind, key, err)
		}
		return err
	}
	return fmt.Errorf("change the metadata of %s %s: changed %d times meanwhile", gvk.Kind, key, maxRaces)
}

// readAgain reads one object. An object that is gone is not found.
func (e *Editor) readAgain(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*Meta, error) {
	list := &metav1.PartialObjectMetadataList{}
	if err := e.listOne(ctx, list, gvk, key); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if obj := &list.Items[i]; obj.Name == key.Name {
			obj.SetGroupVersionKind(gvk)
			return obj, nil
		}
	}
	return nil, apierrs.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// EditAll is Edit for many at a time. The first error ends it.
func (e *Editor) EditAll(ctx context.Context, objs []*Meta, change func(*Meta) error) error {
	g, ctx := crew(ctx)
	for _, obj := range objs {
		g.Go(func() error { return e.Edit(ctx, obj, change) })
	}
	return g.Wait()
}
