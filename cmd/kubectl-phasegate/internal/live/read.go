// Package live reads the objects that machines drive from an API server, and asks
// for one-shot requests the way a person would: by an annotation.
//
// Where a machine stands is read from the MachineState of the object, else from its
// status. It works for any kind, as unstructured data. It never writes a status, and does
// not know what a machine does beyond what fsm.Machine tells.
package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/pager"
)

const page = 500

// Object is an object of any kind, and where its machine stands.
type Object struct {
	Kind schema.GroupVersionKind
	// Namespace is empty for kinds that have none.
	Namespace string
	Name      string
	UID       types.UID
	Deleting  bool
	// Gone says that the object does not exist any more: what its state holds is being
	// released. There is nothing but its name, its UID and Machine then.
	Gone bool
	// Machine is zero where no machine has touched the object yet.
	Machine v1alpha1.MachineStatus
	// Message and Conditions are those of the status of the object, as ShownPhase is, which
	// is what there is where neither a state nor status.machine can be read.
	Message    string
	Conditions []metav1.Condition
	ShownPhase string
	// Manager is the namespace and the name of the lease of the manager that drives it; empty
	// where that is not known.
	Manager string
	// Note says why Machine is from the status of the object, which may be old; empty where
	// it is from the MachineState.
	Note string
	// Stale is filled by LookForManager; nil where the status is not known to be old.
	Stale *Stale
	// Content is the object as it was read. Saved is what its state has of the fields of its
	// own status; nil where there is no state.
	Content map[string]any
	Saved   *string
}

// MachineStatus returns the object's own memory.
func (o *Object) MachineStatus() *v1alpha1.MachineStatus { return &o.Machine }

// PhaseIn is the phase of a machine that the object is in: the one of its state, else that
// which its status shows.
func (o *Object) PhaseIn(m *fsm.Machine) string {
	return cmp.Or(o.Machine.Phase, m.PhaseShown(o.ShownPhase))
}

// MessageIn is Message without the phase of the machine, with which it begins where status.phase shows another.
func (o *Object) MessageIn(m *fsm.Machine) string {
	return strings.TrimPrefix(o.Message, cmp.Or(m.PhaseInfo(o.PhaseIn(m)).Shown, o.PhaseIn(m))+": ")
}

// Migration reads an object that is one, with its state laid over the status. Fields that this
// program does not know are left out: the controller may be newer.
func (o *Object) Migration() (*migrationv1.DatastoreMigration, error) {
	dm := &migrationv1.DatastoreMigration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Content, dm); err != nil {
		return nil, fmt.Errorf("read %s %s: %w: use kubectl-phasegate of the manager's version", o.Kind.Kind, o.Name, err)
	}
	o.Machine.DeepCopyInto(&dm.Status.Machine)
	if o.Saved == nil {
		return dm, nil
	}
	return dm, dm.SetSavedStatus(*o.Saved)
}

// String is namespace/name, or the name alone.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// List reads all objects of a machine; those of one namespace, or of all if it is empty.
// Objects that are gone, and whose state is still there, come last.
func List(ctx context.Context, c client.Client, m *fsm.Machine, namespace string) ([]Object, error) {
	states, err := machinestate.List(ctx, c, m.Name())
	if err != nil {
		return nil, err
	}
	objects, err := All(ctx, c, kindOf(m), client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	var all []Object
	seen := map[types.UID]bool{}
	for i := range objects {
		o, err := NewObject(&objects[i], states)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
		seen[o.UID] = true
	}
	return append(all, gone(states.Orphans(seen), namespace)...), nil
}

// All reads the objects of a kind, page by page: all that there are, or it is an error.
func All(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, opts ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	var all []unstructured.Unstructured
	err := pager.Each(ctx, c, list, func() error {
		all = append(all, list.Items...)
		return nil
	}, append(opts, client.Limit(page))...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func gone(orphans []*v1alpha1.MachineState, namespace string) (all []Object) {
	for _, s := range orphans {
		if of := s.Spec.Object; namespace == "" || of.Namespace == namespace {
			all = append(all, Object{
				Kind: schema.FromAPIVersionAndKind(of.APIVersion, of.Kind), Namespace: of.Namespace, Name: of.Name, UID: of.UID,
				Gone: true, Machine: s.Status.MachineStatus, Manager: s.Status.Manager,
			})
		}
	}
	return all
}

// Get reads one object of a machine, and its state. The namespace does not matter for
// kinds that have none. The object is first: a state that is newer than it is the truth all the same.
func Get(ctx context.Context, c client.Client, m *fsm.Machine, key types.NamespacedName) (Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindOf(m))
	if err := c.Get(ctx, key, u); err != nil {
		return Object{}, fmt.Errorf("get %s %s: %w", m.For().Kind, key.Name, err)
	}
	states, err := machinestate.Get(ctx, c, m.Name(), u.GetUID())
	if err != nil {
		return Object{}, err
	}
	return NewObject(u, states)
}

func kindOf(m *fsm.Machine) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(m.For().APIVersion, m.For().Kind)
}

// NewObject lays the state of an object over its status.
func NewObject(u *unstructured.Unstructured, states *machinestate.States) (Object, error) {
	o := Object{
		Kind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(),
		Deleting: u.GetDeletionTimestamp() != nil, Content: u.Object,
	}
	o.ShownPhase, _, _ = unstructured.NestedString(u.Object, "status", "phase")
	o.Message, _, _ = unstructured.NestedString(u.Object, "status", "message")
	o.Conditions = conditionsOf(u)
	block, _, err := unstructured.NestedMap(u.Object, "status", "machine")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(block, &o.Machine)
	}
	state := states.Of(o.UID)
	if err != nil && state == nil { // else nothing depends on it
		return Object{}, fmt.Errorf("read status.machine of %s %s: %w", o.Kind.Kind, o.Name, err)
	}
	if state != nil {
		o.Manager, o.Saved = state.Status.Manager, new(string(state.Status.Saved[v1alpha1.SavedStatus]))
	}
	o.Note, err = states.Over(&o, o.UID)
	return o, err
}

// conditionsOf are those that can be read: a CRD may let others write what is none.
func conditionsOf(u *unstructured.Unstructured) (all []metav1.Condition) {
	items, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range items {
		c := metav1.Condition{}
		fields, ok := item.(map[string]any)
		if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// Left are the states of objects of this name that are gone.
func Left(ctx context.Context, c client.Client, m *fsm.Machine, key types.NamespacedName) ([]Object, error) {
	states, err := machinestate.List(ctx, c, m.Name())
	if err != nil {
		return nil, err
	}
	seen := map[types.UID]bool{}
	switch o, err := Get(ctx, c, m, key); {
	case err == nil:
		seen[o.UID] = true
	case !apierrs.IsNotFound(err) && !meta.IsNoMatchError(err):
		return nil, err
	}
	all := gone(states.Orphans(seen), key.Namespace)
	return slices.DeleteFunc(all, func(o Object) bool { return o.Name != key.Name }), nil
}
