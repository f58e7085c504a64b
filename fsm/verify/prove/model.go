package prove

import (
	"slices"

	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func newProver(m *fsm.Machine) *prover {
	p := &prover{machine: m, effects: effectsOf(m), index: map[string]int16{}, steps: map[*program.Step]*stepModel{}, fallible: map[*expr.Expr]int32{},
		values: map[knownKey]ref.Val{}, asked: map[heldKey]bool{}, ledgers: map[string][]string{}, loops: map[string]*v1alpha1.Loop{}, taken: map[edge]bool{},
		seen: map[state]int{}, violations: map[string]violation{}}
	p.prog = bare(m.Program())
	p.bare = m.With(p.prog, nil)
	for i, ph := range p.prog.Order {
		p.index[ph.Name] = int16(i)
		for _, q := range ph.Requirements {
			p.fallible[q.WhenExpr] = ph.Backoff.Attempts
		}
		for i := range ph.StepList {
			s := &ph.StepList[i]
			p.fallible[s.IfExpr] = s.Backoff.Attempts
			p.fallible[s.WaitExpr] = s.Backoff.Attempts
			p.steps[s] = p.modelOf(s, ph)
		}
	}
	return p
}

// The keys of a proof stand for any number of them.
var provedKeys = []string{"1", "2"}

// effectsOf are the effects of a machine, each key apart.
func effectsOf(m *fsm.Machine) (all program.EffectNames) {
	for _, name := range m.Definition().EffectNames() {
		all = append(all, heldAs(m.Program(), name)...)
	}
	return all
}

// heldAs are the names under which an effect can be held.
func heldAs(prog *program.Program, effect string) []string {
	if !prog.Effects[effect].Keyed {
		return []string{effect}
	}
	var all []string
	for _, key := range provedKeys {
		all = append(all, v1alpha1.Keyed(effect, key))
	}
	return all
}

// set has those of the effects of a file, whatever their key.
func (p *prover) set(effects ...string) (set program.EffectSet) {
	for _, name := range effects {
		set |= p.effects.Set(heldAs(p.machine.Program(), name)...)
	}
	return set
}

// bare copies a program without what only an object could fill in. What can fail
// about it is in the failures of each step.
func bare(of *program.Program) *program.Program {
	prog := *of
	prog.Phases, prog.Order, prog.Effects = map[string]*program.Phase{}, nil, map[string]program.Effect{}
	for name, e := range of.Effects {
		prog.Effects[name] = program.Effect{Effect: e.Effect, Keyed: e.Keyed, BoundAcquire: &program.Action{Use: e.BoundAcquire.Use}, BoundRelease: &program.Action{Use: e.BoundRelease.Use}}
	}
	for _, old := range of.Order {
		ph := *old
		ph.Text, ph.TimeoutExpr = nil, nil
		ph.Requirements, ph.StepList, ph.Exits = slices.Clone(old.Requirements), slices.Clone(old.StepList), slices.Clone(old.Exits)
		for i := range ph.Requirements {
			ph.Requirements[i].Text = nil
		}
		for i := range ph.StepList {
			ph.StepList[i].Text = nil
			ph.StepList[i].LimitExpr = nil    // whatever it comes to, the time passes
			ph.StepList[i].FailWhenExpr = nil // what it comes to is a failure of the action
			ph.StepList[i].Consecutive = 0    // until it was often enough is a way of not yet
			ph.StepList[i].Bound = &program.Action{Use: ph.StepList[i].Bound.Use}
		}
		for i := range ph.Exits {
			ph.Exits[i].Text = nil
		}
		prog.Phases[ph.Name] = &ph
		prog.Order = append(prog.Order, &ph)
	}
	return &prog
}

func (p *prover) modelOf(s *program.Step, ph *program.Phase) *stepModel {
	model := &stepModel{}
	for _, e := range p.machine.Definition().Spec.Effects { // by the file: a proof does not trust the program that runs
		switch s.Action {
		case "":
		case e.Acquire:
			model.takes = e.Name
		case e.Release:
			model.gives = e.Name
		}
	}
	model.failures = []failure{{Result: fsm.Result{Err: errForGood}}}
	for _, class := range retried(s, ph) {
		model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}})
		if s.Backoff.Attempts > 1 {
			model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}, last: true})
		}
	}
	return model
}

// retried are the classes of errors of a step that are not all alike.
func retried(s *program.Step, ph *program.Phase) []program.Class {
	named := []program.Class{program.ClassUnavailable}
	for _, e := range ph.OnError {
		if class := program.Class(e.Is); class != program.ClassAny && class != program.ClassTerminal && !slices.Contains(named, class) {
			named = append(named, class)
		}
	}
	for _, class := range s.Backoff.NonRetryable {
		if !slices.Contains(named, class) {
			named = append(named, class)
		}
	}
	return named
}
