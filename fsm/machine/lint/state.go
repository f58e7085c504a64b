package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// assigned is which state values have one in each phase, whatever way led there.
type assigned struct {
	c     *linter
	names program.EffectNames
	begun program.EffectSet
	at    map[string]program.EffectSet
	// by is an edge on which a phase lost one.
	by map[string]map[program.EffectSet]program.Edge
}

// unassigned finds what reads a state value that has none on some way there.
func (c *linter) unassigned() {
	f := &assigned{c: c, names: slices.Sorted(maps.Keys(c.prog.State)), at: map[string]program.EffectSet{}, by: map[string]map[program.EffectSet]program.Edge{}}
	if len(f.names) == 0 {
		return
	}
	for name, v := range c.prog.State {
		if v.Initial != nil {
			f.begun |= f.names.Set(name)
		}
	}
	f.follow()
	for _, p := range c.prog.Order {
		if has, reached := f.at[p.Name]; reached {
			f.check(p, has)
		}
	}
}

// follow spreads what is assigned along the edges until nothing changes: a phase has what all ways to it have.
func (f *assigned) follow() {
	f.at[f.c.def.Spec.Initial] = f.begun
	queue := []string{f.c.def.Spec.Initial}
	for _, q := range f.c.prog.Recover { // with the state, its values are lost
		f.at[q.To] = f.begun
		queue = append(queue, q.To)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		p := f.c.prog.Phases[queue[0]]
		for _, e := range p.Edges() {
			carried := f.at[p.Name] | f.sets(e)
			before, reached := f.at[e.To]
			if reached && before&carried == before {
				continue
			}
			if reached {
				f.lose(e, before&^carried)
				carried &= before
			} else {
				f.lose(e, ^carried)
			}
			f.at[e.To] = carried
			queue = append(queue, e.To)
		}
	}
}

func (f *assigned) lose(e program.Edge, lost program.EffectSet) {
	if f.by[e.To] == nil {
		f.by[e.To] = map[program.EffectSet]program.Edge{}
	}
	for _, name := range f.names {
		if b := f.names.Set(name); lost&b != 0 {
			f.by[e.To][b] = e
		}
	}
}

// sets are the values that an edge assigns.
func (f *assigned) sets(e program.Edge) (set program.EffectSet) {
	if e.Kind == program.EdgeNext { // any other leads on as well where nothing can be assigned
		for _, a := range e.Sets {
			set |= f.names.Set(a.Name)
		}
	}
	return set
}

// check looks at whatever is evaluated in a phase but texts for people, in which a value that is not there shows as "?".
func (f *assigned) check(p *program.Phase, has program.EffectSet) {
	look := func(path string, e *expr.Expr) {
		for _, name := range f.needs(e) {
			if b := f.names.Set(name); has&b == 0 && b != 0 {
				message, trace := fmt.Sprintf("state.%s may not be assigned here", name), []string(nil)
				if by, known := f.by[p.Name][b]; known {
					trace = []string{arrow(by)}
				}
				f.c.findOnWay(path, "PG023", message, fmt.Sprintf("assign it on every way to %s, give it an initial value, or ask has(state.%s)", p.Name, name), trace)
			}
		}
	}
	f.c.evaluated(p, look)
	for _, e := range p.Edges() {
		if e.Kind == program.EdgeNext {
			continue // looked at
		}
		for _, a := range e.Sets {
			look(a.Path, a.Expr)
		}
	}
}

// needs are the state values that an expression cannot do without, be it through variables.
func (f *assigned) needs(e *expr.Expr) (names []string) {
	f.c.through(e, func(e *expr.Expr) { names = append(names, e.Needs(expr.VarState)...) })
	return names
}
