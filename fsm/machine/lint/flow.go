package lint

import (
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// arrives is in a set of what may be held if a run gets there at all.
const arrives program.EffectSet = 1 << 63

// flow is which effects may be held where: a bit that is not set is surely not
// held. It overlooks what guards say of anything but `held`.
type flow struct {
	c       *linter
	effects program.EffectNames
	// at is what may be held in a phase before one of its steps.
	at map[string]program.EffectSet
	// via is the edge that first brought a bit into a phase.
	via map[carried]program.Edge
	// takes: acquiring steps count. Without it, only what was there at the start is followed.
	takes bool
	// stop says what of an edge's load does not travel on.
	stop func(e program.Edge, load program.EffectSet) program.EffectSet
}

type carried struct {
	phase string
	bit   program.EffectSet
}

func (c *linter) newFlow(takes bool) *flow {
	return &flow{c: c, effects: c.def.EffectNames(), at: map[string]program.EffectSet{}, via: map[carried]program.Edge{}, takes: takes}
}

// spread follows a load from a phase along every way.
func (f *flow) spread(start string, load program.EffectSet) {
	f.at[start] |= load
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		p := f.c.prog.Phases[queue[0]]
		for _, e := range p.Edges() {
			to := f.c.prog.Phases[e.To]
			load := f.load(p, e) &^ f.effects.Set(to.Keeps...)
			if f.stop != nil {
				load &^= f.stop(e, load)
			}
			fresh := load &^ f.at[e.To]
			if fresh == 0 {
				continue
			}
			for i := range 64 {
				if b := program.EffectSet(1) << i; fresh&b != 0 {
					f.via[carried{e.To, b}] = e
				}
			}
			f.at[e.To] |= fresh
			queue = append(queue, e.To)
		}
	}
}

// load is what may be held when an edge is taken. Exits are looked at after the
// steps; an error, a deadline or a deletion may come between any two of them.
func (f *flow) load(p *program.Phase, e program.Edge) program.EffectSet {
	switch e.Kind {
	case program.EdgeRequire: // asked only while nothing is held
		return arrives & f.at[p.Name]
	case program.EdgeNext:
		return f.passing(p, e, f.through(p, func(*program.Step, program.EffectSet) {}))
	}
	all := f.at[p.Name]
	f.through(p, func(s *program.Step, before program.EffectSet) { all |= before | f.acquired(s) })
	return all
}

// passing leaves out what closes the exit while it is held.
func (f *flow) passing(p *program.Phase, e program.Edge, held program.EffectSet) program.EffectSet {
	for i, x := range p.Exits {
		if e.Path != program.NextPath(p, i) {
			continue
		}
		for i, name := range f.effects {
			if b := program.EffectSet(1) << i; held&b != 0 && f.c.whileHeld(x.WhenExpr, name) == expr.Never {
				held &^= b
			}
		}
	}
	return held
}

// through walks the steps and tells what may be held before each; the answer is
// what may be held after the last.
func (f *flow) through(p *program.Phase, before func(*program.Step, program.EffectSet)) program.EffectSet {
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

func (f *flow) acquired(s *program.Step) program.EffectSet {
	if !f.takes {
		return 0
	}
	return f.effects.Set(s.Acquires)
}

// released is what a step releases for certain.
func (f *flow) released(s *program.Step, held program.EffectSet) program.EffectSet {
	if s.Loop != nil || s.KeysExpr != nil {
		return 0 // perhaps for some of its keys
	}
	may := f.gives(s) & held
	for i, name := range f.effects {
		if b := program.EffectSet(1) << i; may&b != 0 && f.c.whileHeld(s.IfExpr, name) != expr.Always {
			may &^= b
		}
	}
	return may
}

// gives is what a step may release.
func (f *flow) gives(s *program.Step) program.EffectSet {
	switch s.Undo {
	case "":
	case program.UndoHeld:
		return ^arrives
	default:
		return f.effects.Set(s.Undo)
	}
	return f.effects.Set(s.Releases)
}

func (f *flow) list(set program.EffectSet) string { return strings.Join(f.effects.In(set), ", ") }

// trace is the way on which a bit came to the end of an edge.
func (f *flow) trace(last program.Edge, b program.EffectSet) []string {
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

func (f *flow) takenIn(p *program.Phase, b program.EffectSet) *program.Step {
	for i := range p.StepList {
		if f.acquired(&p.StepList[i])&b != 0 {
			return &p.StepList[i]
		}
	}
	return nil
}

// whileHeld tells what a guard comes to while an effect is held; nil is always true.
func (c *linter) whileHeld(e *expr.Expr, effect string) expr.Truth {
	if e == nil {
		return expr.Always
	}
	key := [2]string{e.Text, effect}
	if known, ok := c.whileHolding[key]; ok {
		return known
	}
	found := c.decideHeld(e, effect)
	c.whileHolding[key] = found
	return found
}

func (c *linter) decideHeld(e *expr.Expr, effect string) expr.Truth {
	tree := expr.Parse(e.Text)
	if tree == nil {
		return expr.Perhaps
	}
	var atom func(celast.Expr) expr.Truth
	atom = func(e celast.Expr) expr.Truth {
		if r := expr.Selected(e); len(r) == 2 && r[0] == expr.VarVariables {
			if variable := c.prog.Variables[r[1]]; variable != nil {
				if tree := expr.Parse(variable.Text); tree != nil {
					return expr.Decide(tree.Expr(), atom)
				}
			}
		}
		return asksHeld(e, effect)
	}
	return expr.Decide(tree.Expr(), atom)
}

// asksHeld knows `"effect" in held` and comparisons of held's size with 0.
func asksHeld(e celast.Expr, effect string) expr.Truth {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return expr.Perhaps
	}
	call := e.AsCall()
	left, right := call.Args()[0], call.Args()[1]
	if call.FunctionName() == operators.In {
		if isIdent(right, expr.VarHeld) && isLiteral(left, effect) {
			return expr.Always
		}
		return expr.Perhaps
	}
	if !isSizeOfHeld(left) || !isLiteral(right, int64(0)) {
		return expr.Perhaps
	}
	switch call.FunctionName() {
	case operators.Greater, operators.NotEquals:
		return expr.Always
	case operators.Equals, operators.LessEquals:
		return expr.Never
	}
	return expr.Perhaps
}

func isIdent(e celast.Expr, name string) bool {
	return e.Kind() == celast.IdentKind && e.AsIdent() == name
}

func isLiteral(e celast.Expr, value any) bool {
	return e.Kind() == celast.LiteralKind && e.AsLiteral().Value() == value
}

// isSizeOfHeld reads size(held) and held.size().
func isSizeOfHeld(e celast.Expr) bool {
	if e.Kind() != celast.CallKind || e.AsCall().FunctionName() != "size" {
		return false
	}
	call := e.AsCall()
	return call.IsMemberFunction() && isIdent(call.Target(), expr.VarHeld) ||
		len(call.Args()) == 1 && isIdent(call.Args()[0], expr.VarHeld)
}
