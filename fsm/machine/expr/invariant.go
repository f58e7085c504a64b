package expr

import (
	"cmp"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// What an invariant sees: nothing that needs an object.
const (
	varPhaseName     = "phase.name"
	varPhaseKind     = "phase.kind"
	varPhaseTerminal = "phase.terminal"
	varPhaseDeletion = "phase.deletion"
	varPhaseEnd      = "phase.end"
	varInPlace       = "inPlace"
	varDeleting      = "deleting"
	varGone          = "gone"
)

var invariantEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable(varPhaseName, cel.StringType),
		cel.Variable(varPhaseKind, cel.StringType),
		cel.Variable(varPhaseTerminal, cel.StringType),
		cel.Variable(varPhaseDeletion, cel.BoolType),
		cel.Variable(varPhaseEnd, cel.BoolType),
		cel.Variable(VarHeld, cel.ListType(cel.StringType)),
		cel.Variable(varInPlace, cel.ListType(cel.StringType)),
		cel.Variable(varDeleting, cel.BoolType),
		cel.Variable(varGone, cel.BoolType),
		cel.ParserExpressionSizeLimit(maxExprSize),
		cel.ParserRecursionLimit(maxExprDepth),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxExprLoops)),
	)
})

// comparison takes `x == "text"`, `x in ["text"]` and `"text" in x` apart: what is
// compared, and the texts.
func comparison(e celast.Expr) (about string, texts []celast.Expr) {
	if e.Kind() != celast.CallKind || len(e.AsCall().Args()) != 2 {
		return "", nil
	}
	for i, x := range e.AsCall().Args() {
		switch x.Kind() {
		case celast.IdentKind:
			about = x.AsIdent()
		case celast.LiteralKind:
			texts = append(texts, x)
		case celast.ListKind:
			if i == 1 {
				texts = append(texts, x.AsList().Elements()...)
			}
		}
	}
	texts = slices.DeleteFunc(texts, func(x celast.Expr) bool { return x.Kind() != celast.LiteralKind })
	switch e.AsCall().FunctionName() {
	case operators.Equals, operators.NotEquals, operators.In:
		return about, texts
	}
	return "", nil
}

// Invariant is a compiled invariant.
type Invariant struct {
	Out      *cel.Type
	prog     cel.Program
	Mentions []mention
}

// mention is a text that the phase or the effects are compared with.
type mention struct {
	Name              string
	OfPhase, OfEffect bool
	// Offset is where it stands.
	Offset int
}

// CompileInvariant answers an expression, or findings.
func CompileInvariant(text string) (*Invariant, []Problem) {
	env, err := invariantEnv()
	if err != nil {
		return nil, []Problem{{Code: "PG006", Message: err.Error(), Fix: fixCEL}}
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		errs := found(text, issues)
		for i := range errs {
			errs[i].Fix = "an invariant reads phase.{name,kind,terminal,deletion,end}, held, inPlace, deleting and gone"
		}
		return nil, errs
	}
	prog, err := env.Program(ast)
	if err != nil {
		return nil, []Problem{{Code: "PG006", Message: err.Error(), Fix: fixCEL}}
	}
	return &Invariant{Out: ast.OutputType(), prog: prog, Mentions: mentionsIn(text, ast)}, nil
}

func mentionsIn(text string, ast *cel.Ast) (all []mention) {
	info := ast.NativeRep().SourceInfo()
	celast.PreOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		about, texts := comparison(e)
		for _, x := range texts {
			name, _ := x.AsLiteral().Value().(string)
			all = append(all, mention{Name: name, OfPhase: about == varPhaseName, OfEffect: about == VarHeld || about == varInPlace,
				Offset: offsetOf(text, info.GetStartLocation(x.ID()))})
		}
	}))
	return all
}

// IsBool tells whether it can be true.
func (e *Invariant) IsBool() bool { return e.Out == cel.BoolType }

// IsTrue is false also where it cannot be evaluated.
func (e *Invariant) IsTrue(ph *v1alpha1.Phase, held, inPlace []string, deleting, gone bool) bool {
	v, _, err := e.prog.Eval(map[string]any{
		varPhaseName: ph.Name, varPhaseKind: string(cmp.Or(ph.Kind, v1alpha1.PhaseProgressing)), varPhaseTerminal: string(ph.Terminal),
		varPhaseDeletion: ph.Deletion, varPhaseEnd: ph.End,
		VarHeld: append([]string{}, held...), varInPlace: append([]string{}, inPlace...),
		varDeleting: deleting, varGone: gone,
	})
	return err == nil && v == types.True
}
