package runner

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// begin takes up an object and its state, as they were read.
func (p *pass[T]) begin(obj T, state *v1alpha1.MachineState) error {
	p.stored, p.work, p.state, p.shownAt = obj, deepCopy(obj), state, p.by.Clock.Now()
	if state != nil {
		p.saved = state.Status.Saved
	}
	untrim(p.work)
	p.observed = observed(p.work)
	// Where a CRD lets a type of condition repeat, the view repeats it.
	all := p.work.Conditions()
	seen := map[string]bool{}
	*all = slices.DeleteFunc(*all, func(c metav1.Condition) bool {
		again := seen[c.Type]
		seen[c.Type] = true
		return again
	})
	return showState(p.work, state)
}

// write makes the run's state durable, in one compare-and-swap, and calls stored then. The
// view follows it.
func (p *pass[T]) write(ctx context.Context, run *fsm.Run, cmd fsm.Decision, stored func()) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.settleLocked(ctx, run)
	if err := p.storeLocked(ctx); err != nil {
		return err
	}
	p.observed = p.stored.GetGeneration()
	stored()
	switch {
	case cmd.Do == fsm.Commit:
		// A ledger that grows or shrinks is shown with what comes next.
		if p.behind = p.behind || cmd.Transition != nil || p.news(); !p.behind || p.mayLag(cmd) {
			return nil
		}
	case cmd.Early && p.showsLocked():
		return nil
	}
	return p.showLocked(ctx)
}

// mayLag tells whether the view may wait for a later run of this pass: under a lock, each request is time that the
// cluster waits. Other programs heed the phase, so what is done in its name comes after it is shown, but for the first
// phase, and for one in which nothing is on its way.
func (p *pass[T]) mayLag(cmd fsm.Decision) bool {
	heeded := cmd.Transition != nil && cmd.Transition.From != "" && !p.machine.Rests(cmd.Transition.To)
	return !heeded && p.by.Clock.Since(p.shownAt) < publishEvery
}

// unchanged tells whether the object is still as this pass has it.
func (p *pass[T]) unchanged(ctx context.Context) bool {
	if p.gone {
		return true
	}
	live := p.by.Program.New()
	err := p.by.Client.Get(ctx, client.ObjectKeyFromObject(p.stored), live)
	return err == nil && live.GetUID() == p.stored.GetUID() && live.GetResourceVersion() == p.stored.GetResourceVersion()
}

// catchUp writes the view where it is behind what is stored, at the end of a pass that ends with err. Where the pass
// has to start again, so has what it would show.
func (p *pass[T]) catchUp(ctx context.Context, err error) error {
	if !p.behind || ctx.Err() != nil || startAgain(err) {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	return cmp.Or(err, p.showLocked(ctx))
}

// startAgain tells whether an error says that the object is another one by now.
func startAgain(err error) bool {
	return apierrs.IsConflict(err) || apierrors.ObjectNotFound(err) || errors.Is(err, errMoved)
}

// beforeActions brings work to the stored state where the view is about another one, as after a crash between the two:
// progress of an action would be written beside the words for another phase.
func (p *pass[T]) beforeActions(ctx context.Context, run *fsm.Run) {
	p.sending.Lock()
	defer p.sending.Unlock()
	if !p.behind && !p.showsLocked() {
		p.settleLocked(ctx, run)
	}
}

// showsLocked tells whether the view is about what is stored, or cannot be: what it tells of the last try is more
// than a look that tried nothing knows.
func (p *pass[T]) showsLocked() bool {
	view := p.stored.MachineStatus()
	return p.state == nil || view.Phase == "" || view.SamePosition(&p.state.Status.MachineStatus)
}

// news tells whether an action has reported something that is not in the view.
func (p *pass[T]) news() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reported
}

// showLocked writes the view where it is not as it should be, after a conflict once more on top of the object as it is then:
// who writes more often than a pass takes would keep us from it for ever. What the API server refuses in it
// is logged: nothing depends on it.
func (p *pass[T]) showLocked(ctx context.Context) error {
	if p.gone {
		return nil
	}
	p.shownAt = p.by.Clock.Now()
	err := p.sendOnTop(ctx)
	if apierrs.IsInvalid(err) && p.fields {
		log.FromContext(ctx).Error(err, "the fields of spec.status are not shown: the CRD of the object refuses a value of them")
		p.mu.Lock()
		p.showFields(nil)
		p.mu.Unlock()
		err = p.sendOnTop(ctx)
	}
	p.behind = p.behind && err != nil
	if apierrs.IsInvalid(err) {
		log.FromContext(ctx).Error(err, "the status of the object cannot be shown: its CRD refuses it; the machine goes on", "state", v1alpha1.MachineStateName(p.spec.Machine, p.spec.Object.UID))
		return nil
	}
	return err
}

