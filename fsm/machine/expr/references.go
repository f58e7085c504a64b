package expr

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// isRoot tells whether a name is one of those that an expression can see.
func isRoot(name string) bool { return name == VarSelf || rootTypes[name] != nil }

// selectByName rewrites result["n"] into result.n, so that the type checker knows
// what it is. self has names that only an index can say.
func selectByName(a *celast.AST) {
	build := celast.NewExprFactory()
	celast.PreOrderVisit(a.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.CallKind || e.AsCall().FunctionName() != operators.Index {
			return
		}
		links := chainOf(e)
		if len(links) == 0 || links[0].name == VarSelf || !isRoot(links[0].name) {
			return
		}
		e.SetKindCase(build.NewSelect(e.ID(), e.AsCall().Args()[0], links[len(links)-1].name))
	}))
}

// references lists what a part of an expression reads that begins with a wanted
// name, in order, each once.
func references(text string, a *celast.AST, in celast.Expr, wanted func(string) bool) []exprRef {
	var refs []exprRef
	inner := map[int64]bool{}
	celast.PreOrderVisit(in, celast.NewExprVisitor(func(e celast.Expr) {
		if inner[e.ID()] {
			return
		}
		links := chainOf(e)
		if len(links) == 0 || !wanted(links[0].name) {
			return
		}
		r := refOf(text, a.SourceInfo(), links)
		for _, id := range r.chain {
			inner[id] = true
		}
		if !slices.ContainsFunc(refs, func(x exprRef) bool { return x.text == r.text }) {
			refs = append(refs, r)
		}
	}))
	return refs
}

type link struct {
	name string
	id   int64
	// test: it is asked whether the name is there, as has() does. optional: it may be missing, as in self.?a.
	test, optional bool
}

// chainOf reads a selection such as result.a.?b["c"] from its root on; nil of any
// other expression.
func chainOf(e celast.Expr) []link {
	var operand celast.Expr
	last := link{id: e.ID()}
	switch e.Kind() {
	case celast.IdentKind:
		last.name = e.AsIdent()
		return []link{last}
	case celast.SelectKind:
		s := e.AsSelect()
		operand, last.name, last.test = s.Operand(), s.FieldName(), s.IsTestOnly()
	case celast.CallKind:
		c := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, c.FunctionName()) || c.Args()[1].Kind() != celast.LiteralKind {
			return nil
		}
		name, isText := c.Args()[1].AsLiteral().Value().(string)
		if !isText {
			return nil
		}
		operand, last.name, last.optional = c.Args()[0], name, c.FunctionName() != operators.Index
	default:
		return nil
	}
	if before := chainOf(operand); before != nil {
		return append(before, last)
	}
	return nil
}

func refOf(text string, info *celast.SourceInfo, links []link) exprRef {
	end := links[len(links)-1]
	r := exprRef{root: links[0].name, text: links[0].name, id: end.id}
	runes := []rune(text)
	for i, l := range links {
		at := offsetOf(text, info.GetStartLocation(l.id))
		if i > 0 {
			// The place of a selection is its dot.
			for at < len(runes) && strings.ContainsRune(".[? \n", runes[at]) {
				at++
			}
			r.text += selector(l.name)
		}
		if r.maybe == 0 && (l.test || l.optional) {
			r.maybe = i
		}
		r.names, r.offsets, r.chain = append(r.names, l.name), append(r.offsets, at), append(r.chain, l.id)
	}
	if len(links) > 1 {
		r.field = links[1].name
	}
	if end.test {
		r.text = "has(" + r.text + ")"
	}
	return r
}

// Identifier is what CEL can select, no longer than the status holds.
var Identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,62}$`)

func selector(name string) string {
	if Identifier.MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// offsetOf counts the characters before a location. What has no place is said of
// the beginning.
func offsetOf(text string, at common.Location) int {
	lines := strings.SplitAfter(text, "\n")
	if at.Line() < 1 || at.Line() > len(lines) {
		return 0
	}
	offset := max(at.Column(), 0)
	for _, line := range lines[:at.Line()-1] {
		offset += len([]rune(line))
	}
	return min(offset, len([]rune(text)))
}
