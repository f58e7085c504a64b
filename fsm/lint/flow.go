package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// effectSet holds one bit for each effect, in the order of the file, and one that
// says whether a run gets there at all.
type effectSet uint64

const arrives effectSet = 1 << 63

func bit(i int) effectSet { return 1 << i }

// flow is which effects may be held where: a bit that is not set is surely not
// held. It overlooks what guards say of anything but `held`.
type flow struct {
	c     *linter
	bits  map[string]effectSet
	names []string
	// at is what may be held in a phase before one of its steps.
	at map[string]effectSet
	// via is the edge that first brought a bit into a phase.
	via map[carried]program.Edge
	// takes: acquiring steps count. Without it, only what was there at the start is followed.
	takes bool
	// stop says what of an edge's load does not travel on.
	stop func(e program.Edge, load effectSet) effectSet
}

type carried struct {
	phase string
	bit   effectSet
}

func (c *linter) newFlow(takes bool) *flow {
	f := &flow{c: c, bits: map[string]effectSet{}, at: map[string]effectSet{}, via: map[carried]program.Edge{}, takes: takes}
	for i, e := range c.def.Spec.Effects {
		f.bits[e.Name] = bit(i)
		f.names = append(f.names, e.Name)
	}
	return f
}

// spread follows a load from a phase along every way.
func (f *flow) spread(start string, load effectSet) {
	f.at[start] |= load
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		p := f.c.prog.Phases[queue[0]]
		for _, e := range p.Edges() {
			to := f.c.prog.Phases[e.To]
			load := f.load(p, e) &^ f.kept(to)
			if f.stop != nil {
				load &^= f.stop(e, load)
			}
			fresh := load &^ f.at[e.To]
			if fresh == 0 {
				continue
			}
			for i := range 64 {
				if fresh&bit(i) != 0 {
					f.via[carried{e.To, bit(i)}] = e
				}
			}
			f.at[e.To] |= fresh
			queue = append(queue, e.To)
		}
	}
}

// load is what may be held when an edge is taken. Exits are looked at after the
// steps; an error, a deadline or a deletion may come between any two of them.
func (f *flow) load(p *program.Phase, e program.Edge) effectSet {
	switch e.Kind {
	case program.EdgeRequire: // asked only while nothing is held
		return arrives & f.at[p.Name]
	case program.EdgeNext:
		return f.passing(p, e, f.through(p, func(*program.Step, effectSet) {}))
	}
	all := f.at[p.Name]
	f.through(p, func(s *program.Step, before effectSet) { all |= before | f.acquired(s) })
	return all
}

// passing leaves out what closes the exit while it is held.
func (f *flow) passing(p *program.Phase, e program.Edge, held effectSet) effectSet {
	for i, x := range p.Exits {
		if e.Path != program.NextPath(p, i) {
			continue
		}
		for name, b := range f.bits {
			if held&b != 0 && f.c.whileHeld(x.WhenExpr, name) == expr.Never {
				held &^= b
			}
		}
	}
	return held
}

// through walks the steps and tells what may be held before each; the answer is
// what may be held after the last.
func (f *flow) through(p *program.Phase, before func(*program.Step, effectSet)) effectSet {
	held := f.at[p.Name]
	// With its exits closed a phase begins again, with what it holds by then.
	for range 2 {
		for i := range p.StepList {
			s := &p.StepList[i]
			before(s, held)
			held = held&^f.released(s, held) | f.acquired(s)
		}
	}
	return held
}

func (f *flow) acquired(s *program.Step) effectSet {
	if !f.takes {
		return 0
	}
	return f.bits[s.Acquires]
}

// released is what a step gives back for certain.
func (f *flow) released(s *program.Step, held effectSet) effectSet {
	may := f.gives(s) & held
	for name, b := range f.bits {
		if may&b != 0 && f.c.whileHeld(s.IfExpr, name) != expr.Always {
			may &^= b
		}
	}
	return may
}

// gives is what a step may give back.
func (f *flow) gives(s *program.Step) effectSet {
	if s.Undo != "" {
		return ^arrives
	}
	return f.bits[s.Releases]
}

func (f *flow) kept(p *program.Phase) effectSet {
	var set effectSet
	for _, name := range p.Keeps {
		set |= f.bits[name]
	}
	return set
}

// list names the effects of a set.
func (f *flow) list(set effectSet) string {
	var names []string
	for _, name := range f.names {
		if set&f.bits[name] != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// trace is the way on which a bit came to the end of an edge.
func (f *flow) trace(last program.Edge, b effectSet) []string {
	way := []string{arrow(last)}
	for phase := f.c.prog.Phases[last.From]; ; {
		if s := f.takenIn(phase, b); s != nil {
			way = append(way, fmt.Sprintf("%s: step %s takes %s", phase.Name, s.Label, s.Acquires))
			break
		}
		e, ok := f.via[carried{phase.Name, b}]
		if !ok {
			break
		}
		way = append(way, arrow(e))
		phase = f.c.prog.Phases[e.From]
	}
	slices.Reverse(way)
	return way
}

func (f *flow) takenIn(p *program.Phase, b effectSet) *program.Step {
	for i := range p.StepList {
		if f.acquired(&p.StepList[i])&b != 0 {
			return &p.StepList[i]
		}
	}
	return nil
}
