// Package live reads the objects that machines drive from an API server, and asks
// for one-shot requests the way a person would: by an annotation.
//
// It works for any kind whose status has a machine block, as unstructured data.
// It never writes a status, and does not know what a machine does beyond what
// fsm.Machine tells.
package live

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// page is how many objects one list call answers.
const page = 500

// Object is what a machine left in the status of an object.
type Object struct {
	// Namespace is empty for kinds that have none.
	Namespace string
	Name      string
	Deleting  bool
	// Machine is zero where no machine has touched the object yet.
	Machine v1alpha1.MachineStatus
}

// String is namespace/name, or the name alone.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Get reads one object. The namespace does not matter for kinds that have none.
func Get(ctx context.Context, c client.Client, kind v1alpha1.ObjectKind, key types.NamespacedName) (Object, error) {
	u, err := get(ctx, c, kind, key)
	if err != nil {
		return Object{}, err
	}
	return objectOf(u)
}

// List reads all objects of a kind; those of one namespace, or of all if it is empty.
func List(ctx context.Context, c client.Client, kind v1alpha1.ObjectKind, namespace string) ([]Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kindOf(kind))
	var all []Object
	for {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(list.GetContinue())); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o, err := objectOf(&list.Items[i])
			if err != nil {
				return nil, err
			}
			all = append(all, o)
		}
		if list.GetContinue() == "" {
			return all, nil
		}
	}
}

func get(ctx context.Context, c client.Client, kind v1alpha1.ObjectKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindOf(kind))
	if err := c.Get(ctx, key, u); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, key.Name, err)
	}
	return u, nil
}

func kindOf(kind v1alpha1.ObjectKind) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
}

func objectOf(u *unstructured.Unstructured) (Object, error) {
	o := Object{Namespace: u.GetNamespace(), Name: u.GetName(), Deleting: u.GetDeletionTimestamp() != nil}
	block, _, err := unstructured.NestedMap(u.Object, "status", "machine")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(block, &o.Machine)
	}
	if err != nil {
		return Object{}, fmt.Errorf("read status.machine of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return o, nil
}