// sendOnTop is send, after a conflict on top of the object as it is then.
func (p *pass[T]) sendOnTop(ctx context.Context) error {
	first := true
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !first {
			live := p.by.Program.New()
			if err := p.by.Client.Get(ctx, client.ObjectKeyFromObject(p.stored), live); err != nil {
				return err
			}
			if err := p.refreshLocked(ctx, live); err != nil {
				return err
			}
		}
		first = false
		return p.send(ctx)
	})
}

// settleLocked brings work to what the run says.
func (p *pass[T]) settleLocked(ctx context.Context, run *fsm.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = true
	summary := run.Summary()
	*p.work.MachineStatus() = run.Status()
	p.work.SetDisplay(summary.Phase, summary.Message)
	*p.work.ObservedGeneration() = p.stored.GetGeneration()
	p.setConditions(summary.Conditions)
	if decorate := p.by.Program.Decorate; decorate != nil && !summary.Unknown {
		decorate(p.machine, p.work)
	}
	p.showFields(run.Shown(ctx))
}

// setConditions leaves out what is not worth a line: as kstatus has it,
// Reconciling and Stalled are there only while they are true.
func (p *pass[T]) setConditions(conditions []metav1.Condition) {
	for _, c := range conditions {
		if c.Type != fsm.ConditionReady && c.Status == metav1.ConditionFalse {
			meta.RemoveStatusCondition(p.work.Conditions(), c.Type)
			continue
		}
		c.ObservedGeneration = p.stored.GetGeneration()
		c.LastTransitionTime = metav1.NewTime(p.by.Clock.Now())
		meta.SetStatusCondition(p.work.Conditions(), c)
	}
	slices.SortStableFunc(*p.work.Conditions(), func(a, b metav1.Condition) int { return rank(a) - rank(b) })
}

// rank keeps the summary conditions first, so that describe reads from the
// general to the particular.
func rank(c metav1.Condition) int {
	if i := slices.Index([]string{fsm.ConditionReady, fsm.ConditionReconciling, fsm.ConditionStalled}, c.Type); i >= 0 {
		return i
	}
	return 3
}

// send brings the status of the object to that of work, as far as its CRD keeps it and as
// people need it. Nothing is sent when nothing changed.
func (p *pass[T]) send(ctx context.Context) error {
	p.mu.Lock()
	p.reported = false
	view := deepCopy(p.work)
	if !p.settled {
		view.MachineStatus().KeepShown(p.stored.MachineStatus())
	}
	p.mu.Unlock()
	if !p.once {
		p.trim(view)
	}
	if reflect.DeepEqual(view, p.stored) { // as most passes end: to see it here costs less than two encodings
		return nil
	}
	if p.shape != nil {
		if err := fitView(p.shape, p.by.Program.New(), view, p.stored, p.by.Program.Spread); err != nil {
			return err
		}
	}
	written := deepCopy(p.stored)
	err := patch.MutateAndSwapStatus(ctx, client.WithFieldOwner(p.by.Client, statusManager), written, func(obj T) { obj.CopyStatusFrom(view) })
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reported = true
		return err
	}
	before := p.stored
	p.stored = written
	p.adoptMetadataLocked()
	if !p.once {
		p.by.warnOf(before, written)
		p.by.shown(ctx, before, written)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.by.track(p.machine, p.work)
	}
	return nil
}

// refreshLocked takes over what others have written into the object: annotations, labels, managed fields, a status. The
// error is errMoved where the pass must not go on: another object bears the name, or another manager has
// written the state. The object was read before the state, so that a view of a newer state was either
// seen here or conflicts with ours.
func (p *pass[T]) refreshLocked(ctx context.Context, live T) error {
	state, err := readState(ctx, p.by.Client, p.spec.Machine, p.spec.Object.UID)
	switch {
	case err != nil:
		return err
	case live.GetUID() != p.spec.Object.UID, (state == nil) != (p.state == nil), state != nil && state.ResourceVersion != p.state.ResourceVersion:
		return errMoved
	}
	live.GetObjectKind().SetGroupVersionKind(p.stored.GetObjectKind().GroupVersionKind())
	p.stored = live
	p.adoptMetadataLocked()
	return nil
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
