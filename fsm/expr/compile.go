package expr

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"

	"github.com/phasegate/phasegate/fsm/diag"
)

// Expr is a compiled expression; it is safe for concurrent use.
type Expr struct {
	Text string
	// prog counts what it costs, watch remembers what each part came to: the library
	// observes one of the two only.
	prog, watch cel.Program
	Out         *cel.Type
	// refs are the maximal selections that begin at one of our roots: result.conflicts.
	refs []exprRef
	// cause finds the part that made it true or false.
	cause *cause
}

// exprRef is a selection such as result.conflicts.
type exprRef struct {
	root, field string
	// names are the root and what is selected of it; offsets is where each begins.
	names   []string
	offsets []int
	// text is how it is told to people.
	text string
	id   int64
	// chain are the ids of the selections in it.
	chain []int64
}

// nameless references are refused: only a name written out can be checked, called
// lazily and recorded.
func (r exprRef) nameless() bool {
	return r.field == "" && slices.Contains([]string{VarFacts, VarRequest, VarGuards}, r.root)
}

// Problem is a finding inside an expression.
type Problem struct {
	Code, Message, Fix string
	Severity           diag.Severity
	// Offset counts characters from 0.
	Offset int
	id     int64
}

// Compile answers an expression, or findings; with warnings both.
func (s *Scope) Compile(text string) (*Expr, []Problem) {
	ast, issues := s.env.Parse(text)
	if issues.Err() != nil {
		return nil, found(text, issues)
	}
	selectByName(ast.NativeRep())
	refs := references(text, ast.NativeRep(), ast.NativeRep().Expr(), isRoot)
	errs, told := s.checkAll(refs)
	checked, issues := s.env.Check(ast)
	for _, e := range found(text, issues) {
		if !told[e.id] && !whole(refs, e.Message) {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, sortErrors(errs)
	}
	e := &Expr{Text: text, Out: checked.OutputType(), refs: refs}
	if err := s.plan(e, checked); err != nil {
		return nil, []Problem{{Code: "PG006", Message: err.Error(), Fix: fixCEL}}
	}
	e.cause = causeOf(text, checked.NativeRep(), checked.NativeRep().Expr())
	return e, s.costs(checked)
}

func (s *Scope) plan(e *Expr, checked *cel.Ast) (err error) {
	e.prog, err = s.env.Program(checked,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostLimit(apiservercel.PerCallLimit),
		cel.InterruptCheckFrequency(apiservercel.CheckFrequency))
	if err != nil {
		return err
	}
	e.watch, err = s.env.Program(checked,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackState),
		cel.InterruptCheckFrequency(apiservercel.CheckFrequency))
	return err
}

// checkAll checks what is read of our roots. The ids are those that the type
// checker must not complain of a second time.
func (s *Scope) checkAll(refs []exprRef) (errs []Problem, told map[int64]bool) {
	told = map[int64]bool{}
	for _, r := range refs {
		e := s.check(r)
		if e == nil {
			continue
		}
		for _, id := range r.chain {
			told[id] = true
		}
		errs = append(errs, *e)
	}
	return errs, told
}

// whole tells whether a complaint is of a root that must have a name after it:
// that is said already.
func whole(refs []exprRef, message string) bool {
	return slices.ContainsFunc(refs, func(r exprRef) bool { return r.nameless() && strings.Contains(message, objectType(r.root).TypeName()) })
}

const fixCEL = "correct the CEL expression"

// found turns the library's issues into findings.
func found(text string, issues *cel.Issues) []Problem {
	if issues == nil {
		return nil
	}
	var errs []Problem
	for _, e := range issues.Errors() {
		message, fix := plainly(e.Message)
		errs = append(errs, Problem{Code: "PG006", Message: message, Fix: fix, Offset: offsetOf(text, e.Location), id: e.ExprID})
	}
	return sortErrors(errs)
}

// sortErrors puts them in the order of the text, each once.
func sortErrors(errs []Problem) []Problem {
	slices.SortStableFunc(errs, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(errs, func(a, b Problem) bool { return a.Offset == b.Offset && a.Message == b.Message })
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

// IsBool tells whether it can be a guard.
func (e *Expr) IsBool() bool {
	return slices.Contains([]types.Kind{types.BoolKind, types.DynKind, types.AnyKind}, e.Out.Kind())
}

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

// link is one name of a selection.
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

// Reads lists the names after a root: reads("guards") of `guards.a && guards.b` is a, b.
func (e *Expr) Reads(root string) []string {
	if e == nil {
		return nil
	}
	var names []string
	for _, r := range e.refs {
		if r.root == root && r.field != "" && !slices.Contains(names, r.field) {
			names = append(names, r.field)
		}
	}
	return names
}
