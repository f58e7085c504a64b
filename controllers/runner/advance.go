package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
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
	run, obj := p.machine.Run(*p.work.MachineStatus(), r.observe(ctx, p)), p.stored
	p.run = run
	p.beforeActions(ctx, run)
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
	if r.semaphore == nil || !cmd.External {
		return 0, r.step(ctx, p, run, cmd)
	}
	if r.semaphore.take(p.key) {
		defer r.semaphore.done()
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
	if aside, err := r.yield(ctx, p, p.about()); aside > 0 || err != nil {
		return aside, err
	}
	if !p.gone {
		r.track(p.machine, p.work)
	}
	return 0, r.record(ctx, p)
}

// addFinalizer keeps the object from going before what is to be done in its name is undone.
// Its name is on record before, so that a revision with another one removes it in the end.
func (r *Reconciler[T]) addFinalizer(ctx context.Context, p *pass[T]) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	if name := p.finalizerLocked(); p.state != nil && p.state.Status.Finalizer != name {
		next := p.state.DeepCopy()
		next.Status.Finalizer = name
		if err := p.storeState(ctx, next); err != nil {
			return err
		}
	}
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) { controllerutil.AddFinalizer(o, p.finalizerLocked()) })
	p.adoptMetadataLocked()
	return err
}

// end lets the object go, and its state after it. A crash in between leaves a state without
// an object, which the next pass over its name finds.
func (r *Reconciler[T]) end(ctx context.Context, p *pass[T]) error {
	if len(p.stored.GetFinalizers()) > 1 { // it stays, and nobody shows it any more
		if err := p.catchUp(ctx, nil); err != nil {
			return err
		}
	}
	p.behind = false
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) { controllerutil.RemoveFinalizer(o, p.finalizerLocked()) })
	if err != nil {
		return err
	}
	return dropState(ctx, r.Client, p.state)
}

// record shows on the object which requests were acted on last. The status is the
// truth; the annotations follow it in the pass after the transition, so that a
// crash in between leaves nothing out.
func (r *Reconciler[T]) record(ctx context.Context, p *pass[T]) error {
	if p.gone {
		return nil
	}
	records := p.machine.Records(p.work.MachineStatus())
	maps.DeleteFunc(records, func(name, token string) bool { return p.stored.GetAnnotations()[name] == token })
	if len(records) == 0 {
		return nil
	}
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) {
		o.SetAnnotations(labels.Merge(o.GetAnnotations(), records))
	})
	p.adoptMetadataLocked()
	return err
}

// commit makes the state of a run durable, and tells what is durable then.
func (r *Reconciler[T]) commit(ctx context.Context, p *pass[T], run *fsm.Run, cmd fsm.Decision) error {
	before := ""
	if p.state != nil {
		before = p.state.Status.Revision
	}
	return p.write(ctx, run, cmd, func() {
		if now := p.machine.Revision(); before != "" && before != now {
			log.FromContext(ctx).Info("another revision took over", "before", before, "revision", now)
			tell(r.Recorder, p.about(), corev1.EventTypeNormal, "MachineReloaded", "Reload",
				fmt.Sprintf("revision %s of machine %s replaces %s", now, p.machine.Name(), before))
		}
		if cmd.Transition != nil {
			r.announce(ctx, p.machine, p.about(), cmd.Transition)
		}
	})
}

func (r *Reconciler[T]) observe(ctx context.Context, p *pass[T]) fsm.Observation {
	read := p.stored // what this pass writes does not change it
	state := p.state
	return fsm.Observation{
		Self: func() (map[string]any, error) {
			self, err := selfOf(read, state)
			if err != nil {
				return nil, fmt.Errorf("read %s as data: %w", read.GetName(), err)
			}
			return self, nil
		},
		Deleting:   !read.GetDeletionTimestamp().IsZero(),
		Finalizer:  controllerutil.ContainsFinalizer(read, p.finalizerLocked()),
		Gone:       p.gone,
		Generation: read.GetGeneration(),
		Observed:   p.observed,
		Message:    shownMessage(read),
		Due:        r.due.of(read),
		Now:        r.Clock.Now,
		Random:     r.Random,
		Guard: func(name string) (bool, string, error) {
			return r.Program.Guards[name].Open(ctx, p.machine, p.work)
		},
	}
}

// step fires the event of a step, which calls its action. The first of several
// errors in a row is told, unless it leads to another phase: that transition
// tells it.
func (r *Reconciler[T]) step(ctx context.Context, p *pass[T], run *fsm.Run, cmd fsm.Decision) error {
	before := run.Status()
	var outcome fsm.Result
	err := run.Apply(ctx, func(ctx context.Context, cmd fsm.Decision) (_ fsm.Result, err error) {
		outcome, err = r.act(ctx, p, before, cmd)
		return outcome, err
	})
	if err != nil {
		return err
	}
	first := before.Attempts == 0
	if first && outcome.Err != nil && outcome.Class != "" && run.Decide(ctx).Transition == nil {
		tell(r.Recorder, p.about(), corev1.EventTypeWarning, "StepFailed", "StepFailed", fmt.Sprintf("%s: %v", cmd.Action, outcome.Err))
	}
	return nil
}

// act runs one action, which sees the machine as it is now, written or not. Its context
// ends early when the object does not ask for it any more, by a deletion above all; errMoved
// is returned then.
func (r *Reconciler[T]) act(ctx context.Context, p *pass[T], now v1alpha1.MachineStatus, cmd fsm.Decision) (outcome fsm.Result, err error) {
	ctx, span := r.startStep(ctx, cmd)
	defer func() { endStep(span, outcome, err) }()
	acting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	logger := log.FromContext(ctx).WithValues("step", cmd.Step, "action", cmd.Action)
	scope := &Scope[T]{Object: deepCopy(p.work), Machine: p.machine, StepID: cmd.StepID, Releases: cmd.Releases, With: cmd.With, Clock: r.Clock, pass: p, recorder: r.Recorder}
	*scope.Object.MachineStatus() = now
	if cmd.External {
		r.due.keep(p.stored, cmd.Due)
	}
	ended := p.publish(ctx, acting.Done(), func() { cancel(errMoved) })

	began := r.Clock.Now()
	outputs, failure := r.Program.Actions[cmd.Action].Do(log.IntoContext(acting, logger), scope)
	moved := errors.Is(context.Cause(acting), errMoved) || errors.Is(failure, errMoved)
	cancel(nil)
	ended()
	took := r.Clock.Since(began)
	if moved {
		return fsm.Result{}, errMoved
	}
	if ctx.Err() != nil { // shutting down: nothing that was not written counts
		return fsm.Result{}, ctx.Err()
	}
	outcome = outcomeOf(outputs, r.withMissing(ctx, p, failure))
	r.Metrics.Did(p.machine, cmd.Action, took, outcome)
	if outcome.Err != nil && outcome.Class != "" {
		logger.Info("step failed", "class", outcome.Class, "error", outcome.Err.Error(), "took", took)
	}
	return outcome, nil
}
