package expr

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
)

// Compile answers an expression, or findings; with warnings both.
func (s *Scope) Compile(text string) (*Expr, []Problem) {
	ast, issues := s.env.Parse(text)
	if issues.Err() != nil {
		return nil, found(text, issues)
	}
	selectByName(ast.NativeRep())
	if s.raw() {
		nameByIndex(ast.NativeRep())
	}
	refs := references(text, ast.NativeRep(), ast.NativeRep().Expr(), isRoot)
	errs, told := s.checkAll(refs)
	checked, issues := s.env.Check(ast)
	for _, e := range found(text, issues) {
		if !told[e.id] && !whole(refs, e.Message) && !(s.raw() && takesNumbers(e.said)) {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, sortErrors(errs)
	}
	if checked == nil { // for what takesNumbers
		return &Expr{Text: text, Out: cel.DynType, refs: refs}, nil
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

func found(text string, issues *cel.Issues) []Problem {
	if issues == nil {
		return nil
	}
	var errs []Problem
	for _, e := range issues.Errors() {
		message, fix := plainly(e.Message)
		errs = append(errs, Problem{Code: "PG006", Message: message, Fix: fix, Offset: offsetOf(text, e.Location), id: e.ExprID, said: e.Message})
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

// noOverload is what the type checker says of an operator or a function that cannot be applied.
var noOverload = regexp.MustCompile(`^found no matching overload for '([^']+)' applied to '(?:(.+)\.)?\((.*)\)'`)

// plainly says which side is of which type, and what to do about it, in place of the type checker's words.
func plainly(message string) (plain, fix string) {
	m := noOverload.FindStringSubmatch(message)
	if m == nil {
		return message, fixCEL
	}
	name, on, types := m[1], orNullText(m[2]), splitTypes(orNullText(m[3]))
	operator := strings.TrimPrefix(strings.Trim(name, "_"), "@")
	switch {
	case on != "":
		return fmt.Sprintf("%s(…) of a value of type %s does not take (%s)", name, on, strings.Join(types, ", ")), conversion(append(types, on))
	case len(types) == 2 && name != operator:
		return fmt.Sprintf("%s has a value of type %s on its left and one of type %s on its right", operator, types[0], types[1]), conversion(types)
	case len(types) == 1 && name != operator:
		return fmt.Sprintf("%s cannot be put before a value of type %s", operator, types[0]), conversion(types)
	}
	return fmt.Sprintf("%s does not take (%s)", name, strings.Join(types, ", ")), conversion(types)
}

var wrapped = regexp.MustCompile(`wrapper\((\w+)\)`)

// orNullText is a list of types with the type checker's word for what may be null replaced.
func orNullText(types string) string { return wrapped.ReplaceAllString(types, "$1 or null") }

// splitTypes separates types at the commas that are in no parentheses.
func splitTypes(list string) (types []string) {
	depth, from := 0, 0
	for i, r := range list {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			types, from = append(types, strings.TrimSpace(list[from:i])), i+1
		}
	}
	return append(types, strings.TrimSpace(list[from:]))
}

func conversion(types []string) string {
	has := func(name string) bool {
		return slices.ContainsFunc(types, func(t string) bool { return t == name || t == name+" or null" || strings.HasPrefix(t, name+"(") })
	}
	switch {
	case has("optional_type"):
		return "say what it is when it is not there: .orValue(…)"
	case has("duration") && has("string"):
		return `convert a text with duration(…); write one as duration("10s")`
	case has("duration"):
		return `write a duration as duration("10s")`
	case has("timestamp") && has("string"):
		return `convert a text with timestamp(…); write a time as timestamp("2026-01-31T12:00:00Z")`
	case has("timestamp"):
		return `write a time as timestamp("2026-01-31T12:00:00Z"), a difference as duration("10s")`
	case has("number") || has("list(number)"):
		return "convert it with double(…): a whole number is stored as an int"
	case has("int") && has("double"):
		return "write 1.0 instead of 1, or convert with double(…) or int(…)"
	case has("int") && has("string"):
		return "write a number without quotes, or convert with int(…) or string(…)"
	case has("string"):
		return "convert with string(…)"
	}
	return "compare or convert it: each side must be of the same type"
}

const fixCEL = "correct the CEL expression"
