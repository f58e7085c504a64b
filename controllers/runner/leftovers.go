package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

const (
	// heldAgain is how soon what is left is looked at again where the machine does not say.
	heldAgain = 5 * time.Second
)

// releaseOrphans releases what objects of a name have left that are gone, step by step, and then deletes their states. A state
// that says it is of the object with this UID is not looked at; empty: there is none.
func (r *Reconciler[T]) releaseOrphans(ctx context.Context, machine *fsm.Machine, key types.NamespacedName, alive types.UID) (result reconcile.Result, found bool, err error) {
	if r.States == nil {
		return reconcile.Result{}, false, nil
	}
	var failures []error
	for _, name := range r.States(key) {
		if name == v1alpha1.MachineStateName(machine.Name(), alive) {
			continue
		}
		found = true
		after, err := r.releaseOrphan(ctx, machine, key, name)
		result.RequeueAfter = sooner(result.RequeueAfter, after)
		failures = append(failures, err)
	}
	return result, found, errors.Join(failures...)
}

// sooner is the shorter of two times to wait, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (r *Reconciler[T]) releaseOrphan(ctx context.Context, machine *fsm.Machine, key types.NamespacedName, name string) (after time.Duration, err error) {
	state := &v1alpha1.MachineState{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, state); err != nil {
		if !apierrors.ObjectNotFound(err) {
			return 0, fmt.Errorf("read the state: %w", err)
		}
		return 0, nil
	}
	exists, err := r.exists(ctx, state)
	switch {
	case err != nil:
		return 0, err
	case exists: // it has come back, or two answers differ
		return heldAgain, nil
	case len(state.Status.Held) > 0:
		return r.releaseOf(ctx, machine, key, state)
	}
	r.Metrics.leftovers.remove(machine.Name(), name)
	return 0, dropState(ctx, r.Client, state)
}

// releaseOf makes a pass in the name of an object that is gone.
func (r *Reconciler[T]) releaseOf(ctx context.Context, machine *fsm.Machine, key types.NamespacedName, state *v1alpha1.MachineState) (after time.Duration, err error) {
	ctx = named(ctx, machine, state)
	if r.Metrics.leftovers.add(machine.Name(), state.Name) {
		of := state.Spec.Object
		log.FromContext(ctx).Info("an object is gone although something is held: it is released", "kind", of.Kind, "namespace", of.Namespace, "name", of.Name, "uid", of.UID, "held", state.Status.HeldNames())
		tell(r.Recorder, state, corev1.EventTypeWarning, "ObjectGone", "GiveBack",
			fmt.Sprintf("%s %s is gone although %v is held: it is released", of.Kind, nameOf(of), state.Status.HeldNames()))
	}
	obj := synthetic(r.Program.New, state, metav1.NewTime(r.Clock.Now()))
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(state.Spec.Object.APIVersion, state.Spec.Object.Kind))
	p := &pass[T]{by: r, key: key, machine: machine, gone: true}
	result, err := r.advance(ctx, p, obj, state)
	if err == nil && len(p.state.Status.Held) == 0 {
		tell(r.Recorder, state, corev1.EventTypeNormal, "GivenBack", "GiveBack",
			fmt.Sprintf("what %s %s had left is released", state.Spec.Object.Kind, nameOf(state.Spec.Object)))
		r.Metrics.leftovers.remove(machine.Name(), state.Name)
		r.due.drop(client.ObjectKeyFromObject(obj))
		err = dropState(ctx, r.Client, p.state)
	}
	if err == nil && result.RequeueAfter == 0 && len(p.state.Status.Held) > 0 {
		result.RequeueAfter = heldAgain
	}
	return result.RequeueAfter, err
}

func nameOf(of v1alpha1.ObjectReference) string {
	return types.NamespacedName{Namespace: of.Namespace, Name: of.Name}.String()
}

// exists tells whether the very object of a state is there. That it is not is believed only of two answers. That the API
// server does not serve the kind is believed only where its CRD is gone, too: it may be starting.
func (r *Reconciler[T]) exists(ctx context.Context, state *v1alpha1.MachineState) (bool, error) {
	obj, of := r.Program.New(), state.Spec.Object
	key, uid := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, types.UID("")
	err := r.Client.Get(ctx, key, obj)
	if apierrors.ObjectNotFound(err) {
		uid, err = listed(ctx, r.Client, schema.FromAPIVersionAndKind(of.APIVersion, of.Kind), key)
		obj.SetUID(uid)
	}
	switch {
	case err == nil:
		return obj.GetUID() == of.UID, nil
	case !apierrors.NotServed(err), r.Installed == nil:
		return false, fmt.Errorf("look for the object of MachineState %s: %w", state.Name, err)
	}
	installed, asking := r.Installed(ctx)
	if asking != nil || installed {
		return false, fmt.Errorf("look for the object of MachineState %s: %w", state.Name, errors.Join(err, asking))
	}
	return false, nil
}
