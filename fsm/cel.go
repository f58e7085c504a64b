package fsm

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The Kubernetes release whose CEL libraries expressions may use.
const celRelease = "1.36"

// Roots of what an expression can see; the names are the contract with users.
const (
	varSelf    = "self"
	varResult  = "result"
	varGuards  = "guards"
	varFacts   = "facts"
	varRequest = "request"
	varPhase   = "phase"
	varHeld    = "held"
	varChanged = "generationChanged"
	varNow     = "now"
	varToken   = "token"
)

var roots = []string{varSelf, varResult, varGuards, varFacts, varRequest, varPhase, varHeld, varChanged, varNow, varToken}

var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	dynMap := cel.MapType(cel.StringType, cel.DynType)
	release := version.MustParseGeneric(celRelease)
	set, err := environment.MustBaseEnvSet(release).Extend(environment.VersionedOptions{
		IntroducedVersion: release,
		EnvOptions: []cel.EnvOption{
			cel.Variable(varSelf, cel.DynType),
			cel.Variable(varResult, dynMap),
			cel.Variable(varGuards, cel.MapType(cel.StringType, cel.BoolType)),
			cel.Variable(varFacts, dynMap),
			cel.Variable(varRequest, dynMap),
			cel.Variable(varPhase, dynMap),
			cel.Variable(varHeld, cel.ListType(cel.StringType)),
			cel.Variable(varChanged, cel.BoolType),
			cel.Variable(varNow, cel.TimestampType),
			cel.Variable(varToken, cel.StringType),
		},
	})
	if err != nil {
		return nil, err
	}
	return set.Env(environment.NewExpressions)
})

// expr is a compiled expression; it is safe for concurrent use.
type expr struct {
	text string
	prog cel.Program
	// refs are the maximal selections that begin at one of our variables: result.conflicts.
	refs []exprRef
	out  *cel.Type
}

type exprRef struct {
	root, field, text string
	id                int64
}

// compileError is a finding inside an expression; Column counts from 0.
type compileError struct {
	message string
	column  int
}

func compile(text string) (*expr, *compileError) {
	env, err := celEnv()
	if err != nil {
		return nil, &compileError{message: "CEL environment: " + err.Error()}
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		first := issues.Errors()[0]
		return nil, &compileError{message: first.Message, column: first.Location.Column()}
	}
	prog, err := env.Program(ast,
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost, cel.OptTrackState),
		cel.CostLimit(apiservercel.PerCallLimit),
		cel.InterruptCheckFrequency(apiservercel.CheckFrequency))
	if err != nil {
		return nil, &compileError{message: err.Error()}
	}
	return &expr{text: text, prog: prog, refs: references(ast.NativeRep()), out: ast.OutputType()}, nil
}

func (e *expr) isBool() bool {
	return e.out == cel.BoolType || e.out == cel.DynType
}

// references lists what an expression reads of our variables, in order, each once.
func references(a *celast.AST) []exprRef {
	var refs []exprRef
	inner := map[int64]bool{}
	celast.PreOrderVisit(a.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if inner[e.ID()] {
			return
		}
		r, chain := selection(e)
		if !slices.Contains(roots, r.root) {
			return
		}
		for _, id := range chain {
			inner[id] = true
		}
		if !slices.ContainsFunc(refs, func(x exprRef) bool { return x.text == r.text }) {
			refs = append(refs, r)
		}
	}))
	return refs
}

// selection reads a chain such as result.conflicts.size from the outside in;
// result["conflicts"] is the same chain.
func selection(e celast.Expr) (exprRef, []int64) {
	var names []string
	var chain []int64
	for cur := e; ; {
		chain = append(chain, cur.ID())
		switch cur.Kind() {
		case celast.SelectKind:
			names = append(names, cur.AsSelect().FieldName())
			cur = cur.AsSelect().Operand()
		case celast.CallKind:
			operand, name, ok := indexed(cur.AsCall())
			if !ok {
				return exprRef{}, nil
			}
			names = append(names, name)
			cur = operand
		case celast.IdentKind:
			names = append(names, cur.AsIdent())
			slices.Reverse(names)
			r := exprRef{root: names[0], text: strings.Join(names, "."), id: e.ID()}
			if len(names) > 1 {
				r.field = names[1]
			}
			return r, chain
		default:
			return exprRef{}, nil
		}
	}
}

// indexed takes map["name"] apart.
func indexed(call celast.CallExpr) (operand celast.Expr, name string, ok bool) {
	if call.FunctionName() != operators.Index || call.Args()[1].Kind() != celast.LiteralKind {
		return nil, "", false
	}
	name, ok = call.Args()[1].AsLiteral().Value().(string)
	return call.Args()[0], name, ok
}

// reads lists the names after a root: reads("guards") of `guards.a && guards.b` is a, b.
func (e *expr) reads(root string) []string {
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

// readsWhole tells whether a root is read without a name after it.
func (e *expr) readsWhole(root string) bool {
	return slices.ContainsFunc(e.refs, func(r exprRef) bool { return r.root == root && r.field == "" })
}

// seen tells the values that the expression read, for `blocked`. A text of told
// stands for the value of its reference. What changes by itself is left out:
// each look would be a status write.
func (e *expr) seen(details *cel.EvalDetails, told func(exprRef) string) string {
	var parts []string
	for _, r := range e.refs {
		if r.root == varNow || r.text == varPhase || r.text == varPhase+".age" {
			continue
		}
		if text := told(r); text != "" {
			parts = append(parts, text)
		} else if v, ok := valueAt(details.State(), r.id); ok {
			parts = append(parts, r.text+" = "+clip(v, 120))
		}
	}
	return clip(strings.Join(parts, ", "), maxText)
}

func valueAt(state interpreter.EvalState, id int64) (string, bool) {
	v, ok := state.Value(id)
	if !ok || types.IsUnknownOrError(v) {
		return "", false
	}
	return show(v), true
}

func show(v ref.Val) string {
	switch x := v.(type) {
	case traits.Lister:
		native, err := x.ConvertToNative(listType)
		if err == nil {
			return fmt.Sprint(native)
		}
	case types.String:
		return fmt.Sprintf("%q", string(x))
	}
	return fmt.Sprint(v.Value())
}

// lazyMap is a CEL map whose values are found when they are asked for, so that
// a named guard behind a false && is never called.
type lazyMap struct {
	traits.Mapper
	find func(string) ref.Val
}

func newLazyMap(find func(string) ref.Val) lazyMap {
	empty := types.NewStringStringMap(types.DefaultTypeAdapter, nil)
	return lazyMap{Mapper: empty, find: find}
}

func (m lazyMap) Find(key ref.Val) (ref.Val, bool) {
	v := m.find(fmt.Sprint(key.Value()))
	return v, v != nil
}

func (m lazyMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such name: %v", key.Value())
}

func (m lazyMap) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	cut := n - len(ellipsis)
	for cut > 0 && s[cut]&0xC0 == 0x80 { // do not cut inside a rune
		cut--
	}
	return s[:cut] + ellipsis
}
