package program

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Reserved names of events, for what a file gives no reason of its own. The name of an event that leads on
// is the reason of the transition: in the history, in Events and in metrics.
const (
	reasonTimeout   = "Timeout"
	ReasonDeletion  = "DeletionRequested"
	reasonRequire   = "RequirementNotMet"
	ReasonExhausted = "RetriesExhausted"
	reasonRecovered = "StateRecovered"
	ReasonReplaced  = "PhaseReplaced"
)

// NoPhase is where an object stands of which nothing is stored. No phase can have the name; an empty one
// would be taken for that of the generic callbacks.
const NoPhase = "(new)"

// add makes an event. The answer is false where there is another one of the name: looplab/fsm would take the second
// for the first, and say nothing.
func (s *PhaseEvents) add(name, to string, m Meaning) bool {
	if same, taken := s.Means[name]; taken {
		if !same.unnamed || !m.unnamed || s.Leads(name) != to {
			return false
		}
		same.Guards = append(same.Guards, m.Guards...)
		s.Means[name] = same
		return true
	}
	s.Means[name] = m
	s.Events = append(s.Events, looplab.EventDesc{Name: name, Src: []string{s.Name}, Dst: to})
	return true
}

// Leads is where an event leads; empty: there is no such event.
func (s *PhaseEvents) Leads(name string) string {
	for _, e := range s.Events {
		if e.Name == name {
			return e.Dst
		}
	}
	return ""
}

func (g *graph) newSource(name string) *PhaseEvents {
	s := &PhaseEvents{Name: name, Means: map[string]Meaning{}}
	g.prog.Events[name] = s
	return s
}

// events makes the events of all sources, and finds two of one name.
func (g *graph) events() {
	g.prog.Events = map[string]*PhaseEvents{}
	g.beginnings()
	if u := g.def.Spec.Upgrade; u != nil {
		for _, old := range slices.Sorted(maps.Keys(u.PhaseMap)) {
			if g.prog.Phases[old] == nil { // else it is found elsewhere
				g.newSource(old).add(ReasonReplaced, u.PhaseMap[old], Meaning{Guards: []*expr.Expr{nil}, Renames: true})
			}
		}
	}
	for _, p := range g.prog.Order {
		g.phaseEvents(p)
	}
}

// beginnings are the ways into a first phase.
func (g *graph) beginnings() {
	s := g.newSource(NoPhase)
	s.add(ReasonCreated, g.def.Spec.Initial, Meaning{Guards: []*expr.Expr{nil}})
	first := map[string]string{}
	for i, q := range g.prog.Recover {
		g.event(s, first, fmt.Sprintf("spec.recover[%d]", i), RecoverEvent(q), q.To, Meaning{Guards: []*expr.Expr{q.WhenExpr}, unnamed: q.Reason == ""})
	}
}

func (g *graph) phaseEvents(p *Phase) {
	s, first := g.newSource(p.Name), map[string]string{}
	for i := range p.StepList {
		if step := &p.StepList[i]; step.WaitFor == 0 { // a wait calls nothing
			g.event(s, first, step.Path, step.Label, p.Name, Meaning{})
		}
	}
	guards := map[string]*expr.Expr{}
	for i, x := range p.Exits {
		guards[NextPath(p, i)] = x.WhenExpr
	}
	for _, e := range p.Edges() {
		g.event(s, first, e.Path, e.Event, e.To, Meaning{Guards: []*expr.Expr{guards[e.Path]}, unnamed: e.Reason == ""})
	}
}

// event adds what stands at a path, or finds that there is another event of its name; first is where each stands first.
func (g *graph) event(s *PhaseEvents, first map[string]string, path, name, to string, m Meaning) {
	if s.add(name, to, m) {
		first[name] = cmp.Or(first[name], path)
		return
	}
	at := "by the engine"
	if first[name] != "" {
		at = fmt.Sprintf("in line %d", g.def.Pos(first[name]).Line)
	}
	g.find(path, "PG000", fmt.Sprintf("there is another %s here, %s: steps and transitions are known by their names, and by nothing else", name, at),
		"give it a reason: of its own, or a step a name:")
}

// NextPath is where the target of an exit stands in the file: Edge.Path of its edge.
func NextPath(p *Phase, i int) string { return fmt.Sprintf("%s.next[%d].to", p.Path, i) }

// RecoverEvent leads a lost object to its phase.
func RecoverEvent(q Recovery) string { return cmp.Or(q.Reason, reasonRecovered) }

// ReasonCreated is the reason of the first transition of an object that is new.
const ReasonCreated = "Created"
