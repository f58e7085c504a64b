package copier

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// remove deletes a v3 object whose v1 object was deleted, if it is as it was. It is deleted as a person deletes it: its
// finalizers have their work to do.
func (l *late) remove(ctx context.Context, of *kindRun, live *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(live)
	if live.GetDeletionTimestamp() != nil {
		return nil
	}
	if !of.me.has(live) || contentSince(live) > l.since {
		cause := CauseEdited
		if !of.me.has(live) {
			cause = CauseUnmanaged
		}
		l.notes.conflict(of.kind, key, finding{cause, resources.Diff(of.kind, of.schema, bare(of.kind, key), live)})
		return nil
	}
	seen := &Meta{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: live.GetUID(), ResourceVersion: live.GetResourceVersion()}}
	seen.SetGroupVersionKind(of.kind.V3GVK())
	err := l.deleteExactly(ctx, seen)
	switch {
	case err == nil:
		l.brought = append(l.brought, shownAs(of.kind, key)+": deleted")
	case apierrors.Refused(err):
		l.notes.reject(of.kind, Refusal("delete", of.kind, key, err))
	case apierrors.Classify(err) != apierrors.NotFound:
		return err
	}
	return nil
}

// removeDeleted removes the copies of ours whose v1 object was deleted since they were verified.
func (l *late) removeDeleted(ctx context.Context, look *lateKind) error {
	pairs, err := l.sides.of(ctx, look.kind)
	if err != nil {
		return err
	}
	of := &kindRun{pairs: pairs}
	left, err := l.withoutV1(ctx, of, look)
	if err != nil {
		return err
	}
	for _, key := range left {
		live, err := l.get(ctx, look.kind.V3GVK(), key)
		if err == nil {
			err = l.remove(ctx, of, live)
		}
		if apierrors.Classify(err) == apierrors.NotFound {
			continue
		}
		if err := l.isSettled(err); err != nil {
			return err
		}
	}
	return nil
}

// withoutV1 finds the copies of ours that have no v1 object any more. One that went with its CRD was deleted by nobody.
func (l *late) withoutV1(ctx context.Context, of *kindRun, look *lateKind) (left []client.ObjectKey, err error) {
	var ours []*Meta
	err = l.eachMeta(ctx, inV3(look.kind), func(obj *Meta) error {
		if of.me.has(obj) && !look.names.Has(client.ObjectKeyFromObject(obj)) {
			ours = append(ours, obj.DeepCopy())
		}
		return nil
	})
	if err != nil || len(ours) == 0 {
		return nil, err
	}
	names := sets.New[client.ObjectKey]() // of v3
	err = l.v1.EachV1(ctx, look.kind, func(v1 *unstructured.Unstructured) error {
		conv, err := resources.Convert(look.kind, v1, of.schema)
		if err == nil {
			names.Insert(client.ObjectKeyFromObject(conv.Object))
		}
		return nil //nolint:nilerr // it cannot be converted, as it could before: it is new, and rejected
	})
	if err != nil {
		return nil, err
	}
	crd, err := l.v1CRD(ctx, look.kind)
	if err != nil || crd == nil {
		return nil, err
	}
	for _, obj := range ours {
		if key := client.ObjectKeyFromObject(obj); !names.Has(key) && l.copies.outlives(look.kind, obj, crd) == nil {
			left = append(left, key)
		}
	}
	return left, nil
}

// v1CRD is nil where it is gone, or going with its objects.
func (l *late) v1CRD(ctx context.Context, kind *resources.Kind) (*Meta, error) {
	crd, err := l.getMeta(ctx, crdKind, client.ObjectKey{Name: kind.V1CRDName()})
	switch {
	case apierrors.Classify(err) == apierrors.NotFound:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read crd %s: %w", kind.V1CRDName(), err)
	case crd.DeletionTimestamp != nil:
		return nil, nil
	}
	return crd, nil
}
