package apply

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NotOursError says that a name is taken by an object of somebody else.
type NotOursError struct {
	// Object is its kind, namespace and name.
	Object string
	// Controller is the kind and name of its controller; empty if it has none.
	Controller string
}

func (e *NotOursError) Error() string {
	owner := "nobody, so that nothing says who needs it"
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
