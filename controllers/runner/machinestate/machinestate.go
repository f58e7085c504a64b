// Package machinestate reads the MachineStates of the objects that machines drive, and
// lays them over the status of these objects.
//
// The state is the truth. status.machine of the object is a view of it, which exists only
// where the CRD of the object keeps it. It is used where the state cannot be read, and
// then a note says so. The package writes nothing, and knows no machine.
package machinestate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources/apierrors"
	"github.com/phasegate/phasegate/resources/pager"
)

// page is how many states one list call answers.
const page = 500

// Object is an object with a status that a state is laid over.
type Object interface {
	MachineStatus() *v1alpha1.MachineStatus
}

// StatusSaver is an object whose own status has fields that must outlive a crash. They
// are stored with the state, and what the status says of them is a view.
type StatusSaver interface {
	// SavedStatus is a text of these fields; empty where none is set.
	SavedStatus() (string, error)
	// SetSavedStatus clears them and sets those of the text.
	SetSavedStatus(text string) error
}

// States are states of one machine, by the UID of their objects.
type States struct {
	byUID map[types.UID]*v1alpha1.MachineState
	// unread is why they could not be read; empty if they could.
	unread string
}

// New makes States of what was read otherwise, by a watch say. unread is why it could not
// be read; empty if it could.
func New(all []*v1alpha1.MachineState, unread string) *States {
	s := &States{byUID: map[types.UID]*v1alpha1.MachineState{}, unread: unread}
	for _, state := range all {
		s.byUID[state.Spec.Object.UID] = state
	}
	return s
}

// Get reads the state of one object in one request. A state that cannot be read since it
// is not there, or has no CRD, or is forbidden is no error.
func Get(ctx context.Context, c client.Reader, machine string, uid types.UID) (*States, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MachineState"))
	name := v1alpha1.MachineStateName(machine, uid)
	err := c.Get(ctx, types.NamespacedName{Name: name}, u)
	if apierrors.ObjectNotFound(err) {
		return New(nil, ""), nil
	}
	if why, err := unread(ctx, c, err); why != "" || err != nil {
		return New(nil, why), err
	}
	state, err := parse(u)
	if err != nil {
		return nil, err
	}
	return New([]*v1alpha1.MachineState{state}, ""), nil
}

// List reads the states of all objects of a machine. The error is one that Get has, too.
func List(ctx context.Context, c client.Reader, machine string) (*States, error) {
	var all []*v1alpha1.MachineState
	for state, err := range Each(ctx, c, machine) {
		if why, err := unread(ctx, c, err); why != "" || err != nil {
			return New(nil, why), err
		}
		all = append(all, state)
	}
	return New(all, ""), nil
}

// Each reads the states of all objects of a machine, page by page, until an error.
func Each(ctx context.Context, c client.Reader, machine string) iter.Seq2[*v1alpha1.MachineState, error] {
	return func(yield func(*v1alpha1.MachineState, error) bool) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MachineStateList"))
		enough := errors.New("the caller has ended the list")
		err := pager.Each(ctx, c, list, func() error {
			for i := range list.Items {
				state, err := parse(&list.Items[i])
				if err != nil {
					return err
				}
				if !yield(state, nil) {
					return enough
				}
			}
			return nil
		}, client.MatchingLabels{v1alpha1.MachineLabel: machine}, client.Limit(page))
		if err != nil && !errors.Is(err, enough) {
			yield(nil, fmt.Errorf("read the states of machine %s: %w", machine, err))
		}
	}
}

// unread says in a clause why no state can be read, where one can do without: the account may not, or the cluster does not
// have the CRD. Any other error stays one.
func unread(ctx context.Context, c client.Reader, err error) (why string, other error) {
	if err != nil && pager.UnlessAbsent(ctx, c, v1alpha1.MachineStateCRD, err) == nil || apierrs.IsForbidden(err) {
		return Unread(err), nil
	}
	return "", err
}

// Unread says in a clause what a person lacks to read states: a right, or the kind. It is empty for any other error.
func Unread(err error) string {
	switch {
	case apierrs.IsForbidden(err):
		return "you may not read machinestates.phasegate.dev"
	case meta.IsNoMatchError(err), apierrs.IsNotFound(err):
		return "the CRD " + v1alpha1.MachineStateCRD + " is not installed"
	}
	return ""
}

func parse(u *unstructured.Unstructured) (*v1alpha1.MachineState, error) {
	state := &v1alpha1.MachineState{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, state); err != nil {
		return nil, fmt.Errorf("read MachineState %s: %w", u.GetName(), err)
	}
	return state, nil
}

// Of is the state of an object; nil where none was read.
func (s *States) Of(uid types.UID) *v1alpha1.MachineState { return s.byUID[uid] }

// Unread is why the states could not be read; empty if they could.
func (s *States) Unread() string { return s.unread }

// Over lays the state of an object over its status. The note is empty, or says that the
// status is a view that may be stale, since there is no state to be read. An object that
// no machine has touched needs none. The error is that of Overlay.
func (s *States) Over(o Object, uid types.UID) (note string, err error) {
	if state := s.Of(uid); state != nil {
		return "", Overlay(o, state)
	}
	switch {
	case s.unread != "":
		return s.unread + ": this is from the status of the object, which may be old, forged or incomplete", nil
	case o.MachineStatus().Phase != "":
		return "it has no MachineState: this is from the status of the object; a manager recovers the state, or stops with reason StateLost", nil
	}
	return "", nil
}

// Overlay lays a state over the status of its object. Fields that the state does not have
// are cleared, since others can write the status, but for what MachineStatus.KeepShown keeps. The error says that the saved
// status cannot be read.
func Overlay(o Object, state *v1alpha1.MachineState) error {
	st := o.MachineStatus()
	view := *st
	state.Status.MachineStatus.DeepCopyInto(st)
	st.KeepShown(&view)
	if saved, ok := o.(StatusSaver); ok {
		return saved.SetSavedStatus(string(state.Status.Saved[v1alpha1.SavedStatus]))
	}
	return nil
}

// Orphans are the states whose object is not among those with these UIDs, in the order of
// their names. Read the states before the objects: else the state of a new object is one.
func (s *States) Orphans(objects map[types.UID]bool) []*v1alpha1.MachineState {
	var orphans []*v1alpha1.MachineState
	for _, uid := range slices.Sorted(maps.Keys(s.byUID)) {
		if !objects[uid] {
			orphans = append(orphans, s.byUID[uid])
		}
	}
	return orphans
}
