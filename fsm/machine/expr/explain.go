package expr

import (
	"context"
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// cause is an expression taken apart at its logical operators, as far as one part
// can decide the whole.
type cause struct {
	// op is a logical operator; empty in a part that is told as a whole.
	op    string
	id    int64
	parts []*cause
	text  string
	binds binding
	// refs is what is told of a whole.
	refs []exprRef
	loop *loop
}

// binding is how tightly a text holds together, for the parentheses around it.
type binding int

const (
	bindsCondition binding = iota // a ? b : c
	bindsOr
	bindsAnd
	bindsOther // a == b
	bindsTight // a.b
)

func bindingOf(e celast.Expr) binding {
	if e.Kind() != celast.CallKind || e.AsCall().IsMemberFunction() {
		return bindsTight
	}
	switch e.AsCall().FunctionName() {
	case operators.Conditional:
		return bindsCondition
	case operators.LogicalOr:
		return bindsOr
	case operators.LogicalAnd:
		return bindsAnd
	case operators.LogicalNot, operators.Index, operators.OptIndex, operators.OptSelect:
		return bindsTight
	}
	return bindsOther
}

// loop is an all() or an exists(), which end at the element that decides.
type loop struct {
	// ends is the value of a loop that ended at an element.
	ends bool
	// refs is what is told of that element.
	refs []exprRef
}

func causeOf(text string, a *celast.AST, e celast.Expr) *cause {
	c := &cause{id: e.ID(), text: partText(text, a, e), binds: bindingOf(e)}
	if e.Kind() == celast.CallKind {
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional:
			c.op = e.AsCall().FunctionName()
			for _, arg := range e.AsCall().Args() {
				c.parts = append(c.parts, causeOf(text, a, arg))
			}
			return c
		}
	}
	c.refs = references(text, a, e, isRoot)
	c.loop = loopOf(text, a, e)
	return c
}

func loopOf(text string, a *celast.AST, e celast.Expr) *loop {
	call, isMacro := a.SourceInfo().GetMacroCall(e.ID())
	if e.Kind() != celast.ComprehensionKind || !isMacro {
		return nil
	}
	name := call.AsCall().FunctionName()
	if name != operators.All && name != operators.Exists {
		return nil
	}
	element := func(root string) bool {
		return isRoot(root) || root == e.AsComprehension().IterVar() || root == e.AsComprehension().IterVar2()
	}
	return &loop{ends: name == operators.Exists, refs: references(text, a, e.AsComprehension().LoopStep(), element)}
}

// partText is a part of an expression on one line.
func partText(text string, a *celast.AST, e celast.Expr) string {
	part, err := parser.Unparse(e, a.SourceInfo(), parser.WrapOnColumn(2*maxExprSize))
	if err != nil {
		return text
	}
	return part
}

type decided struct {
	*cause
	value bool
}

// reason is the part of an expression that gave it its value.
type reason struct {
	text  string
	binds binding
	parts []decided
}

func (r reason) within(b binding) string {
	if r.binds < b {
		return "(" + r.text + ")"
	}
	return r.text
}

func (c *cause) whole(value bool) reason {
	return reason{c.text, c.binds, []decided{{c, value}}}
}

// why answers the part that gave the expression its value. Parts that were not
// evaluated decided nothing.
func (c *cause) why(value bool, state interpreter.EvalState) reason {
	switch c.op {
	case operators.LogicalNot:
		r := c.parts[0].why(!value, state)
		return reason{"!" + r.within(bindsTight), bindsTight, r.parts}
	case operators.Conditional:
		return c.branch(value, state)
	case operators.LogicalAnd:
		return c.side(value, !value, " && ", state)
	case operators.LogicalOr:
		return c.side(value, value, " || ", state)
	}
	return c.whole(value)
}

