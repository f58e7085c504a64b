package expr

import (
	"slices"

	"github.com/google/cel-go/cel"
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
