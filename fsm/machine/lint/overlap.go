package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Bounds of the comparison of guards: combinations of values, and exits of a phase.
const (
	maxCases    = 4096
	maxCompared = 64
)

// cases is an expression over terms that are compared with constants: how each
// combination of values decides it can be told without knowing what the terms are.
type cases struct {
	tree *celast.AST
	// constants are what each term is compared with; none of a term that is a
	// boolean itself.
	constants map[string][]any
}

// values are one value for each term.
type values map[string]any

func newCases(text string) *cases {
	c := &cases{tree: expr.Parse(text), constants: map[string][]any{}}
	if c.tree == nil {
		return nil
	}
	expr.Decide(c.tree.Expr(), func(e celast.Expr) expr.Truth {
		term, _, constant := c.comparison(e)
		c.constants[term] = append(c.constants[term], constant)
		return expr.Perhaps
	})
	return c
}

// comparison takes `term op constant` apart, whichever way round it is written.
// Any other expression is a term that is compared with true.
func (c *cases) comparison(e celast.Expr) (term, op string, constant any) {
	if e.Kind() == celast.CallKind && len(e.AsCall().Args()) == 2 {
		op := e.AsCall().FunctionName()
		left, right := e.AsCall().Args()[0], e.AsCall().Args()[1]
		if left.Kind() == celast.LiteralKind {
			left, right, op = right, left, cmp.Or(mirrored[op], op)
		}
		if _, ok := compares[op]; ok && right.Kind() == celast.LiteralKind && left.Kind() != celast.LiteralKind {
			return c.text(left), op, right.AsLiteral().Value()
		}
	}
	return c.text(e), operators.Equals, true
}

func (c *cases) text(e celast.Expr) string {
	text, err := parser.Unparse(e, c.tree.SourceInfo())
	if err != nil {
		return fmt.Sprintf("expression %d", e.ID()) // equal to nothing else
	}
	return text
}

var (
	compares = map[string]func(order int) bool{
		operators.Equals:        func(o int) bool { return o == 0 },
		operators.NotEquals:     func(o int) bool { return o != 0 },
		operators.Less:          func(o int) bool { return o < 0 },
		operators.LessEquals:    func(o int) bool { return o <= 0 },
		operators.Greater:       func(o int) bool { return o > 0 },
		operators.GreaterEquals: func(o int) bool { return o >= 0 },
	}
	mirrored = map[string]string{
		operators.Less: operators.Greater, operators.Greater: operators.Less,
		operators.LessEquals: operators.GreaterEquals, operators.GreaterEquals: operators.LessEquals,
	}
)

// holds tells whether the expression is true with these values.
func (c *cases) holds(v values) bool {
	return expr.Decide(c.tree.Expr(), func(e celast.Expr) expr.Truth {
		term, op, constant := c.comparison(e)
		return expr.Certainly(compares[op](order(v[term], constant)))
	}) == expr.Always
}

// order compares two values of one type; true is more than false.
func order(a, b any) int {
	if x, ok := a.(bool); ok {
		a, b = fmt.Sprint(x), fmt.Sprint(b)
	}
	if x, ok := a.(string); ok {
		return cmp.Compare(x, b.(string))
	}
	return cmp.Compare(number(a), number(b))
}

