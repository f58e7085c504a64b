package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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
	// heldAgain is how soon the object of a state that holds something is looked for again:
	// nothing tells that it is gone when its CRD is.
	heldAgain = 5 * time.Second
)

// ReconcileState makes one pass over a state. It does nothing while the object of the state
// exists; else it releases what is held, step by step, and then deletes the state.
func (r *Reconciler[T]) ReconcileState(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.around(ctx, req, r.passState)
}

func (r *Reconciler[T]) passState(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	state, machine := &v1alpha1.MachineState{}, r.Machine()
	if alive, held := r.alive(req.Name); alive {
		return laterFor(held), nil
	}
	if err := r.Client.Get(ctx, req.NamespacedName, state); err != nil {
		if !apierrors.ObjectNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read the state: %w", err)
		}
		r.Metrics.leftovers.remove(machine.Name(), req.Name)
		return reconcile.Result{}, nil
	}
	exists, err := r.exists(ctx, state)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.unserved.served() {
		log.FromContext(ctx).Info("the API server serves all kinds again")
	}
	if exists {
		return laterFor(len(state.Status.Held) > 0), nil
	}
	if !r.Busy.take(state.Spec.Object.UID) {
		return reconcile.Result{RequeueAfter: busyAgain}, nil
	}
	defer r.Busy.release(state.Spec.Object.UID)
	if len(state.Status.Held) == 0 {
		r.Metrics.leftovers.remove(machine.Name(), req.Name)
		return reconcile.Result{}, dropState(ctx, r.Client, state)
	}
	return r.giveBack(ctx, machine, state)
}

// alive tells of a state, without a request, that its object exists.
func (r *Reconciler[T]) alive(state string) (alive, held bool) {
	if r.Alive == nil {
		return false, false
	}
	return r.Alive(state)
}

// laterFor is for a state whose object exists. One that holds nothing is found by stateSource, if that changes.
func laterFor(held bool) reconcile.Result {
	if held {
		return reconcile.Result{RequeueAfter: heldAgain}
	}
	return reconcile.Result{}
}

// giveBack makes a pass in the name of an object that is gone.
func (r *Reconciler[T]) giveBack(ctx context.Context, machine *fsm.Machine, state *v1alpha1.MachineState) (reconcile.Result, error) {
	ctx = named(ctx, machine, state)
	if r.Metrics.leftovers.add(machine.Name(), state.Name) {
		of := state.Spec.Object
		log.FromContext(ctx).Info("an object is gone although something is held: it is released", "kind", of.Kind, "namespace", of.Namespace, "name", of.Name, "uid", of.UID, "held", state.Status.HeldNames())
		tell(r.Recorder, state, corev1.EventTypeWarning, "ObjectGone", "GiveBack",
			fmt.Sprintf("%s %s is gone although %v is held: it is released", of.Kind, nameOf(of), state.Status.HeldNames()))
	}
	obj := synthetic(r.Program.New, state, metav1.NewTime(r.Clock.Now()))
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(state.Spec.Object.APIVersion, state.Spec.Object.Kind))
	p := &pass[T]{by: r, key: types.NamespacedName{Name: state.Name}, machine: machine, gone: true}
	result, err := r.advance(ctx, p, obj, state)
	if err == nil && len(p.state.Status.Held) == 0 {
		tell(r.Recorder, state, corev1.EventTypeNormal, "GivenBack", "GiveBack",
			fmt.Sprintf("what %s %s had left is released", state.Spec.Object.Kind, nameOf(state.Spec.Object)))
		r.Metrics.leftovers.remove(machine.Name(), state.Name)
		r.due.drop(client.ObjectKeyFromObject(obj))
		err = dropState(ctx, r.Client, p.state)
	}
	if err == nil && result.RequeueAfter == 0 {
		result.RequeueAfter = heldAgain
	}
	return result, err
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

// installed tells whether there is a CRD of the kind.
func (d *Driver[T]) installed(crds clientset.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		options := metav1.ListOptions{}
		if d.CRDName != "" {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.CRDName).String()
		}
		list, err := crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, options)
		if err != nil {
			return false, fmt.Errorf("look for the CRD: %w", err)
		}
		kind := d.kind()
		return slices.ContainsFunc(list.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
			return crd.Spec.Group == kind.Group && crd.Spec.Names.Kind == kind.Kind
		}), nil
	}
}
