// Package live reads the objects that machines drive from an API server, and asks
// for one-shot requests the way a person would: by an annotation.
//
// Where a machine stands is read from the MachineState of the object, else from its
// status. It works for any kind, as unstructured data. It never writes a status, and does
// not know what a machine does beyond what fsm.Machine tells.
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
	"github.com/phasegate/phasegate/controllers/machinestate"
	"github.com/phasegate/phasegate/fsm"
)

// page is how many objects one list call answers.
const page = 500

// Object is an object, and where its machine stands.
type Object struct {
	// Namespace is empty for kinds that have none.
	Namespace string
	Name      string
	Deleting  bool
	// Gone says that the object does not exist any more: what its state holds is being
	// given back.
	Gone bool
	// Machine is zero where no machine has touched the object yet.
	Machine v1alpha1.MachineStatus
	// Note says why Machine is from the status of the object, which may be old; empty where
	// it is from the MachineState.
	Note string
}

// MachineStatus returns the object's own memory.
func (o *Object) MachineStatus() *v1alpha1.MachineStatus { return &o.Machine }

// String is namespace/name, or the name alone.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Get reads one object of a machine, and its state. The namespace does not matter for
// kinds that have none.
func Get(ctx context.Context, c client.Client, m *fsm.Machine, key types.NamespacedName) (Object, error) {
	_, o, err := get(ctx, c, m, key)
	return o, err
}

// List reads all objects of a machine; those of one namespace, or of all if it is empty.
// Objects that are gone, and whose state is still there, come last.
func List(ctx context.Context, c client.Client, m *fsm.Machine, namespace string) ([]Object, error) {
	states, err := machinestate.List(ctx, c, m.Name())
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kindOf(m))
	var all []Object
	seen := map[types.UID]bool{}
	for {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(page), client.Continue(list.GetContinue())); err != nil {
			return nil, fmt.Errorf("list %s: %w", m.For().Kind, err)
		}
		for i := range list.Items {
			o, err := objectOf(&list.Items[i], states)
			if err != nil {
				return nil, err
			}
			all = append(all, o)
			seen[list.Items[i].GetUID()] = true
		}
		if list.GetContinue() == "" {
			return append(all, gone(states.Orphans(seen), namespace)...), nil
		}
	}
}

func gone(orphans []*v1alpha1.MachineState, namespace string) (all []Object) {
	for _, s := range orphans {
		if of := s.Spec.Object; namespace == "" || of.Namespace == namespace {
			all = append(all, Object{Namespace: of.Namespace, Name: of.Name, Gone: true, Machine: s.Status.MachineStatus})
		}
	}
	return all
}

// get reads the object first: a state that is newer than it is the truth all the same.
func get(ctx context.Context, c client.Client, m *fsm.Machine, key types.NamespacedName) (*unstructured.Unstructured, Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindOf(m))
	if err := c.Get(ctx, key, u); err != nil {
		return nil, Object{}, fmt.Errorf("get %s %s: %w", m.For().Kind, key.Name, err)
	}
	states, err := machinestate.Get(ctx, c, m.Name(), u.GetUID())
	if err != nil {
		return nil, Object{}, err
	}
	o, err := objectOf(u, states)
	return u, o, err
}

func kindOf(m *fsm.Machine) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(m.For().APIVersion, m.For().Kind)
}

func objectOf(u *unstructured.Unstructured, states *machinestate.States) (Object, error) {
	o := Object{Namespace: u.GetNamespace(), Name: u.GetName(), Deleting: u.GetDeletionTimestamp() != nil}
	block, _, err := unstructured.NestedMap(u.Object, "status", "machine")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(block, &o.Machine)
	}
	if err != nil && states.Of(u.GetUID()) == nil { // else nothing depends on it
		return Object{}, fmt.Errorf("read status.machine of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	o.Note, err = states.Over(&o, u.GetUID())
	return o, err
}
