package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

const (
	// again is how soon a pass follows one that made progress.
	again = time.Nanosecond
	// maxRuns bounds the runs of a pass, so that an object whose phases follow each other without end leaves
	// the worker to others, and an edit of the machine file is seen.
	maxRuns = 32
	// unfitAgain is how soon an object that cannot be driven is looked at again.
	unfitAgain = 5 * time.Second
	// shapeAgain is how soon an object is looked at again whose CRD was not read yet.
	shapeAgain = 100 * time.Millisecond
)

// Reconciler drives the objects of one kind. All its fields are set before the
// first reconcile and never change.
type Reconciler[T Object[T]] struct {
	// Client must read from the API server, not from a cache: the stored phase is
	// compared and swapped, and a stale one only costs repeats.
	Client client.Client
	// Machine answers the machine in force. It is asked once in each pass, which
	// ends with the machine that it began with.
	Machine func() *fsm.Machine
	Program *Program[T]
	Clock   clock.WithTickerAndDelayedExecution
	// Random answers numbers in [0,1) for the jitter of retries; nil: no jitter.
	Random   func() float64
	Recorder events.EventRecorder
	Metrics  *Metrics
	// Shape answers what the CRD of the kind keeps of a status, or why objects of the kind
	// cannot be driven at this moment. Nil: it keeps everything.
	Shape func() (*Shape, error)
	// Manager names the installation that this process belongs to, as the lease that its processes share: a state says which one
	// drives its object. Empty: it claims nothing.
	Manager string
	// Lease reads the lease of the manager of another installation. Nil: whoever comes last drives an object.
	Lease func(ctx context.Context, manager string) (*coordinationv1.Lease, error)
	// States are the names of the states that say they are of an object of this name; nil: nothing is ever left.
	States func(types.NamespacedName) []string
	// Installed tells whether there is a CRD of the kind; it is asked before the objects of a
	// kind that is not served are taken to be gone. Nil: they never are.
	Installed func(context.Context) (bool, error)
	// Tracing is told of each pass and each step; nil: the provider of the whole
	// process, which does nothing unless the program has set one.
	Tracing trace.TracerProvider
	// MaxRuns is how many runs of the machine a pass may make, one after each commit; 0 means 32. With 1, a test
	// sees what is stored between two of them.
	MaxRuns int

	// due is what fsm.Observation.Due of the next pass is: what a look that changes nothing does not write.
	due        memory[time.Time]
	contention memory[contended]
	told       memory[string] // whom an object was left to
	missing    missing
	turns      *turns
	holders    holders
	unserved   unserved
	restarts   restarts
	// references is nil where nobody asks which objects name which others.
	references *references
}

// Reconcile makes one pass: it takes the object as far as it goes, commit by commit, and says what comes after it. A conflict
// is not an error but news: everything is dropped and the pass starts again. Nor is the end of ctx: a program that ends
// leaves the rest to the next one. A kind that is not served is waited for, by all objects together.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if wait := r.unserved.wait(r.now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if r.turns.begins(req.NamespacedName) {
		defer r.turns.ended(req.NamespacedName)
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

func (r *Reconciler[T]) now() time.Time { return r.Clock.Now() }

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

// track tells those who measure what the API server has of an object.
func (r *Reconciler[T]) track(machine *fsm.Machine, obj T) {
	r.Metrics.Stored(machine, obj)
	if r.Program.Stored != nil {
		r.Program.Stored(machine, obj)
	}
}

// untrack tells them that an object is gone, or that nobody looks at it any more.
func (r *Reconciler[T]) untrack(machine *fsm.Machine, key types.NamespacedName) {
	r.due.drop(key)
	r.contention.drop(key)
	r.told.drop(key)
	r.references.put(key, nil)
	r.Metrics.Gone(machine, key)
	if r.Program.Gone != nil {
		r.Program.Gone(key)
	}
}

// forgetAll is for the end of a controller: whatever it knows gets old from then on.
func (r *Reconciler[T]) forgetAll(machine *fsm.Machine) {
	for _, key := range r.Metrics.objects.of(machine.Name()) {
		r.untrack(machine, key)
	}
}

// record shows on the object which requests were acted on last. The status is the
// truth; the annotations follow it in the pass after the transition, so that a
// crash in between leaves nothing out.
func (r *Reconciler[T]) record(ctx context.Context, p *pass[T]) error {
	records := p.machine.Records(p.work.MachineStatus())
	maps.DeleteFunc(records, func(name, token string) bool { return p.stored.GetAnnotations()[name] == token })
	if len(records) == 0 {
		return nil
	}
	err := patch.MutateAndPatchSpec(ctx, r.Client, p.stored, func(o T) {
		o.SetAnnotations(labels.Merge(o.GetAnnotations(), records))
	})
	p.adoptMetadata()
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

func (r *Reconciler[T]) view(ctx context.Context, p *pass[T]) fsm.Observation {
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
		Finalizer:  controllerutil.ContainsFinalizer(read, p.finalizer()),
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

// observed is the generation that the status is about. Every write of the status says it
// with the condition Ready.
func observed[T Object[T]](obj T) int64 {
	if ready := meta.FindStatusCondition(*obj.Conditions(), fsm.ConditionReady); ready != nil {
		return ready.ObservedGeneration
	}
	return 0
}

// shownMessage is what the last pass said that it waits for: the state does not hold it.
func shownMessage[T Object[T]](obj T) string {
	if ready := meta.FindStatusCondition(*obj.Conditions(), fsm.ConditionReady); ready != nil {
		return ready.Message
	}
	return ""
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
	scope := &Scope[T]{Object: deepCopy(p.work), Machine: p.machine, StepID: cmd.StepID, With: cmd.With, Clock: r.Clock, pass: p, recorder: r.Recorder}
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

// announce tells a transition once it is durable.
func (r *Reconciler[T]) announce(ctx context.Context, machine *fsm.Machine, about runtime.Object, t *v1alpha1.Transition) {
	r.Metrics.Took(machine, t)
	kind, note := corev1.EventTypeNormal, fmt.Sprintf("%s → %s", t.From, t.To)
	if t.From == "" {
		note = "started in " + t.To
	}
	if t.Took.Duration > 0 {
		note += fmt.Sprintf(" after %s", t.Took.Duration)
	}
	if t.Message != "" {
		kind, note = corev1.EventTypeWarning, note+": "+t.Message
	}
	traceTransition(ctx, t)
	log.FromContext(ctx).Info("transition", "from", t.From, "to", t.To, "reason", t.Reason, "took", t.Took.Duration, "message", t.Message)
	tell(r.Recorder, about, kind, t.Reason, "Transition", note)
}

func deepCopy[T Object[T]](obj T) T {
	return obj.DeepCopyObject().(T)
}
