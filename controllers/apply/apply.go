// Package apply brings objects to what their owner wants by server-side apply,
// and sends nothing when nothing would change.
//
// What is wanted is compared with the fields that the owner's field manager has
// in the live object, never with a second list of fields written by hand: a field
// that somebody else changed or took over is drift, one that is not wanted any
// more goes, and those of others stay.
//
// It does not know what the objects are for. It writes no custom resource.
package apply

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NoVersion is a resourceVersion that no object has. An apply that bears it makes
// an object, and is a conflict with one that is there.
const NoVersion = "1"

// Applier says for whom objects are applied.
type Applier struct {
	// Client must not read from a cache.
	Client client.Client
	// Manager is the field manager.
	Manager string
	// Owner becomes the controller of every object.
	Owner metav1.OwnerReference
	// Adopt tells whether an object that has no controller may be taken over; nil
	// takes over none.
	Adopt func(client.Object) bool
}

// Read reads the object that named names, which is not changed. Where there is
// none, live is the zero value.
func Read[T client.Object](ctx context.Context, c client.Client, named T) (live T, found bool, err error) {
	read := named.DeepCopyObject().(T)
	err = c.Get(ctx, client.ObjectKeyFromObject(named), read)
	switch {
	case apierrors.IsNotFound(err):
		return live, false, nil
	case err != nil:
		return live, false, fmt.Errorf("read %s: %w", describe(c, named), err)
	}
	return read, true, nil
}

// Put makes the fields of desired those of the live object, as Read gave it, and
// the Owner its controller. It may be called again: the second call sends nothing.
//
// An object of somebody else is a *NotOursError, one that is going a
// *DeletingError. A change since the read is a conflict (apierrors.IsConflict),
// and so is an object that somebody else created since: read again.
func Put[T client.Object](ctx context.Context, a Applier, live T, found bool, desired T) (now T, wrote bool, err error) {
	want := desired.DeepCopyObject().(T)
	want.SetOwnerReferences([]metav1.OwnerReference{a.Owner})
	version := NoVersion
	if found {
		if err := a.mayWrite(live); err != nil {
			return live, false, err
		}
		owned, err := Owned(live, a.Manager)
		if err != nil {
			return live, false, err
		}
		if same(owned, want) {
			return live, false, nil
		}
		want.SetUID(live.GetUID())
		version = live.GetResourceVersion()
	}
	want.SetResourceVersion(version)
	now, err = send(ctx, a, want)
	return now, err == nil, err
}

// mayWrite is nil for a live object that is the owner's, or may become so.
func (a Applier) mayWrite(live client.Object) error {
	if live.GetDeletionTimestamp() != nil {
		return &DeletingError{Object: describe(a.Client, live)}
	}
	controller := metav1.GetControllerOf(live)
	switch {
	case controller == nil && a.Adopt != nil && a.Adopt(live):
		return nil
	case controller == nil:
		return &NotOursError{Object: describe(a.Client, live)}
	case controller.UID != a.Owner.UID:
		return &NotOursError{Object: describe(a.Client, live), Controller: controller.Kind + " " + controller.Name}
	}
	return nil
}

// same compares by meaning: quantities by value, nil and empty alike.
func same(owned, want client.Object) bool {
	want = want.DeepCopyObject().(client.Object)
	want.GetObjectKind().SetGroupVersionKind(owned.GetObjectKind().GroupVersionKind())
	return equality.Semantic.DeepEqual(owned, want)
}
