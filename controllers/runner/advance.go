package runner

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// advance takes an object as far as it goes: each commit is followed by another run, from what was stored, as long as
// nobody else writes the object. The view follows at the end, or when it would be old.
func (r *Reconciler[T]) advance(ctx context.Context, p *pass[T], obj T, state *v1alpha1.MachineState) (reconcile.Result, error) {
	if aside, err := r.takeUp(ctx, p, obj, state); aside > 0 || err != nil {
		return reconcile.Result{RequeueAfter: aside}, err
	}
	for runs := cmp.Or(r.MaxRuns, maxRuns); ; runs-- {
		result, goOn, err := r.run(ctx, p)
		if err != nil || !goOn || runs == 1 || !p.unchanged(ctx) {
			return result, p.catchUp(ctx, err)
		}
		if err := r.record(ctx, p); err != nil {
			return reconcile.Result{}, p.catchUp(ctx, err)
		}
	}
}

// run makes one run of the machine. goOn tells that what it came to is stored, and another run may follow at once.
func (r *Reconciler[T]) run(ctx context.Context, p *pass[T]) (result reconcile.Result, goOn bool, err error) {
	run, obj := p.machine.Run(*p.work.MachineStatus(), r.view(ctx, p)), p.stored
	p.run = run
	p.beforeActions(run)
	d := run.Decide(ctx)
	for ; d.Do == fsm.RunAction; d = run.Decide(ctx) {
		if after, err := r.inTurn(ctx, p, run, d); after > 0 || err != nil {
			return reconcile.Result{RequeueAfter: after}, false, err
		}
	}
	if result, goOn, err = r.carryOut(ctx, p, run, d); err == nil {
		r.due.keep(obj, d.Due)
	}
	return result, goOn, err
}

func (r *Reconciler[T]) carryOut(ctx context.Context, p *pass[T], run *fsm.Run, d fsm.Decision) (result reconcile.Result, goOn bool, err error) {
	switch d.Do {
	case fsm.Commit:
		return reconcile.Result{RequeueAfter: again}, true, r.commit(ctx, p, run, d)
	case fsm.Requeue:
		return reconcile.Result{RequeueAfter: d.After}, false, r.commit(ctx, p, run, d)
	case fsm.AddFinalizer:
		return reconcile.Result{RequeueAfter: again}, true, r.addFinalizer(ctx, p)
	case fsm.RemoveFinalizer:
		return reconcile.Result{RequeueAfter: again}, false, r.end(ctx, p)
	}
	return reconcile.Result{}, false, fmt.Errorf("the engine asks for %q, which this program does not know", d.Do)
}

// inTurn is step for an action that may have to wait for its turn: after is how long then.
func (r *Reconciler[T]) inTurn(ctx context.Context, p *pass[T], run *fsm.Run, cmd fsm.Decision) (after time.Duration, err error) {
	if r.turns == nil || !cmd.External {
		return 0, r.step(ctx, p, run, cmd)
	}
	if r.turns.take(p.key) {
		defer r.turns.done()
		return 0, r.step(ctx, p, run, cmd)
	}
	later := run.Postpone(turnWait)
	return later.After, r.commit(ctx, p, run, later)
}

// takeUp begins a pass, or tells how long another installation is left alone with the object.
func (r *Reconciler[T]) takeUp(ctx context.Context, p *pass[T], obj T, state *v1alpha1.MachineState) (aside time.Duration, err error) {
	if err := p.begin(obj, state); err != nil {
		return 0, err
	}
	p.spec = specOf(p.machine.Name(), p.machine.For(), obj)
	if aside, err := r.yield(ctx, p, p.about()); aside > 0 || err != nil || p.gone {
		return aside, err
	}
	r.track(p.machine, p.work)
	return 0, r.record(ctx, p)
}

// addFinalizer keeps the object from going before what is to be done in its name is undone.
// Its name is on record before, so that a revision with another one removes it in the end.
func (r *Reconciler[T]) addFinalizer(ctx context.Context, p *pass[T]) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if name := p.finalizer(); p.state != nil && p.state.Status.Finalizer != name {
		next := p.state.DeepCopy()
		next.Status.Finalizer = name
		if err := p.storeState(ctx, next); err != nil {
			return err
		}
	}
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) { controllerutil.AddFinalizer(o, p.finalizer()) })
	p.adoptMetadata()
	return err
}

// end lets the object go, and its state after it. A crash in between leaves a state without
// an object, which the controller of the states finds.
func (r *Reconciler[T]) end(ctx context.Context, p *pass[T]) error {
	if len(p.stored.GetFinalizers()) > 1 { // it stays, and nobody shows it any more
		if err := p.catchUp(ctx, nil); err != nil {
			return err
		}
	}
	p.behind = false
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) { controllerutil.RemoveFinalizer(o, p.finalizer()) })
	if err != nil {
		return err
	}
	return dropState(ctx, r.Client, p.state)
}
