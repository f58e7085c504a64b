package expr

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// numberType is what JSON has for `type: number`: 2.5 is a double, and 2.0 is stored as 2, which is an int. CEL compares them
// with each other, and converts both; it does not calculate with one of each.
var numberType = cel.OpaqueType("number")

// asNumber makes a number of an int or a double, for the type checker alone.
const asNumber = "@number"

// numberFunctions are those that take an int as well as a double, also one of each. Nothing calls them: Kubernetes' own are called.
func numberFunctions() []cel.EnvOption {
	opts := []cel.EnvOption{cel.Function(asNumber, cel.Overload("to_number", []*cel.Type{cel.DynType}, numberType))}
	for name, t := range map[string]*cel.Type{"double": cel.DoubleType, "int": cel.IntType, "uint": cel.UintType, "string": cel.StringType} {
		opts = append(opts, cel.Function(name, cel.Overload("number_to_"+name, []*cel.Type{numberType}, t)))
	}
	for _, name := range []string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals} {
		var overloads []cel.FunctionOpt
		overloads = append(overloads, cel.Overload("numbers_"+name, []*cel.Type{numberType, numberType}, cel.BoolType))
		for _, t := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType} {
			overloads = append(overloads,
				cel.Overload("number_"+t.TypeName()+name, []*cel.Type{numberType, t}, cel.BoolType),
				cel.Overload(t.TypeName()+"_number"+name, []*cel.Type{t, numberType}, cel.BoolType))
		}
		opts = append(opts, cel.Function(name, overloads...))
	}
	return opts
}

// nameByIndex rewrites a["n"] into a.n and a[?"n"] into a.?n, which is the same of the maps that JSON has, so that the type
// checker knows the field. What is explained to people is never rewritten.
func nameByIndex(a *celast.AST) {
	build := celast.NewExprFactory()
	celast.PreOrderVisit(a.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 || e.AsCall().Args()[1].Kind() != celast.LiteralKind {
			return
		}
		on, index := e.AsCall().Args()[0], e.AsCall().Args()[1]
		name, isText := index.AsLiteral().Value().(string)
		switch {
		case !isText:
		case e.AsCall().FunctionName() == operators.Index:
			e.SetKindCase(build.NewSelect(e.ID(), on, name))
		case e.AsCall().FunctionName() == operators.OptIndex:
			e.SetKindCase(build.NewCall(e.ID(), operators.OptSelect, on, index))
		}
	}))
}

// checkNumbers is Check for an environment with numberType. Where the type checker wants both sides to be of one type, an int
// and a double are as good as a number.
func checkNumbers(env *cel.Env, a *cel.Ast) (*cel.Ast, *cel.Issues) {
	for {
		checked, issues := env.Check(a)
		mixed := map[int64]bool{}
		for _, e := range issues.Errors() {
			mixed[e.ExprID] = mixed[e.ExprID] || mixesNumbers(e.Message)
		}
		if !rewriteNumbers(a.NativeRep(), mixed) {
			return checked, issues
		}
	}
}

// rewriteNumbers wraps what calls give and compare that mix numbers; false where there is nothing to wrap any more.
func rewriteNumbers(a *celast.AST, mixed map[int64]bool) (changed bool) {
	build := celast.NewExprFactory()
	next := celast.MaxID(a)
	wrap := func(e celast.Expr) celast.Expr {
		if e.Kind() == celast.CallKind && e.AsCall().FunctionName() == asNumber {
			return e
		}
		changed = true
		next++
		return build.NewCall(next, asNumber, e)
	}
	celast.PreOrderVisit(a.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if !mixed[e.ID()] || e.Kind() != celast.CallKind {
			return
		}
		switch c := e.AsCall(); c.FunctionName() {
		case operators.Conditional:
			e.SetKindCase(build.NewCall(e.ID(), c.FunctionName(), c.Args()[0], wrap(c.Args()[1]), wrap(c.Args()[2])))
		case operators.Equals, operators.NotEquals:
			e.SetKindCase(build.NewCall(e.ID(), c.FunctionName(), wrap(c.Args()[0]), wrap(c.Args()[1])))
		case "orValue":
			e.SetKindCase(build.NewMemberCall(e.ID(), c.FunctionName(), c.Target(), wrap(c.Args()[0])))
		case operators.In:
			if list := c.Args()[1]; list.Kind() == celast.ListKind {
				items := []celast.Expr{}
				for _, item := range list.AsList().Elements() {
					items = append(items, wrap(item))
				}
				list.SetKindCase(build.NewList(list.ID(), items, list.AsList().OptionalIndices()))
			}
			e.SetKindCase(build.NewCall(e.ID(), c.FunctionName(), wrap(c.Args()[0]), c.Args()[1]))
		}
	}))
	return changed
}

var numberInside = regexp.MustCompile(`\bnumber\b`)

// mixesNumbers tells whether the type checker complains of numbers beside ints and doubles, and of nothing else.
func mixesNumbers(complaint string) bool {
	m := noOverload.FindStringSubmatch(complaint)
	if m == nil || !numberInside.MatchString(complaint) {
		return false
	}
	types := splitTypes(m[3])
	if m[1] == operators.Conditional {
		types = types[1:]
	}
	inner := func(t string) string {
		for _, around := range []string{"list(", "optional_type("} {
			if rest, is := strings.CutPrefix(t, around); is {
				t = strings.TrimSuffix(rest, ")")
			}
		}
		return t
	}
	for _, t := range append(types, m[2]) {
		if !slices.Contains([]string{"", "number", "int", "uint", "double", "dyn"}, inner(t)) {
			return false
		}
	}
	return true
}
