package rooms

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a phase, a step or an effect is called is the file's business: fields hold names of a machine file, by package (without the module), type and field.
var fields = []string{
	"api/phasegate/v1alpha1.MachineStatus.Phase", "api/phasegate/v1alpha1.MachineStatus.Step", "api/phasegate/v1alpha1.MachineStatus.EnteredAs",
	"api/phasegate/v1alpha1.HeldEffect.Name", "api/phasegate/v1alpha1.Transition.From", "api/phasegate/v1alpha1.Transition.To", "api/phasegate/v1alpha1.Transition.Reason",
	"api/phasegate/v1alpha1.Blocked.To", "api/phasegate/v1alpha1.Blocked.Step", "api/phasegate/v1alpha1.DeletionStatus.To", "api/phasegate/v1alpha1.DeletionStatus.Message",
	"api/phasegate/v1alpha1.Effect.Name", "api/phasegate/v1alpha1.Step.Name",
	"cmd/kubectl-phasegate/internal/statusview.Overview.Phase", "cmd/kubectl-phasegate/internal/statusview.Closed.To", "cmd/kubectl-phasegate/internal/statusview.Closed.Step", "cmd/kubectl-phasegate/internal/statusview.Step.Name", "cmd/kubectl-phasegate/internal/statusview.Held.Effect",
	"cmd/kubectl-phasegate/internal/statusview.Transition.From", "cmd/kubectl-phasegate/internal/statusview.Transition.To", "cmd/kubectl-phasegate/internal/statusview.Transition.Reason",
}

// calls answer such names.
var calls = []string{"CurrentPhase", "PhaseIn", "PhaseShown", "StepName", "HeldNames"}

// engines are reasons of the engine itself, which no file has.
var engines = []string{"program.ReasonCreated", "ReasonCreated"}

// checker looks through one package.
type checker struct {
	fset  *token.FileSet
	info  *types.Info
	names map[types.Object]bool // variables that hold such a name
	found []string
}

func (c *checker) report(at ast.Node, text string) {
	p := c.fset.Position(at.Pos())
	c.found = append(c.found, fmt.Sprintf("%s:%d: %s", filepath.Base(p.Filename), p.Line, text))
}

// isName tells whether an expression is a name of a machine file.
func (c *checker) isName(e ast.Expr) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		return c.names[c.info.ObjectOf(x)]
	case *ast.SelectorExpr:
		s := c.info.Selections[x]
		return s != nil && s.Kind() == types.FieldVal && slices.Contains(fields, ownerOf(s)+"."+x.Sel.Name)
	case *ast.CallExpr:
		switch f := ast.Unparen(x.Fun).(type) {
		case *ast.SelectorExpr:
			return slices.Contains(calls, f.Sel.Name) || f.Sel.Name == "Or" && slices.ContainsFunc(x.Args, c.isName)
		case *ast.Ident:
			return slices.Contains(calls, f.Name)
		}
	}
	return false
}

// ownerOf is the type that has a field, be it embedded in another one.
func ownerOf(s *types.Selection) string {
	owner := deref(s.Recv())
	for _, at := range s.Index()[:len(s.Index())-1] {
		owner = deref(owner.Underlying().(*types.Struct).Field(at).Type())
	}
	named, ok := types.Unalias(owner).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	return strings.TrimPrefix(named.Obj().Pkg().Path(), module) + "." + named.Obj().Name()
}

func deref(t types.Type) types.Type {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// isConstant tells whether an expression is a text that is written in Go, or a list or map of such.
func (c *checker) isConstant(e ast.Expr) bool {
	if v := c.info.Types[e]; v.Value != nil {
		return v.Value.ExactString() != `""` && v.Value.Kind().String() == "String" && !slices.Contains(engines, types.ExprString(e))
	}
	switch x := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return slices.ContainsFunc(x.Elts, func(elt ast.Expr) bool {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				elt = kv.Key
			}
			return c.isConstant(elt)
		})
	case *ast.Ident: // a list or a map of the package: it is written in Go
		o, ok := c.info.ObjectOf(x).(*types.Var)
		if !ok || o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
			return false
		}
		switch o.Type().Underlying().(type) {
		case *types.Slice, *types.Map:
			return true
		}
	}
	return false
}