func number(v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// samples are values of a term that decide the comparisons with the constants in
// every way that there is; nil when that is not known. Likely leaves out what a
// count could not be.
func samples(constants []any, likely bool) []any {
	var out []any
	kinds := map[string]bool{}
	for _, k := range constants {
		switch x := k.(type) {
		case bool:
			kinds["bool"] = true
		case string:
			kinds["string"] = true
			out = append(out, x, x+"\x00")
		case int64, uint64, float64:
			kinds["number"] = true
			for _, d := range []float64{-1, -0.5, 0, 0.5, 1} {
				out = append(out, number(x)+d)
			}
		default:
			kinds["?"] = true
		}
	}
	if len(kinds) > 1 || kinds["?"] {
		return nil
	}
	if kinds["bool"] {
		return []any{false, true}
	}
	if kinds["string"] {
		out = append(out, "")
	}
	slices.SortFunc(out, order)
	out = slices.Compact(out)
	if likely {
		out = slices.DeleteFunc(out, unlikely(constants))
	}
	return out
}

// unlikely leaves out what a count cannot be: half and negative numbers, unless
// the author wrote such a number.
func unlikely(constants []any) func(any) bool {
	wrote := func(is func(float64) bool) bool {
		return slices.ContainsFunc(constants, func(k any) bool { return is(number(k)) })
	}
	half := func(n float64) bool { return n != float64(int64(n)) }
	negative := func(n float64) bool { return n < 0 }
	return func(v any) bool {
		n, ok := v.(float64)
		return ok && (half(n) && !wrote(half) || negative(n) && !wrote(negative))
	}
}

// combinations are all values of the terms of several expressions; nil when they
// cannot be told or are too many.
func combinations(likely bool, all ...*cases) []values {
	constants := map[string][]any{}
	for _, c := range all {
		for term, ks := range c.constants {
			constants[term] = append(constants[term], ks...)
		}
	}
	out := []values{{}}
	for _, term := range slices.Sorted(maps.Keys(constants)) {
		of := samples(constants[term], likely)
		if len(of) == 0 || len(out)*len(of) > maxCases {
			return nil
		}
		var more []values
		for _, v := range out {
			for _, x := range of {
				w := maps.Clone(v)
				w[term] = x
				more = append(more, w)
			}
		}
		out = more
	}
	return out
}

// checkGuards compares the guards of a phase with each other.
func (c *linter) checkGuards(p *program.Phase) {
	if len(p.Exits) > maxCompared {
		return
	}
	earlier := map[int]*cases{}
	for j, x := range p.Exits {
		this := newCases(x.When)
		if this == nil || slices.ContainsFunc(p.Exits[:j], func(y program.Exit) bool { return y.When == x.When }) {
			continue // checkShadowed says it already
		}
		path := fmt.Sprintf("%s.next[%d].when", p.Path, j)
		if why, fix := this.closed(earlier); why != "" {
			c.find(path, "PG004", fmt.Sprintf("next[%d] is never taken: %s", j, why), fix)
		} else {
			c.checkOverlap(path, j, this, earlier)
		}
		earlier[j] = this
	}
}

// closed tells why a guard never opens an exit; empty when it may.
func (c *cases) closed(earlier map[int]*cases) (why, fix string) {
	// A guard that reads more than this one may fail where this one does not.
	if len(c.constants) == 0 {
		return "", "" // a constant is written on purpose
	}
	var first []*cases
	for _, e := range earlier {
		if e.readsOnly(c) {
			first = append(first, e)
		}
	}
	open := combinations(false, append(first, c)...)
	if open == nil {
		return "", ""
	}
	open = slices.DeleteFunc(open, func(v values) bool { return !c.holds(v) })
	switch {
	case len(open) == 0:
		return "its guard contradicts itself", "correct the guard, or remove the exit"
	case !slices.ContainsFunc(open, func(v values) bool {
		return !slices.ContainsFunc(first, func(e *cases) bool { return e.holds(v) })
	}):
		return "whenever its guard is true, so is one before it", "put the narrower guard first"
	}
	return "", ""
}

func (c *cases) readsOnly(what *cases) bool {
	for term := range c.constants {
		if _, ok := what.constants[term]; !ok {
			return false
		}
	}
	return true
}

// checkOverlap finds two guards on one and the same term that are true together for
// some of its values, and neither of which is a part of the other: that would be
// the usual way to write the special case first.
func (c *linter) checkOverlap(path string, j int, this *cases, earlier map[int]*cases) {
	for _, i := range slices.Sorted(maps.Keys(earlier)) {
		other := earlier[i]
		if len(this.constants) != 1 || len(other.constants) != 1 || !other.readsOnly(this) {
			continue
		}
		if both := this.overlap(other); both != nil {
			c.find(path, "PG102", fmt.Sprintf("the guards of next[%d] and next[%d] are both true where %s: the first is taken", i, j, both), "say in one of them what the other excludes")
		}
	}
}

// overlap is a case in which both are true, if there are also cases for each alone.
func (c *cases) overlap(other *cases) values {
	var both values
	alone := map[bool]bool{}
	for _, v := range combinations(true, c, other) {
		switch a, b := c.holds(v), other.holds(v); {
		case a && b:
			both = v
		case a || b:
			alone[a] = true
		}
	}
	if len(alone) < 2 {
		return nil
	}
	return both
}

// String is what the values are, for people.
func (v values) String() string {
	var parts []string
	for _, term := range slices.Sorted(maps.Keys(v)) {
		parts = append(parts, fmt.Sprintf("%s is %v", term, v[term]))
	}
	return strings.Join(parts, ", ")
}
