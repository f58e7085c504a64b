package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Run starts a pass from a stored status, which is not changed.
func (m *Machine) Run(status v1alpha1.MachineStatus, v Observation) *Run {
	r := &Run{values: values{state: state{m: m, input: v, st: *status.DeepCopy(), result: decodeResult(status.Result)}, guards: map[string]guardAnswer{}}, clock: v.Now}
	r.readClock()
	switch {
	case v.Gone: // nobody changes its spec any more
		r.input.Generation = r.st.Generation
	case r.st.Generation == 0: // stored before there was this field
		r.st.Generation = v.Generation
	}
	moved := r.st.Revision != m.def.Revision && r.adopt()
	if r.st.StepIndex < 0 || r.outdated() {
		// The step index counts steps that were done for an older spec, or was written by
		// hand. Steps are idempotent: begin with the first, so that none is left out.
		r.restart()
	}
	r.believeTimes()
	r.timing = r.timingOf(moved)
	return r
}

// outdated tells that the spec changed in the middle of a look at a steady phase, which
// says Ready at its end: of the new spec, so every step must have seen it.
func (s *state) outdated() bool {
	p := s.phase()
	return p != nil && p.Kind == v1alpha1.PhaseSteady && s.input.Observed != 0 && s.input.Observed != s.input.Generation
}

// Decide answers what to do: from what is stored and was observed, and after Apply from what came of the action. After
// RunAction it must not be called before Apply.
func (r *Run) Decide(ctx context.Context) Decision {
	d := r.next
	if d == nil {
		r.readClock()
		d = r.decide(ctx)
	}
	if d.Do == RunAction {
		return *d
	}
	return r.decided(d)
}

func (r *Run) decide(ctx context.Context) *Decision {
	p := r.phase()
	switch {
	case r.st.Phase == "":
		return r.begin(ctx)
	case r.input.Gone && len(r.st.Held) == 0:
		return untilChange()
	case p == nil:
		return r.unknownPhase(ctx)
	case r.finished(p):
		return untilChange()
	case p.End && !r.input.Gone:
		return &Decision{Do: RemoveFinalizer}
	}
	for _, ask := range inOrder {
		if d := ask(r, ctx, p); d != nil {
			return d
		}
	}
	return r.exits(ctx, p)
}

// inOrder is what is asked of a phase before its exits; the first decision counts.
var inOrder = []func(*Run, context.Context, *program.Phase) *Decision{(*Run).deletion, (*Run).deadline, (*Run).early, (*Run).admit, (*Run).steps}

// finished: nothing of ours keeps the object, and nothing of it is left to
// release. What is held is released even when somebody took the finalizer away.
func (s *state) finished(p *program.Phase) bool {
	return !s.input.Gone && !s.input.Finalizer && (p.End || s.input.Deleting && len(s.st.Held) == 0)
}

func (r *Run) begin(ctx context.Context) *Decision {
	if r.input.Gone || r.input.Deleting && !r.input.Finalizer {
		return untilChange()
	}
	if r.lost() {
		return r.recover(ctx)
	}
	return r.take(ctx, program.ReasonCreated, firing{})
}

// deletion is total: it asks no guard of the machine's author.
func (r *Run) deletion(ctx context.Context, p *program.Phase) *Decision {
	if !r.input.Deleting && !r.input.Gone || p.Deletion {
		return nil
	}
	switch {
	case p.OnDelete.To != "":
		return r.take(ctx, program.ReasonDeletion, firing{})
	case p.OnDelete.Immediate && len(r.st.Held) == 0:
		return &Decision{Do: RemoveFinalizer}
	case p.OnDelete.Immediate:
		r.stall = &stall{"EffectsHeld", fmt.Sprintf("held: %v; a machine that holds effects here has a defect", r.st.HeldNames())}
		return untilChange()
	}
	return nil // hold: go on
}

func (r *Run) deadline(ctx context.Context, p *program.Phase) *Decision {
	r.st.Deadline = r.deadlineOf(ctx, p) // of the file and the object as they are now
	if r.st.Deadline == nil || r.input.Now().Before(r.st.Deadline.Time) {
		return nil
	}
	if p.Timeout.To != "" {
		event := program.TimeoutEvent(p)
		message := fmt.Sprintf("%s lasted longer than %s: %s", p.Name, r.timeout(p), r.waitingFor(ctx, p))
		return r.leave(ctx, event, event, firing{message: message}, p.TimeoutAssigns)
	}
	r.overdue = true
	r.stall = &stall{p.Timeout.Stalled, fmt.Sprintf("%s lasts longer than %s", p.Name, r.timeout(p))}
	return nil
}

// exits are tried in turn once the steps are done; the first whose event is not cancelled is taken.
func (r *Run) exits(ctx context.Context, p *program.Phase) *Decision {
	r.resetBackoff()
	for _, x := range p.Exits {
		f := &firing{guard: x.WhenExpr, text: x.Text, assigns: x.Assigns}
		err := r.fire(ctx, program.NextEvent(x.Exit), f)
		closed, is := errors.AsType[*closedError](err)
		switch {
		case err == nil:
			return r.next
		case f.missing != nil:
			r.st.Blocked = append(r.st.Blocked[:min(len(r.st.Blocked), v1alpha1.BlockedLimit-1)], v1alpha1.Blocked{To: x.To, Guard: "set", Value: expr.Clip("error: "+f.missing.Error(), v1alpha1.TextLimit)})
			return r.closed(ctx, p) // its guard is open, so no other exit takes its place
		case !is:
			return r.refuse(err)
		case len(r.st.Blocked) < v1alpha1.BlockedLimit:
			r.st.Blocked = append(r.st.Blocked, v1alpha1.Blocked{To: x.To, Guard: closed.because, Value: closed.got})
		}
	}
	return r.closed(ctx, p)
}

// closed waits until the exits are to be tried again.
func (r *Run) closed(ctx context.Context, p *program.Phase) *Decision {
	r.message = p.Text.Render(r.value(ctx))
	r.restart()
	if p.External {
		r.polls(cmp.Or(p.PollEvery, defaultPoll))
	}
	if p.Terminal != "" && p.Poll == "" {
		return r.sleep(0)
	}
	return r.sleep(p.PollEvery)
}
