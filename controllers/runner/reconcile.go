package runner

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Reconcile makes one pass: it takes the object as far as it goes, commit by commit, and says what comes after it. A conflict
// is not an error but news: everything is dropped and the pass starts again. Nor is the end of ctx: a program that ends
// leaves the rest to the next one. A kind that is not served is waited for, by all objects together. Any other error of the API
// server is returned, for the queue to repeat the pass with its backoff.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if wait := r.unserved.wait(r.now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if r.semaphore.begins(req.NamespacedName) {
		defer r.semaphore.ended(req.NamespacedName)
	}
	ctx, span := r.startPass(ctx, req)
	result, err := r.pass(ctx, req)
	moved := startAgain(err)
	switch {
	case moved && r.restarts.again(req.NamespacedName):
		result, err = reconcile.Result{RequeueAfter: again}, nil
	case err == nil:
	case ctx.Err() != nil:
		result, err = reconcile.Result{}, nil
	case apierrors.NotServed(err):
		span.SetStatus(codes.Error, string(apierrors.Classify(err)))
		wait, news := r.unserved.failed(r.now())
		if news {
			log.FromContext(ctx).Error(err, "the API server does not serve a kind: its objects are driven again when it does")
		}
		result, err = reconcile.Result{RequeueAfter: wait}, nil
	default:
		span.SetStatus(codes.Error, string(apierrors.Classify(err)))
	}
	if !moved {
		r.restarts.over(req.NamespacedName)
	}
	span.End()
	return result, err
}

// pass looks at the object of a name, and at what those have left that had the name before.
func (r *Reconciler[T]) pass(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj, machine := r.Program.New(), r.Machine()
	read := r.Client.Get(ctx, req.NamespacedName, obj)
	if read != nil && !apierrors.ObjectNotFound(read) && !apierrors.NotServed(read) {
		return reconcile.Result{}, fmt.Errorf("read the object: %w", read)
	}
	left, found, err := r.releaseOrphans(ctx, machine, req.NamespacedName, obj.GetUID())
	switch {
	case read == nil:
	case apierrors.ObjectNotFound(read):
		r.untrack(machine, req.NamespacedName)
		return left, err
	case found: // it was asked whether there is a CRD
		return left, err
	default:
		return left, fmt.Errorf("read the object: %w", read)
	}
	// The client leaves it out of typed objects; expressions and actions ask for it.
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(machine.For().APIVersion, machine.For().Kind))
	result, failure := r.drive(ctx, req, machine, obj)
	result.RequeueAfter = sooner(result.RequeueAfter, left.RequeueAfter)
	return result, errors.Join(failure, err)
}

func (r *Reconciler[T]) drive(ctx context.Context, req reconcile.Request, machine *fsm.Machine, obj T) (reconcile.Result, error) {
	r.refer(obj)
	shape, err := r.shape()
	var state *v1alpha1.MachineState
	if err == nil {
		state, err = r.stateOf(ctx, machine, obj)
	}
	if err != nil {
		return r.notDriven(ctx, obj, err)
	}
	if r.unserved.served() {
		log.FromContext(ctx).Info("the API server serves all kinds again")
	}
	if state == nil && !obj.GetDeletionTimestamp().IsZero() && !controllerutil.ContainsFinalizer(obj, machine.Finalizer()) {
		return reconcile.Result{}, nil // nothing keeps it but others
	}
	ctx = named(ctx, machine, state)
	if wait := r.leftAlone(obj, state); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	p := &pass[T]{by: r, key: req.NamespacedName, machine: machine, shape: shape}
	result, err := r.advance(ctx, p, obj, state)
	if startAgain(err) {
		log.FromContext(ctx).V(1).Info("the object changed meanwhile, starting again", "cause", err.Error())
	}
	return result, err
}

// notDriven leaves an object alone. What a person has to repair is told, what passes is
// tried again.
func (r *Reconciler[T]) notDriven(ctx context.Context, obj T, why error) (reconcile.Result, error) {
	if errors.Is(why, errNoShape) {
		return reconcile.Result{RequeueAfter: shapeAgain}, nil
	}
	unfit := errors.As(why, &unfitError{})
	if !unfit && !apierrors.NotServed(why) {
		return reconcile.Result{}, why
	}
	log.FromContext(ctx).Error(why, "the object is left alone")
	tell(r.Recorder, obj, corev1.EventTypeWarning, "NotDriven", "Check", why.Error())
	if !unfit {
		return reconcile.Result{}, why
	}
	return reconcile.Result{RequeueAfter: unfitAgain}, nil
}

func (r *Reconciler[T]) shape() (*Shape, error) {
	if r.Shape == nil {
		return nil, nil
	}
	return r.Shape()
}

// refer learns what the spec of an object names, before any of it is read.
func (r *Reconciler[T]) refer(obj T) {
	if r.references == nil {
		return
	}
	var now []reference
	for _, k := range r.Program.References {
		for _, name := range k.Names(obj) {
			now = append(now, reference{schema.FromAPIVersionAndKind(k.APIVersion, k.Kind).GroupKind(), types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}})
		}
	}
	r.references.put(types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, now)
}
