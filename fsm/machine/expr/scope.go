package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// baseEnv costs milliseconds, and is the same for all machines.
var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	env, err := environment.MustBaseEnvSet(version.MustParseGeneric(celRelease)).Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	opts := []cel.EnvOption{
		cel.ParserExpressionSizeLimit(maxExprSize),
		cel.ParserRecursionLimit(maxExprDepth),
		cel.EnableMacroCallTracking(), // explain shows all() as it was written
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(maxExprLoops), mixedLiterals{}),
	}
	opts = append(opts, cel.Variable(VarItem, cel.DynType), cel.Variable(VarError, objectType(VarError)), jsonFunction())
	for name, t := range rootTypes {
		opts = append(opts, cel.Variable(name, t))
	}
	return env.Extend(opts...)
})

// Scope is what the expressions at one place of a file can see, and of which type
// it is. Compiling a file goes from place to place and changes it on the way; once
// the file is compiled, nothing does.
type Scope struct {
	// Provider knows the types of the libraries and of self.
	types.Provider
	env  *cel.Env
	self *Schema
	// objects are the fields of the types that objectType names.
	objects map[string]map[string]*cel.Type
	// shapes are what is known of outputs, one of each step that may have given it, by path: result.object; nil: nothing.
	shapes map[string][]Shape
	// skipped are the steps that may be left out.
	skipped map[string]bool
	// AnyResult: which results there are is not known here.
	AnyResult bool
	// Item: there may be an item of a forEach here.
	Item bool
	// Error: the phase is left by an error here, or by its timeout.
	Error bool
}

// NewScope is what every expression of a machine can see: an object of a schema, nil for one that is unknown, and the
// guards of a program.
func NewScope(self *Schema, guards []string) (*Scope, error) {
	base, err := baseEnv()
	if err != nil {
		return nil, err
	}
	s := &Scope{self: self, objects: map[string]map[string]*cel.Type{}}
	s.Provider = base.CELTypeProvider()
	if self != nil {
		if s.Provider, err = self.types.WithTypeProvider(s.Provider); err != nil {
			return nil, err
		}
	}
	s.NoResults()
	s.Define(VarVariables, nil)
	s.Define(VarRequest, nil)
	s.Define(VarState, nil)
	s.Define(VarPhase, map[string]*cel.Type{"name": cel.StringType, "age": cel.DurationType, "attempts": cel.IntType})
	s.Define(VarError, map[string]*cel.Type{"reason": cel.StringType, "message": cel.StringType})
	asked := map[string]*cel.Type{}
	for _, name := range guards {
		asked[name] = cel.BoolType
	}
	s.Define(VarGuards, asked)
	opts := []cel.EnvOption{cel.Variable(VarSelf, s.root(VarSelf)), cel.CustomTypeProvider(s)}
	if s.raw() {
		opts = append(opts, numberFunctions()...)
	}
	s.env, err = base.Extend(opts...)
	return s, err
}

// raw tells whether expressions are only checked, for a program that reads its objects as JSON has them.
func (s *Scope) raw() bool { return s.self != nil && s.self.raw }

// Define says which fields the type of a path has.
func (s *Scope) Define(path string, fields map[string]*cel.Type) *cel.Type {
	t := objectType(path)
	if fields == nil {
		fields = map[string]*cel.Type{}
	}
	s.objects[t.TypeName()] = fields
	return t
}

// Fields of the type of a path; to be read, or added to.
func (s *Scope) Fields(path string) map[string]*cel.Type {
	return s.objects[objectType(path).TypeName()]
}

// root is the type of a root; nil when there is no such root.
func (s *Scope) root(name string) *cel.Type {
	switch {
	case name != VarSelf:
		return rootTypes[name]
	case s.self != nil:
		return s.self.decl.CelType()
	}
	return cel.DynType
}

// NoResults forgets the outputs of the steps.
func (s *Scope) NoResults() {
	s.Define(VarResult, nil)
	s.Define(VarSteps, nil)
	s.shapes, s.skipped = map[string][]Shape{}, map[string]bool{}
	s.AnyResult = false
}

// Results are those that are known here; KeepResults goes back to them.
func (s *Scope) Results() map[string]*cel.Type { return maps.Clone(s.Fields(VarResult)) }

// KeepResults forgets all outputs but those that Results has answered.
func (s *Scope) KeepResults(known map[string]*cel.Type) {
	maps.DeleteFunc(s.shapes, func(path string, _ []Shape) bool {
		name, ofResult := strings.CutPrefix(path, VarResult+".")
		return ofResult && known[name] == nil
	})
	s.Define(VarResult, known)
}

// AddResults makes outputs known, and the shapes of those that have one. An output that two steps have with different
// types is either, since the second step may be left out; with certain it is not.
func (s *Scope) AddResults(outputs map[string]Type, shapes map[string]Shape, certain bool) {
	known := s.Fields(VarResult)
	for name, t := range outputs {
		s.setShape(VarResult+"."+name, shapes[name], certain)
		if old, twice := known[name]; twice && !old.IsExactType(t.CELType()) {
			known[name] = cel.DynType
		} else {
			known[name] = t.CELType()
		}
	}
}

// AddStep makes the outputs of a step known by its name.
func (s *Scope) AddStep(name string, outputs map[string]Type, shapes map[string]Shape) {
	if len(outputs) == 0 {
		return
	}
	path, fields := VarSteps+"."+name, map[string]*cel.Type{}
	for output, t := range outputs {
		fields[output] = t.CELType()
		s.setShape(path+"."+output, shapes[output], true)
	}
	s.Fields(VarSteps)[name] = s.Define(path, fields)
}

