package lint

import (
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// ledger checks that whatever is taken is released or kept, on every way, and
// that no way leads back from a point of no return.
func (c *linter) ledger() {
	f := c.newFlow(true)
	gives := f.givers()
	f.stop = func(e program.Edge, load program.EffectSet) program.EffectSet { return f.leaks(e, load, gives) }
	f.spread(c.def.Spec.Initial, arrives)
	for _, p := range c.prog.Order {
		if f.at[p.Name] != 0 {
			f.checkReleases(p) // of what is held without an accident
		}
	}
	f.recoveries()
	c.runs(f)
	for _, p := range c.prog.Order {
		if f.at[p.Name] == 0 {
			continue
		}
		f.checkEdges(p, gives)
		f.checkLetGo(p)
		f.checkTakenAgain(p)
		if p.PointOfNoReturn {
			c.checkNoReturn(p, f.at[p.Name])
		}
	}
}

// givers tells for each phase what is released or kept there or further on,
// without a deletion; or what is held for good by a phase of rest there, which is no accident.
func (f *flow) givers() map[string]program.EffectSet {
	all, meant := map[string]program.EffectSet{}, f.c.meant()
	for changed := true; changed; {
		changed = false
		for _, p := range f.c.prog.Order {
			own := all[p.Name] | f.effects.Set(p.Keeps...) | meant[p.Name]
			for i := range p.StepList {
				own |= f.gives(&p.StepList[i])
			}
			for _, e := range p.Edges() {
				if e.Kind != program.EdgeDelete {
					own |= all[e.To]
				}
			}
			changed = changed || own != all[p.Name]
			all[p.Name] = own
		}
	}
	return all
}

// meant is what phases of rest hold where nothing has been given up: a server that runs holds what it needs.
func (c *linter) meant() map[string]program.EffectSet {
	f := c.newFlow(true)
	f.stop = func(e program.Edge, load program.EffectSet) program.EffectSet {
		if givesUp(e) || e.Kind == program.EdgeDelete {
			return load
		}
		return 0
	}
	f.spread(c.def.Spec.Initial, arrives)
	rests := map[string]program.EffectSet{}
	for _, p := range c.prog.Order {
		if p.Terminal == v1alpha1.PhaseSuccess || p.Kind == v1alpha1.PhaseSteady {
			rests[p.Name] = f.through(p, func(*program.Step, program.EffectSet) {}) &^ arrives
		}
	}
	return rests
}

// leaks is what nobody releases any more once the edge was taken.
func (f *flow) leaks(e program.Edge, load program.EffectSet, gives map[string]program.EffectSet) program.EffectSet {
	to := f.c.prog.Phases[e.To]
	switch {
	case to.End || to.Terminal == v1alpha1.PhaseFailure:
		return load &^ arrives
	case givesUp(e):
		return load &^ arrives &^ gives[e.To]
	}
	return 0
}

func givesUp(e program.Edge) bool {
	return e.Kind == program.EdgeRetry || e.Kind == program.EdgeError || e.Kind == program.EdgeTimeout
}

func (f *flow) checkEdges(p *program.Phase, gives map[string]program.EffectSet) {
	for _, e := range p.Edges() {
		to := f.c.prog.Phases[e.To]
		leaks := f.leaks(e, f.load(p, e)&^f.effects.Set(to.Keeps...), gives)
		if leaks == 0 {
			continue
		}
		code, fix := "PG011", fmt.Sprintf("lead through a phase with undo: held, or list it under keeps: of %s", e.To)
		message := fmt.Sprintf("%s is entered while %s may be held, and releases nothing", e.To, f.list(leaks))
		if givesUp(e) {
			code, fix = "PG013", "lead to a phase that releases it and never gives up"
			message = fmt.Sprintf("%s gives up here while %s may be held, and from %s on nothing is released", p.Name, f.list(leaks), e.To)
		}
		f.c.findOnWay(e.Path, code, message, fix, f.trace(e, leaks&-leaks))
	}
}

// checkLetGo: an object that a deletion lets go at once must not hold anything.
func (f *flow) checkLetGo(p *program.Phase) {
	if p.OnDelete == nil || !p.OnDelete.Immediate {
		return
	}
	held := f.load(p, program.Edge{Kind: program.EdgeDelete}) &^ arrives
	if held != 0 {
		f.c.find(p.Path+".onDelete", "PG011", fmt.Sprintf("a deletion lets the object go while %s may be held", f.list(held)),
			"write onDelete: {to: P} and release in P")
	}
}

// taken are the effects that some step takes.
func (f *flow) taken() program.EffectSet {
	var all program.EffectSet
	for _, p := range f.c.prog.Order {
		for i := range p.StepList {
			all |= f.acquired(&p.StepList[i])
		}
	}
	return all
}

// checkReleases finds steps that never have anything to release. What an earlier
// phase keeps is not held any more, and still there: checkNoReturn looks at that.
func (f *flow) checkReleases(p *program.Phase) {
	var kept program.EffectSet
	for _, q := range f.c.prog.Order {
		kept |= f.effects.Set(q.Keeps...)
	}
	useful := map[*program.Step]bool{}
	f.through(p, func(s *program.Step, before program.EffectSet) {
		useful[s] = useful[s] || before&f.effects.Set(s.Releases) != 0
	})
	for i := range p.StepList {
		s := &p.StepList[i]
		if b := f.effects.Set(s.Releases); b != 0 && !useful[s] && b&kept&f.taken() == 0 {
			f.c.find(s.Path, "PG011", fmt.Sprintf("%s releases %s, which is not held here on any way", s.Action, s.Releases),
				"move the step behind the one that takes it, or exchange acquire and release of the effect")
		}
	}
}

// checkNoReturn follows what was taken before a point of no return: an undo must
// not meet it, nor a phase release it that is also a way back from before.
func (c *linter) checkNoReturn(from *program.Phase, held program.EffectSet) {
	f := c.newFlow(false)
	f.spread(from.Name, held|arrives)
	// The phases that are reached without passing a point of no return.
	_, before := c.prog.Walk(func(_ *program.Phase, e program.Edge) bool { return !c.prog.Phases[e.To].PointOfNoReturn }, c.def.Spec.Initial)
	found := map[string]func(){}
	for _, p := range c.prog.Order {
		if f.at[p.Name] == 0 {
			continue
		}
		f.through(p, func(s *program.Step, now program.EffectSet) {
			back := f.effects.Set(s.Releases) & f.effects.Set(from.Keeps...)
			if _, isBefore := before[p.Name]; s.Undo != "" || isBefore {
				back |= f.gives(s) & now &^ arrives
			}
			if back != 0 && found[p.Name] == nil {
				found[p.Name] = func() { c.findReturn(f, from, p, s, back) }
			}
		})
	}
	for _, p := range c.prog.Order {
		if report := found[p.Name]; report != nil && !f.behind(p, found) {
			report()
		}
	}
}

// behind tells whether the way to a phase leads through one of others: what is
// wrong there is enough to know.
func (f *flow) behind(p *program.Phase, others map[string]func()) bool {
	for {
		e, ok := f.via[carried{p.Name, arrives}]
		if !ok {
			return false
		}
		if others[e.From] != nil {
			return true
		}
		p = f.c.prog.Phases[e.From]
	}
}

func (c *linter) findReturn(f *flow, from, p *program.Phase, s *program.Step, back program.EffectSet) {
	path, trace := s.Path, []string(nil)
	if e, ok := f.via[carried{p.Name, arrives}]; ok {
		path, trace = e.Path, f.trace(e, arrives)
	}
	c.findOnWay(path, "PG012", fmt.Sprintf("%s is a point of no return, yet step %s of %s releases %s, which was taken before", from.Name, s.Label, p.Name, f.list(back)),
		fmt.Sprintf("lead to a phase that goes on, write onDelete: {hold: TEXT} where a deletion leads back, or list under keeps: of %s what stays", from.Name), trace)
}

// recoveries follows what may be held where a lost state is recovered.
func (f *flow) recoveries() {
	for i, q := range f.c.prog.Recover {
		to, load := f.c.prog.Phases[q.To], program.EffectSet(0)
		for _, name := range q.Holds {
			load |= f.effects.Set(name)
		}
		load &^= f.effects.Set(to.Keeps...)
		f.spread(q.To, load|arrives)
		if load != 0 && (to.End || to.Terminal == v1alpha1.PhaseFailure) {
			f.c.find(fmt.Sprintf("spec.recover[%d].to", i), "PG011", fmt.Sprintf("%s is entered while %s may be held, and releases nothing", q.To, f.list(load)),
				"lead to a phase with undo: held")
		}
	}
}
