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
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
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
	var noted []change
	if !found {
		keepOthers(nil, nil, want)
	} else {
		if err := a.mayWrite(live); err != nil {
			return live, false, err
		}
		owned, before, err := ownedOf(live, a.Manager)
		if err != nil {
			return live, false, err
		}
		noted = before
		keepOthers(live, owned, want)
		want.GetObjectKind().SetGroupVersionKind(owned.GetObjectKind().GroupVersionKind())
		if equality.Semantic.DeepEqual(owned, want) { // by meaning: quantities by value, nil and empty alike
			return live, false, nil
		}
		want.SetUID(live.GetUID())
		version = live.GetResourceVersion()
	}
	want.SetResourceVersion(version)
	now, err = write(ctx, a, want, noted)
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
	case controller == nil || controller.UID != a.Owner.UID:
		return NotOurs(describe(a.Client, live), live)
	}
	return nil
}

// send applies want, by force, and answers what the object is now.
func send[T client.Object](ctx context.Context, a Applier, want T) (now T, err error) {
	body, err := bodyOf(a.Client, want)
	if err != nil {
		return now, err
	}
	err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.FieldOwner(a.Manager), client.ForceOwnership)
	if err != nil {
		return now, fmt.Errorf("apply %s: %w", describe(a.Client, want), err)
	}
	return typedLike(want, body.Object)
}

// bodyOf is obj as it is sent: what a Go type cannot leave out is left out.
func bodyOf(c client.Client, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(c, obj), err)
	}
	delete(fields, "status")
	dropNulls(fields)
	body := &unstructured.Unstructured{Object: fields}
	body.SetGroupVersionKind(gvk)
	return body, nil
}

// dropNulls removes null fields: an apply would own them.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner == nil {
				delete(v, key)
			}
			dropNulls(inner)
		}
	case []any:
		for _, inner := range v {
			dropNulls(inner)
		}
	}
}

// typedLike decodes fields into a new object of the type that sample has.
func typedLike[T client.Object](sample T, fields map[string]any) (T, error) {
	obj := reflect.New(reflect.TypeOf(sample).Elem()).Interface().(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj); err != nil {
		return obj, fmt.Errorf("decode %T: %w", obj, err)
	}
	return obj, nil
}

// NotOursError says that a name is taken by an object of somebody else.
type NotOursError struct {
	// Object is its kind, namespace and name.
	Object string
	// Controller is the kind and name of its controller; empty if it has none.
	Controller string
}

// NotOurs tells whose live is, which object names.
func NotOurs(object string, live metav1.Object) *NotOursError {
	if controller := metav1.GetControllerOf(live); controller != nil {
		return &NotOursError{Object: object, Controller: controller.Kind + " " + controller.Name}
	}
	return &NotOursError{Object: object}
}

func (e *NotOursError) Error() string {
	owner := "no owner, so that nothing says what needs it"
	if e.Controller != "" {
		owner = e.Controller
	}
	return fmt.Sprintf("%s belongs to %s: delete or rename it, or choose another name", e.Object, owner)
}

// DeletingError says that an object of the name is on its way out.
type DeletingError struct {
	// Object is its kind, namespace and name.
	Object string
}

func (e *DeletingError) Error() string {
	return fmt.Sprintf("%s is being deleted: it is made again when it is gone", e.Object)
}

// describe is the kind, namespace and name of an object.
func describe(c client.Client, obj client.Object) string {
	kind := fmt.Sprintf("%T", obj)
	if gvk, err := c.GroupVersionKindFor(obj); err == nil {
		kind = gvk.Kind
	}
	return kind + " " + client.ObjectKeyFromObject(obj).String()
}

// Owned is the part of live that manager has applied, as it was sent before admission changed it: what was applied and is
// not in it has been taken over by somebody else, with the value that is there now. It knows Deployments, StatefulSets,
// Services, ConfigMaps, ServiceAccounts, Roles and RoleBindings.
func Owned[T client.Object](live T, manager string) (T, error) {
	owned, _, err := ownedOf(live, manager)
	return owned, err
}

// ownedOf is Owned, and what is noted of it.
func ownedOf[T client.Object](live T, manager string) (owned T, noted []change, err error) {
	fields, noted, err := storedOf(live, manager)
	if err != nil {
		return owned, nil, err
	}
	for _, c := range noted {
		c.beforeAdmission(fields, c.Path)
	}
	owned, err = typedLike(live, fields)
	return owned, noted, err
}

// storedOf is what manager has applied as it is there now, and what is noted of it.
func storedOf(live client.Object, manager string) (fields map[string]any, noted []change, err error) {
	part, err := extract(live, manager)
	if err != nil {
		return nil, nil, fmt.Errorf("read what %s applied to %T %s: %w", manager, live, client.ObjectKeyFromObject(live), err)
	}
	fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return nil, nil, fmt.Errorf("encode what %s applied to %T %s: %w", manager, live, client.ObjectKeyFromObject(live), err)
	}
	return fields, takeNote(fields), nil
}

func extract(live client.Object, manager string) (any, error) {
	switch o := live.(type) {
	case *appsv1.Deployment:
		return appsapply.ExtractDeployment(o, manager)
	case *appsv1.StatefulSet:
		return appsapply.ExtractStatefulSet(o, manager)
	case *corev1.Service:
		return coreapply.ExtractService(o, manager)
	case *corev1.ConfigMap:
		return coreapply.ExtractConfigMap(o, manager)
	case *corev1.ServiceAccount:
		return coreapply.ExtractServiceAccount(o, manager)
	case *rbacv1.Role:
		return rbacapply.ExtractRole(o, manager)
	case *rbacv1.RoleBinding:
		return rbacapply.ExtractRoleBinding(o, manager)
	}
	return nil, fmt.Errorf("%T is not a kind that this package applies: add it to extract", live)
}
