package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// adopt gives a status that another revision wrote the names of this one. It answers whether
// the phase begins again.
func (s *state) adopt() (again bool) {
	if u := s.m.def.Spec.Upgrade; u != nil {
		for i := range s.st.Held {
			h := &s.st.Held[i]
			h.Name = successor(u.EffectMap, h.Name)
		}
		s.adoptRequests(u.RequestMap)
	}
	return s.goOn()
}

// goOn finds the step at which an object goes on whose phase another revision drove: where
// it stands if the phase does the same, else where the file says, else at the first. The
// stepIndex would count other steps; and steps are idempotent, so that none is left out. It
// answers whether it is the first.
func (s *state) goOn() (again bool) {
	p, u := s.phase(), s.m.def.Spec.Upgrade
	if p == nil || s.st.PhaseRevision == p.Revision {
		return false
	}
	at := -1
	if u != nil && u.StepMap[s.st.Step] != "" {
		at = slices.IndexFunc(p.StepList, func(step program.Step) bool { return step.Label == u.StepMap[s.st.Step] })
	}
	if at < 0 {
		s.restart()
		return true
	}
	s.st.StepIndex, s.st.Step = int32(at), p.StepList[at].Label
	return false
}

// adoptRequests makes one of two that have one name by now, as after a rollback: the API server
// would refuse both. The newer one is the last.
func (s *state) adoptRequests(names map[string]string) {
	var adopted []v1alpha1.RequestStatus
	for _, q := range s.st.Requests {
		q.Name = successor(names, q.Name)
		if i := slices.IndexFunc(adopted, func(old v1alpha1.RequestStatus) bool { return old.Name == q.Name }); i >= 0 {
			q = after(q.Name, q.Token, append(marks(q), marks(adopted[i])...))
			adopted = slices.Delete(adopted, i, i+1)
		}
		adopted = append(adopted, q)
	}
	s.st.Requests = adopted
}

// errNotNow says that a parameter of a release would be evaluated when it is needed.
var errNotNow = errors.New("evaluated when it is needed")

func notNow(*expr.Expr) (ref.Val, error) { return nil, errNotNow }

func successor(names map[string]string, old string) string { return cmp.Or(names[old], old) }

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

// rename goes on with a visit under the name that the phase has in this revision: its entry
// time and its deadline go on, and what its steps have made is found again.
func (s *state) rename(to, reason string) *v1alpha1.Transition {
	took := s.note(v1alpha1.Transition{From: s.st.Phase, To: to, At: s.now(), Reason: program.Word(reason)})
	if s.st.EnteredAs = cmp.Or(s.st.EnteredAs, s.st.Phase); s.st.EnteredAs == to {
		s.st.EnteredAs = ""
	}
	s.arrive(to)
	s.goOn()
	return took
}
