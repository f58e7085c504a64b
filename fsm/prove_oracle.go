package fsm

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// answered is what a guard was decided to be during one reconcile.
type answered struct {
	e *expr
	decision
}

// truth is the oracle of a run: what the state determines is so, all else is tried
// both ways; within one reconcile, the same text answers the same until an action
// adds to the results.
func (w *way) truth(e *expr) decision {
	for _, a := range w.answers {
		if a.e.text == e.text {
			return a.decision
		}
	}
	v := w.decide(e)
	w.answers = append(w.answers, answered{e, v})
	return v
}

func (w *way) decide(e *expr) decision {
	switch w.known(e, w.run.st.Phase, w.run.st.Held).value {
	case types.True:
		return decision{open: true}
	case types.False:
		return decision{}
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
		return decision{open: true}
	case 1:
		return decision{}
	case 3:
		w.run.st.Attempts = attempts - 1
	}
	w.good = false
	w.note(event{kind: eventUnclear, phase: w.from.phase})
	return decision{err: errForNow}
}

// readsResults tells whether an action may change what an expression comes to.
func (e *expr) readsResults() bool {
	return slices.ContainsFunc(e.refs, func(r exprRef) bool { return r.root == varResult || r.root == varFacts })
}

type knownKey struct {
	e           *expr
	phase, held string
}

// known is what the phase and the ledger alone say of an expression; a nil value
// is: nothing.
type known struct{ value ref.Val }

func (p *prover) known(e *expr, phase string, held []string) known {
	key := knownKey{e: e, phase: phase}
	for _, name := range held {
		key.held += name + " "
	}
	k, ok := p.values[key]
	if !ok {
		k.value = p.partly(e, phase, held)
		p.values[key] = k
	}
	return k
}

// notKnown are the roots that depend on the object, the cluster and the time.
var notKnown = []string{varSelf, varResult, varGuards, varRequest, varChanged, varNow, varToken}

func (p *prover) partly(e *expr, phase string, held []string) ref.Val {
	patterns := []*cel.AttributePatternType{
		cel.AttributePattern(varPhase).QualString("age"),
		cel.AttributePattern(varPhase).QualString("attempts"),
	}
	for _, root := range notKnown {
		patterns = append(patterns, cel.AttributePattern(root))
	}
	facts := map[string]any{}
	for _, name := range e.reads(varFacts) {
		if k := p.known(p.m.prog.facts[name], phase, held); k.value != nil {
			facts[name] = k.value
		} else {
			patterns = append(patterns, cel.AttributePattern(varFacts).QualString(name))
		}
	}
	vars, err := cel.PartialVars(map[string]any{
		varPhase: map[string]any{"name": phase}, varHeld: append([]string{}, held...), varFacts: facts}, patterns...)
	if err != nil {
		return nil
	}
	v, _, err := e.prog.Eval(vars)
	if err != nil || types.IsUnknown(v) {
		return nil
	}
	return v
}