// learn notes the variables that hold a name.
func (c *checker) learn(n ast.Node) {
	switch x := n.(type) {
	case *ast.AssignStmt:
		for i, e := range x.Rhs {
			if id, ok := x.Lhs[min(i, len(x.Lhs)-1)].(*ast.Ident); ok && len(x.Lhs) == len(x.Rhs) && c.isName(e) {
				c.names[c.info.ObjectOf(id)] = true
			}
		}
	case *ast.RangeStmt:
		if id, ok := x.Value.(*ast.Ident); ok && c.isName(x.X) {
			c.names[c.info.ObjectOf(id)] = true
		}
	}
}

func (c *checker) check(n ast.Node) {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		if (x.Op == token.EQL || x.Op == token.NEQ) && c.both([]ast.Expr{x.X, x.Y}) {
			c.report(x, types.ExprString(x))
		}
	case *ast.SwitchStmt:
		c.checkSwitch(x)
	case *ast.IndexExpr:
		if c.isName(x.Index) && c.isConstant(x.X) {
			c.report(x, types.ExprString(x))
		}
	case *ast.CallExpr:
		c.checkCall(x)
	}
}

// both tells whether one of some expressions is a name, and another one a text.
func (c *checker) both(all []ast.Expr) bool {
	return slices.ContainsFunc(all, c.isName) && slices.ContainsFunc(all, c.isConstant)
}

func (c *checker) checkSwitch(x *ast.SwitchStmt) {
	if x.Tag == nil || !c.isName(x.Tag) {
		return
	}
	for _, s := range x.Body.List {
		if slices.ContainsFunc(s.(*ast.CaseClause).List, c.isConstant) {
			c.report(s, "switch "+types.ExprString(x.Tag))
		}
	}
}

func (c *checker) checkCall(x *ast.CallExpr) {
	f, ok := ast.Unparen(x.Fun).(*ast.SelectorExpr)
	if !ok {
		return
	}
	pkg, _ := f.X.(*ast.Ident)
	compares := pkg != nil && (pkg.Name == "slices" || pkg.Name == "strings" && f.Sel.Name != "Join")
	if compares && c.both(x.Args) || f.Sel.Name == "IsHeld" && slices.ContainsFunc(x.Args, c.isConstant) {
		c.report(x, types.ExprString(x))
	}
}

// compared are the places where a package compares names of machine files with texts of Go.
func compared(in tree, path string, files []*ast.File) ([]string, error) {
	c := &checker{fset: in.fset, names: map[types.Object]bool{}, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}}
	if _, err := (&types.Config{Importer: in.from}).Check(path, in.fset, files, c.info); err != nil {
		return nil, err
	}
	for _, look := range []func(ast.Node){c.learn, c.check} {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool { look(n); return true })
		}
	}
	return c.found, nil
}

func TestGoComparesNoNamesOfMachineFiles(t *testing.T) {
	all, looked := list(t), 0
	for _, p := range all.ours {
		place := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(place, "api/") || strings.HasPrefix(place, "test/") || len(p.GoFiles) == 0 {
			continue
		}
		found, err := compared(all, p.ImportPath, all.parsed(t, p.Dir, p.GoFiles...))
		if err != nil {
			t.Fatal(err)
		}
		looked++
		for _, f := range found {
			t.Errorf("%s/%s: a machine file may call it otherwise: ask fsm.Machine (PhaseInfo, Holds, HoldsRole)", place, f)
		}
	}
	if looked < 30 {
		t.Errorf("only %d packages were looked through", looked)
	}
	checkBad(t, all)
}

// checkBad looks whether all is found that is wrong in a file.
func checkBad(t *testing.T, in tree) {
	t.Helper()
	const file = "bad.go"
	found, err := compared(in, module+"bad", in.parsed(t, "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for i, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, "// bad") {
			want = append(want, fmt.Sprintf("%s:%d", file, i+1))
		}
	}
	for _, f := range found {
		place, _, _ := strings.Cut(f, ": ")
		got = append(got, place)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" || len(want) < 8 {
		t.Errorf("what is wrong in %s (-want +got):\n%s", file, diff)
	}
}
