package fsm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm/expr"
)

// Reserved names of events, for what a file gives no reason of its own. The name of an event that leads on
// is the reason of the transition: in the history, in Events and in metrics.
const (
	reasonTimeout   = "Timeout"
	reasonDeletion  = "DeletionRequested"
	reasonRequire   = "RequirementNotMet"
	reasonExhausted = "RetriesExhausted"
	reasonRecovered = "StateRecovered"
	reasonReplaced  = "PhaseReplaced"
)

// unborn is where an object stands of which nothing is stored. No phase can have the name; an empty one
// would be taken for that of the generic callbacks.
const unborn = "(new)"

// source is all that can happen in one phase. Its events are what looplab/fsm is made of for a pass that comes to one;
// they are made once, and never changed.
type source struct {
	name   string
	events []looplab.EventDesc
	// means is what each of them is.
	means map[string]meaning
}

// meaning is what an event of a source is.
type meaning struct {
	// guards are those that may open it, nil for none: of several exits where a file gives them no reasons.
	guards []*expr.Expr
	// unnamed: the file gives it no reason. It may stand for all ways to one phase that have none.
	unnamed bool
	// renames: the visit goes on under another name.
	renames bool
}

// add makes an event. The answer is false where there is another one of the name: looplab/fsm would take the second
// for the first, and say nothing.
func (s *source) add(name, to string, m meaning) bool {
	if same, taken := s.means[name]; taken {
		if !same.unnamed || !m.unnamed || s.leads(name) != to {
			return false
		}
		same.guards = append(same.guards, m.guards...)
		s.means[name] = same
		return true
	}
	s.means[name] = m
	s.events = append(s.events, looplab.EventDesc{Name: name, Src: []string{s.name}, Dst: to})
	return true
}

// leads is where an event leads; empty: there is no such event.
func (s *source) leads(name string) string {
	for _, e := range s.events {
		if e.Name == name {
			return e.Dst
		}
	}
	return ""
}

func (c *compiler) newSource(name string) *source {
	s := &source{name: name, means: map[string]meaning{}}
	c.prog.sources[name] = s
	return s
}

// events makes the events of all sources, and finds two of one name.
func (c *compiler) events() {
	c.prog.sources = map[string]*source{}
	c.beginnings()
	if u := c.def.Spec.Upgrade; u != nil {
		for _, old := range slices.Sorted(maps.Keys(u.PhaseMap)) {
			if c.prog.phases[old] == nil { // else it is found elsewhere
				c.newSource(old).add(reasonReplaced, u.PhaseMap[old], meaning{guards: []*expr.Expr{nil}, renames: true})
			}
		}
	}
	for _, p := range c.prog.order {
		c.phaseEvents(p)
	}
}

// beginnings are the ways into a first phase.
func (c *compiler) beginnings() {
	s := c.newSource(unborn)
	s.add(ReasonCreated, c.def.Spec.Initial, meaning{guards: []*expr.Expr{nil}})
	first := map[string]string{}
	for i, q := range c.prog.recover {
		path, name := fmt.Sprintf("spec.recover[%d]", i), recoverEvent(q)
		if !s.add(name, q.To, meaning{guards: []*expr.Expr{q.when}, unnamed: q.Reason == ""}) {
			c.sameName(path, name, first[name])
			continue
		}
		first[name] = cmp.Or(first[name], path)
	}
}

func (c *compiler) phaseEvents(p *phase) {
	s, first := c.newSource(p.Name), map[string]string{}
	add := func(path, name, to string, m meaning) {
		if !s.add(name, to, m) {
			c.sameName(path, name, first[name])
			return
		}
		first[name] = cmp.Or(first[name], path)
	}
	for i := range p.steps {
		for _, name := range c.stepEvents(&p.steps[i]) {
			add(p.steps[i].path, name, p.Name, meaning{})
		}
	}
	guards := map[string]*expr.Expr{}
	for i, x := range p.next {
		guards[nextPath(p, i)] = x.when
	}
	for _, e := range p.edges() {
		add(e.Path, e.Event, e.To, meaning{guards: []*expr.Expr{guards[e.Path]}, unnamed: e.Reason == ""})
	}
}

func (c *compiler) sameName(path, name, first string) {
	at := "in line " + fmt.Sprint(c.def.Pos(first).Line)
	if first == "" {
		at = "by the engine"
	}
	c.find(path, "PG000", fmt.Sprintf("there is another %s here, %s: steps and transitions are known by their names, and by nothing else", name, at),
		"give it a reason: of its own, or a step a name:")
}

// stepEvents are the events of a step: one for its action, or one for each effect that it may give back. A wait calls nothing.
func (c *compiler) stepEvents(s *step) []string {
	switch {
	case s.Undo != "":
		var names []string
		for _, e := range c.def.Spec.Effects {
			names = append(names, undoEvent(s.name, e.Name))
		}
		return names
	case s.Action != "":
		return []string{s.name}
	}
	return nil
}

func nextPath(p *phase, i int) string { return fmt.Sprintf("%s.next[%d].to", p.path, i) }

// undoEvent gives back one effect.
func undoEvent(step, effect string) string { return step + "/" + effect }

func recoverEvent(q recovery) string { return cmp.Or(q.Reason, reasonRecovered) }
