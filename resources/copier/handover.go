package copier

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// HandOver gives every v3 object the field managers that it should have (see resources.HandedOver): what was
// written through another version of v3 than v3 was written through v3, and what we have copied belongs to those who
// own it in v1. It is a write for each object, so it is for a time when nothing is locked; a second call writes
// nothing. The objects that the API server does not let us write are returned: while there are any, the other
// version must stay. Of kinds that are not due nothing is read.
func (c *Copier) HandOver(ctx context.Context, due func(kind string) bool) ([]resources.Problem, error) {
	h := &handover{Editor: c.Editor, source: c.Source, me: c.me}
	kinds := slices.DeleteFunc(c.reg.Kinds(), func(kind *resources.Kind) bool { return !due(kind.Name()) })
	err := eachKind(ctx, kinds, h.kind)
	return h.refused.sorted(compareProblems), err
}

// handover is one HandOver.
type handover struct {
	*Editor
	source  *Source
	me      owner
	refused gathered[resources.Problem]
}

func (h *handover) kind(ctx context.Context, kind *resources.Kind) error {
	g, ctx := crew(ctx) // whose end is that of the list of v1, too, which is not always read to its end
	v1 := &v1Owners{Source: h.source, kind: kind, ahead: map[client.ObjectKey][]metav1.ManagedFieldsEntry{}}
	return finish(g, h.eachMeta(ctx, inV3(kind), func(obj *Meta) error {
		var inV1 []metav1.ManagedFieldsEntry
		if h.me.has(obj) && resources.NeedsV1(obj.ManagedFields, fieldManager) {
			var err error
			if inV1, err = v1.take(ctx, client.ObjectKeyFromObject(obj)); err != nil {
				return err
			}
		}
		if _, changes, err := resources.HandedOver(obj.ManagedFields, inV1, fieldManager); err == nil && !changes {
			return ctx.Err()
		}
		obj = obj.DeepCopy() // the page is overwritten by the next one
		g.Go(func() error { return h.one(ctx, kind, obj, inV1) })
		return ctx.Err()
	}))
}

func (h *handover) one(ctx context.Context, kind *resources.Kind, obj *Meta, inV1 []metav1.ManagedFieldsEntry) error {
	err := h.Edit(ctx, obj, func(obj *Meta) (err error) {
		obj.ManagedFields, _, err = resources.HandedOver(obj.ManagedFields, inV1, fieldManager)
		return err
	})
	if !apierrors.Refused(err) {
		return err
	}
	h.refused.add(problemOf(kind, client.ObjectKeyFromObject(obj), resources.ReasonRejected,
		fmt.Sprintf("the API server refuses to change its managedFields: %v", err), "correct the v3 object, or what refuses it"))
	return nil
}

// v1Owners finds the field managers of v1 objects by the names that these have in v3. Both sides are listed in the
// order of their names, nearly: so only those are kept that come before it is their turn.
type v1Owners struct {
	*Source
	kind   *resources.Kind
	ahead  map[client.ObjectKey][]metav1.ManagedFieldsEntry
	stream chan ownedV1
	err    error // once stream is closed
}

type ownedV1 struct {
	key    client.ObjectKey
	owners []metav1.ManagedFieldsEntry
}

// take is empty for an object that v1 does not have any more.
func (o *v1Owners) take(ctx context.Context, key client.ObjectKey) ([]metav1.ManagedFieldsEntry, error) {
	if o.stream == nil {
		o.stream = make(chan ownedV1)
		go o.list(ctx)
	}
	for {
		if owners, found := o.ahead[key]; found {
			delete(o.ahead, key)
			return owners, nil
		}
		next, more := <-o.stream
		if !more {
			return nil, o.err
		}
		o.ahead[next.key] = next.owners
	}
}

func (o *v1Owners) list(ctx context.Context) {
	defer close(o.stream)
	o.err = o.EachV1(ctx, o.kind, func(v1 *unstructured.Unstructured) error {
		conv, err := resources.Convert(o.kind, v1, nil)
		if err != nil {
			return nil //nolint:nilerr // it was never copied: no v3 object is asked for
		}
		select {
		case o.stream <- ownedV1{client.ObjectKeyFromObject(conv.Object), resources.V1FieldOwners(v1)}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
