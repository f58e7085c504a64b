package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// statusTries are few: the queue comes again, and nothing of a pass is done in the name of a status that is
// not stored.
var statusTries = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}

// noStates says that there is no place to store a state in, or none to read it from.
func noStates(err error) error {
	return fmt.Errorf("the API server does not serve CRD %s; if it is not installed, apply the one in charts/phasegate/files/crds, or helm upgrade with crds.install=auto: %w", v1alpha1.MachineStateCRD, err)
}

// stateOf is readState for an object that the machine may have begun. That its state is lost is believed only of two
// answers: what such an object holds would have to be released by hand.
func (r *Reconciler[T]) stateOf(ctx context.Context, machine *fsm.Machine, obj T) (*v1alpha1.MachineState, error) {
	state, err := readState(ctx, r.Client, machine.Name(), obj.GetUID())
	if state != nil || err != nil || !controllerutil.ContainsFinalizer(obj, machine.Finalizer()) {
		return state, err
	}
	name := v1alpha1.MachineStateName(machine.Name(), obj.GetUID())
	switch uid, err := listed(ctx, r.Client, v1alpha1.GroupVersion.WithKind("MachineState"), types.NamespacedName{Name: name}); {
	case apierrors.NotServed(err):
		return nil, noStates(err)
	case err != nil:
		return nil, err
	case uid != "":
		return nil, fmt.Errorf("the API server lists MachineState %s, and does not find it: it is read again", name)
	}
	return nil, nil
}

// readState answers the state of an object, or nil where there is none.
func readState(ctx context.Context, c client.Client, machine string, uid types.UID) (*v1alpha1.MachineState, error) {
	state := &v1alpha1.MachineState{}
	err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.MachineStateName(machine, uid)}, state)
	switch {
	case err == nil:
		return state, nil
	case apierrors.ObjectNotFound(err):
		return nil, nil
	case apierrors.NotServed(err):
		return nil, noStates(err)
	}
	return nil, fmt.Errorf("read the state of the object: %w", err)
}

// specOf says of which object a state is.
func specOf(machine string, kind v1alpha1.ObjectKind, obj client.Object) v1alpha1.MachineStateSpec {
	return v1alpha1.MachineStateSpec{Machine: machine, Object: v1alpha1.ObjectReference{
		APIVersion: kind.APIVersion, Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}}
}

// newState is the state of an object of which nothing is stored yet.
func newState(spec v1alpha1.MachineStateSpec) *v1alpha1.MachineState {
	state := &v1alpha1.MachineState{Spec: spec}
	state.Name = v1alpha1.MachineStateName(spec.Machine, spec.Object.UID)
	state.Labels = map[string]string{v1alpha1.MachineLabel: spec.Machine}
	state.Annotations = map[string]string{v1alpha1.ObjectAnnotation: spec.Object.Namespace + "/" + spec.Object.Name}
	return state
}

// showState puts the truth into an object as it was read: its status may be old, pruned
// by its CRD, or written by somebody who may write statuses.
func showState[T Object[T]](obj T, state *v1alpha1.MachineState) error {
	*obj.MachineStatus() = v1alpha1.MachineStatus{}
	text := ""
	if state != nil {
		state.Status.MachineStatus.DeepCopyInto(obj.MachineStatus())
		text = string(state.Status.Saved[v1alpha1.SavedStatus])
	}
	if saver, saves := any(obj).(machinestate.StatusSaver); saves {
		return saver.SetSavedStatus(text)
	}
	return nil
}

// selfOf is an object as expressions see it, as data.
func selfOf[T Object[T]](obj T, state *v1alpha1.MachineState) (map[string]any, error) {
	whole := deepCopy(obj)
	if err := showState(whole, state); err != nil {
		return nil, err
	}
	withoutFields(whole)
	return runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
}