// side tells the one part that was enough, or all parts where it took all.
func (c *cause) side(value, oneIsEnough bool, sign string, state interpreter.EvalState) reason {
	all := reason{binds: c.binds}
	var texts []string
	for _, p := range c.parts {
		if oneIsEnough {
			if v, seen := truthOf(p.id, state); seen && v == value {
				return p.why(value, state)
			}
			continue
		}
		r := p.why(value, state)
		texts, all.parts = append(texts, r.within(c.binds)), append(all.parts, r.parts...)
	}
	if oneIsEnough {
		return c.whole(value)
	}
	all.text = strings.Join(texts, sign)
	return all
}

// branch tells the branch that was taken, and the values that chose it. A branch
// that is a constant says nothing without its condition.
func (c *cause) branch(value bool, state interpreter.EvalState) reason {
	chosen, seen := truthOf(c.parts[0].id, state)
	if !seen {
		return c.whole(value)
	}
	taken := c.parts[2]
	if chosen {
		taken = c.parts[1]
	}
	r := taken.why(value, state)
	if taken.op == "" && len(taken.refs) == 0 {
		r.text, r.binds = c.text, c.binds
	}
	r.parts = append(c.parts[0].why(chosen, state).parts, r.parts...)
	return r
}

// failed answers the part that could not be evaluated.
func (c *cause) failed(state interpreter.EvalState) string {
	for _, p := range c.parts {
		if v, ok := state.Value(p.id); ok && types.IsError(v) {
			return p.failed(state)
		}
	}
	return c.text
}

func truthOf(id int64, state interpreter.EvalState) (value, seen bool) {
	v, ok := state.Value(id)
	if !ok {
		return false, false
	}
	b, isBool := v.(types.Bool)
	return bool(b), isBool
}

// Why evaluates an expression once more, for the part of it that gave it its value, and the values in that part. Seen is
// what a guard of the program says of itself, which explains more than its value. What changes by itself is left
// out: each look would be a status write. It has no limit of its own: what cost too much the first time is not watched.
func (e *Expr) Why(ctx context.Context, vars variables, value bool, seen func(guard string) string) (because, got string) {
	state := e.states(ctx, vars)
	r := e.cause.why(value, state)
	var values []string
	for _, part := range r.parts {
		for _, ref := range part.tells(state) {
			text := ""
			if ref.root == VarGuards {
				text = seen(ref.field)
			}
			if text == "" {
				text = part.seen(ref, state)
			}
			if text != "" && !slices.Contains(values, text) {
				values = append(values, text)
			}
		}
	}
	return Clip(r.text, v1alpha1.TextLimit), Clip(strings.Join(values, ", "), v1alpha1.TextLimit)
}

// Failed evaluates an expression once more, for the part of it that could not be.
func (e *Expr) Failed(ctx context.Context, vars variables) string {
	return Clip(e.cause.failed(e.states(ctx, vars)), v1alpha1.TextLimit)
}

// states is what each part of the expression came to.
func (e *Expr) states(ctx context.Context, vars variables) interpreter.EvalState {
	_, details, _ := e.watch.ContextEval(ctx, vars)
	return details.State()
}

// tells lists what is told of a part: of a loop that ended early, the element that
// ended it.
func (d decided) tells(state interpreter.EvalState) []exprRef {
	if d.loop == nil || d.loop.ends != d.value {
		return d.refs
	}
	for _, r := range d.loop.refs {
		if _, known := state.Value(r.id); known && !isRoot(r.root) {
			return d.loop.refs
		}
	}
	return d.refs
}

// seen tells the value of a reference; empty where it was not evaluated.
func (d decided) seen(r exprRef, state interpreter.EvalState) string {
	v, ok := state.Value(r.id)
	switch {
	case r.root == VarNow, r.text == VarPhase, r.text == VarPhase+".age":
		return ""
	case ok && !types.IsUnknownOrError(v):
		return r.text + " = " + Clip(Show(v), 120)
	case r.id == d.id: // a branch of ?: is not observed on its own
		return fmt.Sprintf("%s = %t", r.text, d.value)
	}
	return ""
}
