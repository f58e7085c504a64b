package expr

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
	crd "k8s.io/kube-openapi/pkg/validation/spec"
)

// Describe reads the openAPIV3Schema of a CRD's version, as JSON, for a program that does not have it: such a program
// evaluates its expressions on the object as JSON has it. So a date is a text here, a number may be an int or a double, and
// names that CEL cannot express need brackets. A description checks expressions, and evaluates none.
func Describe(openAPIV3Schema []byte) (*Schema, error) {
	object, err := objectSchema(openAPIV3Schema)
	if err != nil {
		return nil, err
	}
	s := &Schema{root: rememberedOf(object), raw: true}
	s.decl = describe(object).MaybeAssignTypeName(objectType(VarSelf).TypeName())
	s.types = apiservercel.NewDeclTypeProvider(s.decl)
	return s, nil
}

// numberType is what JSON has for `type: number`: 2.5 is a double, and 2.0 is stored as 2, which is an int. CEL compares them
// with each other, and converts both; it does not calculate with one of each.
var numberType = cel.OpaqueType("number")

const (
	maxNumberSize = 32
	maxRequest    = apiservercel.DefaultMaxRequestSizeBytes
)

// describe is the type of a value as JSON has it. What the schema leaves open is of any type.
func describe(s *crd.Schema) *apiservercel.DeclType {
	if has(s, "x-kubernetes-int-or-string") || len(s.Type) != 1 {
		return described(cel.DynType, s.MaxLength, maxRequest)
	}
	switch s.Type[0] {
	case "object":
		return describeObject(s)
	case "array":
		if s.Items == nil || s.Items.Schema == nil || s.Nullable {
			return described(cel.DynType, s.MaxItems, maxRequest)
		}
		return apiservercel.NewListType(describe(s.Items.Schema), sizeOf(s.MaxItems, maxRequest))
	case "number":
		return described(orNull(s, numberType), nil, maxNumberSize)
	case "integer":
		return described(orNull(s, cel.IntType), nil, maxNumberSize)
	case "boolean":
		return described(orNull(s, cel.BoolType), nil, maxNumberSize)
	case "string":
		return described(orNull(s, cel.StringType), s.MaxLength, maxRequest)
	}
	return described(cel.DynType, nil, maxRequest)
}

// describeObject: a map, where any name may be in it.
func describeObject(s *crd.Schema) *apiservercel.DeclType {
	anything := described(cel.DynType, nil, maxRequest)
	most := sizeOf(s.MaxProperties, maxRequest)
	switch a := s.AdditionalProperties; {
	case s.Nullable && len(s.Properties) == 0:
		return anything
	case a != nil && a.Schema != nil:
		return apiservercel.NewMapType(apiservercel.StringType, describe(a.Schema), most)
	case a != nil && a.Allows, has(s, "x-kubernetes-preserve-unknown-fields"), has(s, "x-kubernetes-embedded-resource"):
		return apiservercel.NewMapType(apiservercel.StringType, anything, most)
	}
	fields := map[string]*apiservercel.DeclField{}
	for name, p := range s.Properties {
		fields[name] = apiservercel.NewDeclField(name, describe(&p), slices.Contains(s.Required, name), nil, p.Default)
	}
	return apiservercel.NewObjectType("object", fields)
}

func has(s *crd.Schema, extension string) bool {
	yes, _ := s.Extensions.GetBool(extension)
	return yes
}

func described(t *cel.Type, most *int64, otherwise int64) *apiservercel.DeclType {
	d := apiservercel.NewSimpleTypeWithMinSize(t.String(), t, nil, 1)
	d.MaxElements = sizeOf(most, otherwise)
	return d
}

func sizeOf(most *int64, otherwise int64) int64 {
	if most == nil {
		return otherwise
	}
	return max(*most, 0)
}

// orNull is any type where there may be null in place of a number.
func orNull(s *crd.Schema, t *cel.Type) *cel.Type {
	switch {
	case !s.Nullable:
		return t
	case t.Kind() == types.OpaqueKind:
		return cel.DynType
	}
	return cel.NullableType(t)
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

// numeric are the functions that take an int as well as a double, also one of each.
var numeric = []string{operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.In, operators.OldIn, operators.Conditional, "orValue", "or", "double", "int", "uint", "string"}

// takesNumbers tells whether the type checker complains of a number where an int or a double is as good as the other.
func takesNumbers(complaint string) bool {
	m := noOverload.FindStringSubmatch(complaint)
	if m == nil || !slices.Contains(numeric, m[1]) {
		return false
	}
	some := false
	for _, t := range append(splitTypes(m[3]), m[2]) {
		switch {
		case isNumberType(t):
			some = true
		case !slices.Contains([]string{"", "int", "uint", "double", "dyn", "bool", "list(int)", "list(double)", "list(dyn)", "optional_type(int)", "optional_type(double)"}, t):
			return false
		}
	}
	return some
}

func isNumberType(t string) bool {
	return slices.Contains([]string{"number", "list(number)", "optional_type(number)"}, t)
}

func objectSchema(openAPIV3Schema []byte) (*crd.Schema, error) {
	object := &crd.Schema{}
	if err := json.Unmarshal(openAPIV3Schema, object); err != nil {
		return nil, fmt.Errorf("read the schema of a CRD: %w", err)
	}
	if object.Properties == nil {
		object.Properties = map[string]crd.Schema{}
	}
	object.Type = crd.StringOrArray{"object"}
	object.Properties["apiVersion"] = fieldText(317)
	object.Properties["kind"] = fieldText(63)
	object.Properties["metadata"] = metadata
	return object, nil
}
