package prove

import (
	"slices"

	"github.com/google/cel-go/common/types/ref"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func newProver(m *fsm.Machine) *prover {
	p := &prover{machine: m, effects: m.Definition().EffectNames(), index: map[string]int16{}, steps: map[*program.Step]*stepModel{}, fallible: map[*expr.Expr]int32{},
		values: map[knownKey]ref.Val{}, asked: map[heldKey]bool{}, ledgers: map[string][]string{}, taken: map[edge]bool{},
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
			p.steps[s] = p.modelOf(s, ph)
		}
	}
	return p
}

// bare copies a program without what only an object could fill in. What can fail
// about it is in the failures of each step.
func bare(of *program.Program) *program.Program {
	prog := *of
	prog.Phases, prog.Order, prog.Effects = map[string]*program.Phase{}, nil, map[string]program.Effect{}
	for name, e := range of.Effects {
		prog.Effects[name] = program.Effect{Effect: e.Effect, BoundAcquire: &program.Action{Use: e.BoundAcquire.Use}, BoundRelease: &program.Action{Use: e.BoundRelease.Use}}
	}
	for _, old := range of.Order {
		ph := *old
		ph.Text = nil
		ph.Requirements, ph.StepList, ph.Exits = slices.Clone(old.Requirements), slices.Clone(old.StepList), slices.Clone(old.Exits)
		for i := range ph.Requirements {
			ph.Requirements[i].Text = nil
		}
		for i := range ph.StepList {
			ph.StepList[i].Text = nil
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
			model.takes |= p.effects.Set(e.Name)
		case e.Release:
			model.gives |= p.effects.Set(e.Name)
		}
	}
	named := []program.Class{program.ClassUnavailable}
	for _, e := range ph.OnError {
		if class := program.Class(e.Is); class != program.ClassAny && class != program.ClassTerminal && !slices.Contains(named, class) {
			named = append(named, class)
		}
	}
	model.failures = []failure{{Result: fsm.Result{Err: errForGood}}}
	for _, class := range named {
		model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}})
		if s.Backoff.Attempts > 1 {
			model.failures = append(model.failures, failure{Result: fsm.Result{Err: errForNow, Class: class}, last: true})
		}
	}
	return model
}
