package expr

import (
	"cmp"
	"fmt"
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
	perItem := isFree(ast.NativeRep().Expr(), VarItem)
	if perItem && !s.Item {
		errs = append(errs, Problem{Code: "PG006", Message: VarItem + " is known in a step with forEach only", Fix: "add forEach: {in: LIST} to the step"})
	}
	if !s.Error && isFree(ast.NativeRep().Expr(), VarError) {
		errs = append(errs, Problem{Code: "PG006", Message: VarError + " is known in set of onError and timeout only", Fix: "read it there, and keep what you need of it in spec.state"})
	}
	checked, issues := s.checkTypes(ast)
	for _, e := range found(text, issues) {
		if !told[e.id] && !whole(refs, e.Message) {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, sortErrors(errs)
	}
	e := &Expr{Text: text, Out: checked.OutputType(), refs: refs, PerItem: perItem}
	if err := s.plan(e, checked); err != nil {
		return nil, []Problem{{Code: "PG006", Message: err.Error(), Fix: fixCEL}}
	}
	e.cause = causeOf(text, checked.NativeRep(), checked.NativeRep().Expr())
	return e, s.costs(checked)
}

func (s *Scope) checkTypes(ast *cel.Ast) (*cel.Ast, *cel.Issues) {
	if s.raw() {
		return checkNumbers(s.env, ast)
	}
	return s.env.Check(ast)
}

func (s *Scope) plan(e *Expr, checked *cel.Ast) (err error) {
	e.prog, err = s.env.Program(checked,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostTracking(actualCosts{}),
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
		e := cmp.Or(s.check(r), s.unsure(r, refs))
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

// unsure refuses what reads the outputs of a step that may be left out, unless the expression asks whether they are there.
func (s *Scope) unsure(r exprRef, all []exprRef) *Problem {
	asks := func(x exprRef) bool { return x.root == VarSteps && x.field == r.field && x.maybe == 1 }
	if r.root != VarSteps || !s.skipped[r.field] || slices.ContainsFunc(all, asks) {
		return nil
	}
	return &Problem{Code: "PG006", Message: fmt.Sprintf("step %s may be skipped by its if, and has no outputs then", r.field),
		Fix: fmt.Sprintf("ask has(%[1]s) before, or read %[2]s.?%[3]s.?OUTPUT.orValue(…)", VarSteps+"."+r.field, VarSteps, r.field), Offset: r.offsets[1]}
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
