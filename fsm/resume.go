package fsm

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// errNotNow says that a parameter of a release would be evaluated when it is needed.
var errNotNow = errors.New("evaluated when it is needed")

func notNow(*expr.Expr) (ref.Val, error) { return nil, errNotNow }

// unknownPhase never guesses: only the machine's author knows where an object
// of an older revision belongs.
func (r *Run) unknownPhase(ctx context.Context) *Decision {
	if r.m.prog.Events[r.st.Phase] != nil { // upgrade.phaseMap knows it
		return r.take(ctx, program.ReasonReplaced, firing{})
	}
	r.stall = &stall{reason: "UnknownPhase", message: fmt.Sprintf(
		"phase %q is not in revision %s of machine %s: restore the phase in the machine file, or add it to spec.upgrade.phaseMap",
		r.st.Phase, r.m.def.Revision, r.m.def.Metadata.Name)}
	r.message = r.stall.message
	return untilChange()
}

// recover finds out where an object stands that bears our finalizer although nothing is
// stored of it. What the cluster says decides, and nothing is guessed.
func (r *Run) recover(ctx context.Context) *Decision {
	notYet := func(err error) *Decision { // there is no phase yet whose pace it could have
		r.st.Held = nil
		r.message = expr.Clip(fmt.Sprintf("The state of this object is lost, and cannot be recovered yet: %v", err), v1alpha1.TextLimit)
		return &Decision{Do: Requeue, After: defaultPoll}
	}
	for _, q := range r.m.prog.Recover {
		f := &firing{guard: q.WhenExpr, needs: func(ctx context.Context) error { return r.holds(ctx, q.Holds) }}
		err := r.fire(ctx, program.RecoverEvent(q), f)
		closed, is := errors.AsType[*closedError](err)
		switch {
		case err == nil:
			return r.next
		case f.missing != nil:
			return notYet(f.missing)
		case !is:
			return r.refuse(err)
		case closed.err != nil:
			return notYet(fmt.Errorf("checking whether %s: %w", q.When, closed.err))
		}
	}
	r.stall = &stall{reason: "StateLost", message: fmt.Sprintf(
		"the object bears finalizer %s, but its MachineState is gone, and no entry of spec.recover of machine %s applies: restore the MachineState from a backup; or release what is left by hand, then remove the finalizer",
		r.m.def.Spec.Finalizer, r.m.def.Metadata.Name)}
	r.message = r.stall.message
	return untilChange()
}

// holds puts on record what a lost object may hold.
func (vs *values) holds(ctx context.Context, effects []string) error {
	for _, name := range effects {
		e := vs.m.prog.Effects[name]
		h, err := vs.entry(ctx, e, e.BoundAcquire)
		if err != nil {
			return err
		}
		vs.st.Held = append(vs.st.Held, h)
	}
	return nil
}

// lost tells that the object may hold something, and nothing is stored of it.
func (s *state) lost() bool {
	return s.st.Phase == "" && s.input.Finalizer && len(s.m.prog.Effects) > 0
}
