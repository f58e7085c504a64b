package prove

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// truth is the oracle of a run: what the state determines is so, all else is tried
// both ways. Between two actions, the same text answers the same.
func (w *way) truth(e *expr.Expr) (open bool, err error) {
	for _, a := range w.answers {
		if a.e.Text == e.Text {
			return a.open, a.err
		}
	}
	v := w.decide(e)
	w.answers = append(w.answers, answered{e, v})
	return v.open, v.err
}

func (w *way) decide(e *expr.Expr) answer {
	if w.vanished {
		return w.goneTruth(e)
	}
	switch w.known(e, w.run.State().Phase, w.run.State().HeldNames()) {
	case types.True:
		return answer{open: true}
	case types.False:
		return answer{}
	}
	ways := 2
	attempts, fallible := w.fallible[e]
	if fallible { // elsewhere an error only means: closed
		ways = 3
		if attempts > 1 {
			ways = 4
		}
	}
	switch w.pick(ways) {
	case 0:
		return answer{open: true}
	case 1:
		return answer{}
	case 3:
		w.run.State().Attempts = attempts - 1
	}
	w.good = false
	w.note(event{kind: eventUnclear, phase: w.from.phase})
	return answer{err: errForNow}
}

func (p *prover) known(e *expr.Expr, phase string, held []string) ref.Val {
	key := knownKey{e: e, phase: phase}
	for _, name := range held {
		key.held += name + " "
	}
	v, ok := p.values[key]
	if !ok {
		v = p.partly(e, phase, held)
		p.values[key] = v
	}
	return v
}

// partly evaluates an expression without the object, the cluster and the time. What
// is not there is an error, and CEL lets && and || be decided in spite of one: a value
// is what the expression comes to whatever is not known.
func (p *prover) partly(e *expr.Expr, phase string, held []string) ref.Val {
	v, err := e.Partly(map[string]any{
		expr.VarHeld:  fsm.HeldEffects(held),
		expr.VarPhase: nameOnly(phase),
		expr.VarVariables: expr.NewLazyMap(func(name string) ref.Val {
			if v := p.known(p.prog.Variables[name], phase, held); v != nil {
				return v
			}
			return types.WrapErr(errForNow)
		}),
	})
	if err != nil {
		return nil
	}
	return v
}

// needsObject tells whether the action of a step can never succeed while there is no object: what it is called with, or its
// failWhen, reads the object alone. A release is called with what is on record.
func (w *way) needsObject() (needs bool) {
	st := w.run.State()
	s := w.machine.Program().Phases[st.Phase].StepList[st.StepIndex]
	look := func(e *expr.Expr) {
		v, certain := w.withoutObject(e, st.Phase, st.HeldNames())
		needs = needs || v == nil && certain
	}
	if s.Releases == "" {
		for _, v := range s.Bound.With {
			v.Each(look)
		}
	}
	if s.FailWhenExpr != nil {
		look(s.FailWhenExpr)
	}
	return needs
}
