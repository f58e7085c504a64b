package copier

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// anyPage is the page size for kinds that the registry does not know.
const anyPage = 500

// Meta is the metadata of one object, of any kind.
type Meta = metav1.PartialObjectMetadata

// Find lists the metadata of all objects of a kind, Calico's or not, and returns those that match. It
// changes nothing. The error wraps the API server's, also where the kind is not served.
func (c *Copier) Find(ctx context.Context, gvk schema.GroupVersionKind, match func(*Meta) bool) ([]*Meta, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(gvk))
	var found []*Meta
	err := c.pagesServed(ctx, list, anyPage, labels.Everything(), func() error {
		for i := range list.Items {
			if match(&list.Items[i]) {
				item := list.Items[i].DeepCopy()
				item.SetGroupVersionKind(gvk) // an item of a list says that it is metadata only
				found = append(found, item)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	return found, nil
}

// FindV1 is Find over the v1 objects of all kinds, whether they are to be migrated or not. A kind without
// a CRD has none.
func (c *Copier) FindV1(ctx context.Context, match func(*Meta) bool) ([]*Meta, error) {
	return c.findV1(ctx, c.reg.Kinds(), match)
}

func (c *Copier) findV1(ctx context.Context, kinds []*resources.Kind, match func(*Meta) bool) ([]*Meta, error) {
	found := make([][]*Meta, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for i, kind := range kinds {
		g.Go(func() (err error) {
			found[i], err = c.Find(ctx, kind.V1GVK(), match)
			if err != nil {
				err = c.unlessAbsent(ctx, kind.V1CRDName(), err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []*Meta
	for _, some := range found {
		all = append(all, some...)
	}
	return all, nil
}

// Edit changes the metadata of one object as it was found, and of what it has become if it has changed
// since. change must leave alone what needs no change: nothing is written then. An object that is gone is
// none to change. It may be called again after any failure.
func (c *Copier) Edit(ctx context.Context, obj *Meta, change func(*Meta) error) error {
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
		err := c.try(ctx, func() error {
			return c.c.Patch(ctx, obj.DeepCopy(), client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		})
		if apierrors.Classify(err) == apierrors.Conflict {
			obj, err = c.readMeta(ctx, gvk, key)
			if err == nil {
				continue
			}
		}
		if apierrors.Classify(err) == apierrors.NotFound {
			return nil
		}
		if err != nil {
			err = fmt.Errorf("change the metadata of %s %s: %w", gvk.Kind, key, err)
		}
		return err
	}
	return fmt.Errorf("change the metadata of %s %s: changed %d times meanwhile", gvk.Kind, key, maxRaces)
}

// readMeta reads one object anew, by a list of it alone: who may find objects may list them, and need not be
// allowed to get them. One that is gone is not found.
func (c *Copier) readMeta(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*Meta, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(gvk))
	err := c.try(ctx, func() error {
		return c.c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
	})
	if err != nil {
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
func (c *Copier) EditAll(ctx context.Context, objs []*Meta, change func(*Meta) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, obj := range objs {
		g.Go(func() error { return c.Edit(ctx, obj, change) })
	}
	return g.Wait()
}

// Owners reads both sides and returns a function that rewrites references to v1 objects, by the raw UID
// or by the one of the aggregated view, to the v3 objects that they have become. A reference to a v3 object
// stays. Those whose object is not there come back as unknown.
func (c *Copier) Owners(ctx context.Context) (func([]metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference), error) {
	s := c.newComparer(false)
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	there := map[types.UID]bool{}
	for _, target := range s.owners.by {
		there[target.uid] = true
	}
	return func(refs []metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference) {
		for _, ref := range refs {
			one, none := s.owners.resolve([]metav1.OwnerReference{ref})
			if len(none) > 0 && there[ref.UID] {
				one, none = none, nil
			}
			resolved, unknown = append(resolved, one...), append(unknown, none...)
		}
		return resolved, unknown
	}, nil
}