// durable is what of a machine's status must outlive a crash.
func durable(st *v1alpha1.MachineStatus) v1alpha1.MachineStatus {
	kept := *st
	kept.Blocked, kept.OnDelete = nil, nil
	return kept
}

// sameState tells whether a state need not be written. Results that the next pass finds anew
// are not worth a write.
func sameState(machine *fsm.Machine, stored *v1alpha1.MachineStateStatus, next *v1alpha1.MachineStatus, saved map[string]v1alpha1.SavedText) bool {
	a, b := durable(&stored.MachineStatus), durable(next)
	if a.Result != b.Result && a.Phase == b.Phase && a.StepIndex == b.StepIndex {
		a.Result, b.Result = machine.LastingResult(&a), machine.LastingResult(&b)
	}
	return reflect.DeepEqual(a, b) && maps.Equal(stored.Saved, saved)
}

// nextStateLocked is what is to be stored of this pass; nil where the machine has not begun, or
// nothing has changed.
func (p *pass[T]) nextStateLocked() (*v1alpha1.MachineState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st, saved := p.work.MachineStatus(), p.saved
	if saver, saves := any(p.work).(machinestate.StatusSaver); saves {
		text, err := saver.SavedStatus()
		if err != nil {
			return nil, fmt.Errorf("store the status of %s: %w", p.stored.GetName(), err)
		}
		if string(saved[v1alpha1.SavedStatus]) != text {
			saved = withText(saved, v1alpha1.SavedStatus, text)
		}
	}
	finalizer := p.finalizerLocked()
	if st.Phase == "" || p.state != nil && p.state.Status.Finalizer == finalizer && sameState(p.machine, &p.state.Status, st, saved) {
		return nil, nil
	}
	next := p.state.DeepCopy()
	if next == nil {
		next = newState(p.spec)
	}
	kept := durable(st)
	next.Status = v1alpha1.MachineStateStatus{MachineStatus: *kept.DeepCopy(), Manager: next.Status.Manager, Finalizer: finalizer, Saved: saved}
	p.claimState(next)
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.HeldFinalizer })
	if len(next.Status.Held) > 0 {
		next.Finalizers = append(next.Finalizers, v1alpha1.HeldFinalizer)
	}
	return next, nil
}