// MayBeSkipped says of a step that it may be left out: what reads its outputs from here on must ask whether they are there.
func (s *Scope) MayBeSkipped(step string) { s.skipped[step] = true }

// FindStructType is the checker's question for a type.
func (s *Scope) FindStructType(name string) (*types.Type, bool) {
	if _, ours := s.objects[name]; ours {
		return types.NewTypeTypeWithParam(cel.ObjectType(name)), true
	}
	return s.Provider.FindStructType(name)
}

// FindStructFieldNames is the checker's question for the fields of a type.
func (s *Scope) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ours := s.objects[name]; ours {
		return slices.Sorted(maps.Keys(fields)), true
	}
	if s.self != nil {
		if t, known := s.self.types.FindDeclType(name); known {
			return slices.Sorted(maps.Keys(t.Fields)), true
		}
	}
	return s.Provider.FindStructFieldNames(name)
}

// FindStructFieldType is the checker's question for a field.
func (s *Scope) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ours := s.objects[name]
	if !ours {
		return s.Provider.FindStructFieldType(name, field)
	}
	t, known := fields[field]
	if !known && s.AnyResult && (name == rootTypes[VarResult].TypeName() || name == rootTypes[VarSteps].TypeName()) {
		t, known = cel.DynType, true
	}
	return &types.FieldType{Type: t}, known
}

// field is the type behind a name; known is false when the type has no such field,
// and the type is nil when that cannot be told.
func (s *Scope) field(t *cel.Type, name string) (ft *cel.Type, known bool) {
	switch t.Kind() {
	case types.StructKind:
		if f, ok := s.FindStructFieldType(t.TypeName(), name); ok {
			return f.Type, true
		}
		return nil, false
	case types.MapKind:
		return t.Parameters()[1], true
	}
	return nil, true
}

// check refuses names that are not there, with what there is instead; the type
// checker would only say that a field is undefined.
func (s *Scope) check(r exprRef) *Problem {
	if r.nameless() {
		return &Problem{Code: "PG006", Message: r.root + " is read without a name", Fix: fmt.Sprintf("write %s.NAME", r.root), Offset: r.offsets[0]}
	}
	t := s.root(r.root)
	for i, name := range r.names[1:] {
		next, known := s.field(t, name)
		if !known {
			e := s.unknown(r, i+1, t)
			e.Offset = r.offsets[i+1]
			return e
		}
		if next == nil {
			return s.misshapen(r)
		}
		t = next
	}
	return s.misshapen(r)
}

// rootWords say that a root has no such name, and what to do.
var rootWords = map[string]struct{ code, message, fix, there string }{
	VarResult:    {message: VarResult + ".%s is an output of no step before this place", there: "outputs here"},
	VarSteps:     {message: VarSteps + ".%s is no step with outputs before this place", there: "steps with outputs"},
	VarGuards:    {code: "PG005", message: "guard %q is not known to this program", there: "known guards"},
	VarVariables: {message: VarVariables + ".%s is not declared before this place", fix: "declare it under spec.variables, in order; ", there: "declared before"},
	VarState:     {message: VarState + ".%s is not declared", fix: "declare it under spec.state; ", there: "declared"},
	VarRequest:   {message: VarRequest + ".%s is not declared", fix: "declare it under spec.requests; ", there: "declared"},
}

// unknown says that the i-th name of a reference is not there.
func (s *Scope) unknown(r exprRef, i int, in *cel.Type) *Problem {
	fields, _ := s.FindStructFieldNames(in.TypeName())
	name := r.names[i]
	could := func(what string) string { return diag.Instead(name, what, fields[:min(len(fields), 30)]) }
	if words, known := rootWords[r.root]; known && i == 1 {
		return &Problem{Code: cmp.Or(words.code, "PG006"), Message: fmt.Sprintf(words.message, name), Fix: words.fix + could(words.there)}
	}
	fix := could("fields")
	if plain, _ := declared.Unescape(name); s.raw() && slices.Contains(fields, plain) {
		fix = fmt.Sprintf("write %s[%q]", strings.Join(r.names[:i], "."), plain)
	}
	return &Problem{Code: "PG006", Message: fmt.Sprintf("%s has no field %q", strings.Join(r.names[:i], "."), name), Fix: fix}
}

// setShape notes what is known of an output. What was known before counts as well where the step may be left out.
func (s *Scope) setShape(path string, shape Shape, certain bool) {
	if certain {
		s.shapes[path] = nil
	}
	s.shapes[path] = append(s.shapes[path], shape)
}

// misshapen refuses a path into an output that leads to nothing, whichever step it is of.
func (s *Scope) misshapen(r exprRef) *Problem {
	output := map[string]int{VarResult: 2, VarSteps: 3}[r.root] // how many names lead to it
	if output == 0 || len(r.names) <= output {
		return nil
	}
	var first *Misshape
	for _, shape := range s.shapes[strings.Join(r.names[:output], ".")] {
		if shape == nil {
			return nil
		}
		m := shape(r.names[output:])
		if m == nil {
			return nil
		}
		if first == nil {
			first = m
		}
	}
	if first == nil {
		return nil
	}
	return &Problem{Code: "PG006", Message: first.Message, Fix: first.Fix, Offset: r.offsets[output+first.At]}
}
