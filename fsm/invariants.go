package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// invariant is a compiled spec.invariants entry.
type invariant struct {
	name, path, text string
	prog             cel.Program
	// effects that it names.
	effects []string
}

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
		cel.Variable(varHeld, cel.ListType(cel.StringType)),
		cel.Variable(varInPlace, cel.ListType(cel.StringType)),
		cel.Variable(varDeleting, cel.BoolType),
		cel.Variable(varGone, cel.BoolType),
		cel.ParserExpressionSizeLimit(maxExprSize),
		cel.ParserRecursionLimit(maxExprDepth),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxExprLoops)),
	)
})

// InvariantState is what invariants are about.
type InvariantState struct {
	// Phase is empty before the first, and where the machine has none of that name.
	Phase string
	// Held is the ledger, InPlace what is really there.
	Held, InPlace  []string
	Deleting, Gone bool
}

// Broken names the invariants of the file that are not true of a situation. One that
// cannot be evaluated is not true. It may be called any number of times.
func (m *Machine) Broken(s InvariantState) []string {
	var names []string
	for i := range m.prog.invariants {
		if inv := &m.prog.invariants[i]; !inv.holds(m, s) {
			names = append(names, inv.name)
		}
	}
	return names
}

func (inv *invariant) holds(m *Machine, s InvariantState) bool {
	ph := &v1alpha1.Phase{}
	if at := m.prog.phases[s.Phase]; at != nil {
		ph = at.Phase
	}
	v, _, err := inv.prog.Eval(map[string]any{
		varPhaseName: ph.Name, varPhaseKind: cmp.Or(ph.Kind, "progressing"), varPhaseTerminal: ph.Terminal,
		varPhaseDeletion: ph.Deletion, varPhaseEnd: ph.End,
		varHeld: append([]string{}, s.Held...), varInPlace: append([]string{}, s.InPlace...),
		varDeleting: s.Deleting, varGone: s.Gone,
	})
	return err == nil && v == types.True
}

// invariants are compiled last: they may name every phase and effect.
func (c *compiler) invariants(all []v1alpha1.Named) {
	for i, n := range all {
		path := fmt.Sprintf("spec.invariants[%d]", i)
		c.unique(path, "invariant", n.Name)
		c.selectable(path, "an invariant", n.Name)
		if slices.Contains(builtIn, n.Name) {
			c.find(path+".name", "PG000", fmt.Sprintf("%s is proved of every machine", n.Name), "choose another name")
		}
		c.invariant(path+".expr", n)
	}
}

func (c *compiler) invariant(path string, n v1alpha1.Named) {
	env, err := invariantEnv()
	if err != nil {
		c.find(path, "PG006", err.Error(), fixCEL)
		return
	}
	ast, issues := env.Compile(n.Expr)
	if issues.Err() != nil {
		errs := found(n.Expr, issues)
		for i := range errs {
			errs[i].fix = "an invariant reads phase.{name,kind,terminal,deletion,end}, held, inPlace, deleting and gone"
		}
		c.findIn(path, n.Expr, errs)
		return
	}
	if ast.OutputType() != cel.BoolType {
		c.find(path, "PG007", fmt.Sprintf("invariant %q is %s, not a boolean", n.Expr, ast.OutputType()), "compare it with something")
		return
	}
	prog, err := env.Program(ast)
	if err != nil {
		c.find(path, "PG006", err.Error(), fixCEL)
		return
	}
	inv := invariant{name: n.Name, path: path, text: n.Expr, prog: prog}
	c.invariantNames(&inv, ast)
	c.prog.invariants = append(c.prog.invariants, inv)
}

// invariantNames checks the texts that mean a phase or an effect: with a name
// that nothing has, an invariant could hold for no reason.
func (c *compiler) invariantNames(inv *invariant, ast *cel.Ast) {
	info := ast.NativeRep().SourceInfo()
	celast.PreOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		about, texts := comparison(e)
		for _, x := range texts {
			name, _ := x.AsLiteral().Value().(string)
			offset := offsetOf(inv.text, info.GetStartLocation(x.ID()))
			switch {
			case about == varPhaseName && name != "" && c.prog.phases[name] == nil:
				c.findIn(inv.path, inv.text, []compileError{{code: "PG001", offset: offset,
					message: fmt.Sprintf("phase %q does not exist", name), fix: c.knownPhases(name)}})
			case about == varHeld, about == varInPlace:
				if c.prog.effects[name].Name == "" {
					c.findIn(inv.path, inv.text, []compileError{{code: "PG005", offset: offset,
						message: fmt.Sprintf("effect %q is not declared", name), fix: "declare it under spec.effects"}})
				} else {
					inv.effects = append(inv.effects, name)
				}
			}
		}
	}))
}

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