// withText sets an entry, or removes it where the text is empty.
func withText(all map[string]v1alpha1.SavedText, name, text string) map[string]v1alpha1.SavedText {
	all = maps.Clone(all)
	if text == "" {
		delete(all, name)
	} else {
		if all == nil {
			all = map[string]v1alpha1.SavedText{}
		}
		all[name] = v1alpha1.SavedText(text)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// storeLocked makes the run's state durable: a compare-and-swap of the state of the object,
// which is the truth. Nothing is sent when nothing changed.
func (p *pass[T]) storeLocked(ctx context.Context) error {
	next, err := p.nextStateLocked()
	if err != nil || next == nil {
		return err
	}
	return p.storeState(ctx, next)
}

func (p *pass[T]) storeState(ctx context.Context, next *v1alpha1.MachineState) error {
	if err := p.writeWithRetry(ctx, next); err != nil {
		return err
	}
	if p.state.DeletionTimestamp != nil && len(p.state.Finalizers) == 0 {
		// Somebody has deleted it, and nothing holds it any more: the object is still
		// driven, so it is made anew.
		p.state = nil
		fresh := newState(p.spec)
		fresh.Status, fresh.Finalizers = next.Status, next.Finalizers
		if err := p.writeWithRetry(ctx, fresh); err != nil {
			return err
		}
	}
	p.saved = p.state.Status.Saved
	return p.kept(next)
}

// kept is an error when the API server has dropped a part of what was sent: the next pass
// would not know of it, so nothing may be done in its name.
func (p *pass[T]) kept(sent *v1alpha1.MachineState) error {
	if equalAsJSON(sent.Status, p.state.Status) {
		return nil
	}
	return fmt.Errorf("the API server does not keep MachineState %s as it was sent: its CRD %s is of another version: apply the one of this version, charts/phasegate/files/crds",
		sent.Name, v1alpha1.MachineStateCRD)
}

func equalAsJSON(a, b any) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

// writeWithRetry sends the state until it is known whether it is stored. To leave that to the next
// pass would do the step again, which under a lock is time that the cluster waits. The
// error of a write by another manager is errMoved.
func (p *pass[T]) writeWithRetry(ctx context.Context, next *v1alpha1.MachineState) error {
	var failure error
	err := wait.ExponentialBackoffWithContext(ctx, statusTries, func(ctx context.Context) (bool, error) {
		if failure = p.sendState(ctx, next); failure == nil {
			return true, nil
		}
		if !apierrs.IsConflict(failure) && !apierrs.IsAlreadyExists(failure) && !apierrors.Retryable(apierrors.Classify(failure)) {
			return false, failure
		}
		return p.stateIsStored(ctx, next)
	})
	if wait.Interrupted(err) && failure != nil {
		err = failure
	}
	if apierrors.NotServed(err) {
		return noStates(fmt.Errorf("store MachineState %s: %w", next.Name, err))
	}
	return err
}

func (p *pass[T]) sendState(ctx context.Context, next *v1alpha1.MachineState) error {
	if p.state == nil {
		created := next.DeepCopy()
		if err := p.by.Client.Create(ctx, created); err != nil {
			return err
		}
		p.state = created
		return nil
	}
	written := p.state.DeepCopy()
	err := patch.MutateAndSwap(ctx, p.by.Client, written, func(state *v1alpha1.MachineState) {
		state.Finalizers, state.Status = next.Finalizers, *next.Status.DeepCopy()
	})
	if err != nil {
		return err
	}
	p.state = written
	return nil
}

// stateIsStored looks for what became of a state whose answer was lost or a refusal.
func (p *pass[T]) stateIsStored(ctx context.Context, next *v1alpha1.MachineState) (bool, error) {
	live, err := readState(ctx, p.by.Client, p.spec.Machine, p.spec.Object.UID)
	switch {
	case err != nil && apierrors.Retryable(apierrors.Classify(err)):
		return false, nil
	case err != nil:
		return false, err
	case live == nil && p.state == nil, live != nil && p.state != nil && live.ResourceVersion == p.state.ResourceVersion:
		return false, nil // nothing has become of it
	case live == nil || !equalAsJSON(live.Status, next.Status) || !slices.Equal(live.Finalizers, next.Finalizers):
		return false, errMoved
	}
	p.state = live
	return true, nil
}

// dropState deletes the state of an object that is not driven any more. One that holds
// something stays, by its finalizer.
func dropState(ctx context.Context, c client.Client, state *v1alpha1.MachineState) error {
	if state == nil {
		return nil
	}
	err := c.Delete(ctx, state, client.Preconditions{UID: &state.UID, ResourceVersion: &state.ResourceVersion})
	if err != nil && !apierrors.ObjectNotFound(err) {
		return fmt.Errorf("delete MachineState %s, whose object is gone: %w", state.Name, err)
	}
	return nil
}

// synthetic is the object of a state, as far as that tells: it does not exist any more.
func synthetic[T Object[T]](empty func() T, state *v1alpha1.MachineState, at metav1.Time) T {
	obj, of := empty(), state.Spec.Object
	obj.SetNamespace(of.Namespace)
	obj.SetName(of.Name)
	obj.SetUID(of.UID)
	obj.SetGeneration(max(state.Status.Generation, 1))
	obj.SetCreationTimestamp(state.CreationTimestamp)
	obj.SetDeletionTimestamp(&at)
	return obj
}

// claimState says in a state that is about to be written whose it is.
func (p *pass[T]) claimState(next *v1alpha1.MachineState) {
	next.Status.Manager = cmp.Or(p.by.Manager, next.Status.Manager)
}
