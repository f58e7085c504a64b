package expr

import (
	"cmp"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Field is a field of the object that expressions of the file read.
type Field struct {
	// Path begins below self: spec, deployment.
	Path []string
	// Optional: some expression asks whether it is there, or does without it.
	Optional bool
	// Types are those that the expressions take it for: string, integer, number, boolean, array, date-time, duration.
	Types []string
	// InText: it stands in a text with more than it.
	InText bool
}

// Fields lists what expressions read of the object, each field once. inText has those that stand in a text with more than them.
func Fields(texts []string, inText map[string]bool) []Field {
	r := fieldReader{}
	for _, text := range texts {
		if tree := Parse(text); tree != nil {
			r.read(tree, inText[text])
		}
	}
	return r.fields
}

type fieldReader struct{ fields []Field }

func (r *fieldReader) read(tree *celast.AST, inText bool) {
	inner := map[int64]bool{} // parts of a selection that was read as a whole
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() == celast.CallKind {
			r.guess(e.AsCall())
		}
		if e.Kind() == celast.ComprehensionKind { // of a map it would be its keys: lists are what people go through
			if links := chainOf(withoutFallback(e.AsComprehension().IterRange())); len(links) > 1 && links[0].name == VarSelf {
				r.note(links, "array")
			}
		}
		links := chainOf(e)
		if inner[e.ID()] || len(links) < 2 || links[0].name != VarSelf {
			return
		}
		for _, l := range links {
			inner[l.id] = true
		}
		f := r.note(links, "")
		f.InText = f.InText || inText
	}))
}

func (r *fieldReader) note(links []link, kind string) *Field {
	var path []string
	optional := false
	for _, l := range links[1:] {
		path, optional = append(path, l.name), optional || l.test || l.optional
	}
	at := slices.IndexFunc(r.fields, func(f Field) bool { return slices.Equal(f.Path, path) })
	if at < 0 {
		at, r.fields = len(r.fields), append(r.fields, Field{Path: path})
	}
	f := &r.fields[at]
	f.Optional = f.Optional || optional
	if kind != "" && !slices.Contains(f.Types, kind) {
		f.Types = append(f.Types, kind)
	}
	return f
}

// takenFor are functions that take an argument, or the value before the dot, for a type.
var takenFor = map[string]string{
	"timestamp": "date-time", "duration": "duration",
	"startsWith": "string", "endsWith": "string", "contains": "string", "matches": "string", "split": "string", "lowerAscii": "string",
	operators.LogicalNot: "boolean", operators.LogicalAnd: "boolean", operators.LogicalOr: "boolean",
}

var compared = []string{operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, "orValue"}

// guess notes what a call takes the fields for that are its arguments.
func (r *fieldReader) guess(c celast.CallExpr) {
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]celast.Expr{c.Target()}, args...)
	}
	kind := takenFor[c.FunctionName()]
	if slices.Contains(compared, c.FunctionName()) {
		for _, a := range args {
			kind = cmp.Or(kind, literalType(a))
		}
	}
	for i, a := range args {
		if c.IsMemberFunction() && i > 0 && takenFor[c.FunctionName()] != "" {
			break // what a text is compared with may be anything
		}
		if a = withoutFallback(a); kind != "" {
			if links := chainOf(a); len(links) > 1 && links[0].name == VarSelf {
				r.note(links, kind)
			}
		}
	}
}

// withoutFallback is the optional value before orValue.
func withoutFallback(e celast.Expr) celast.Expr {
	if e.Kind() == celast.CallKind && e.AsCall().FunctionName() == "orValue" {
		return e.AsCall().Target()
	}
	return e
}

var literalTypes = map[string]string{"string": "string", "int": "integer", "uint": "integer", "double": "number", "bool": "boolean"}

func literalType(e celast.Expr) string {
	if e.Kind() != celast.LiteralKind {
		return ""
	}
	return literalTypes[e.AsLiteral().Type().TypeName()]
}

// FieldOf is the path below self of a text that is one ${self.…} and nothing else; nil of any other.
func FieldOf(text string) []string {
	inside, begins := strings.CutPrefix(text, "${")
	inside, ends := strings.CutSuffix(inside, "}")
	if !begins || !ends {
		return nil
	}
	tree := Parse(inside)
	if tree == nil {
		return nil
	}
	path := Selected(withoutFallback(tree.Expr()))
	if len(path) < 2 || path[0] != VarSelf {
		return nil
	}
	return path[1:]
}

// AnnotationOf finds the annotation of the object that an expression reads first.
func AnnotationOf(text string) string {
	tree := Parse(text)
	if tree == nil {
		return ""
	}
	found := ""
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		path := Selected(e)
		if found == "" && len(path) == 4 && slices.Equal(path[:3], []string{VarSelf, "metadata", "annotations"}) {
			found = path[3]
		}
	}))
	return found
}

// Selected reads a.b, a.?b, a["b"] and a[?"b"] alike: the names from the outside
// in; nil of any other expression.
func Selected(e celast.Expr) (path []string) {
	for _, l := range chainOf(e) {
		path = append(path, l.name)
	}
	return path
}
