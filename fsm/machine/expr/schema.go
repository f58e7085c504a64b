package expr

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	crd "k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is the type of the objects that a machine drives. It is immutable and
// safe for concurrent use.
type Schema struct {
	root  common.Schema
	decl  *apiservercel.DeclType
	types *apiservercel.DeclTypeProvider
	// raw: it describes the object as JSON has it, see Describe.
	raw bool
}

// NewSchema reads the openAPIV3Schema of a CRD's version, as JSON, for a program that has it, and reads its objects by it
// (Value). What it says of metadata is replaced by what every object has. Content that it does not
// describe cannot be read by expressions.
func NewSchema(openAPIV3Schema []byte) (*Schema, error) {
	object, err := objectSchema(openAPIV3Schema)
	if err != nil {
		return nil, err
	}
	s := &Schema{root: rememberedOf(object)}
	if s.decl = common.SchemaDeclType(s.root, false); s.decl == nil {
		return nil, fmt.Errorf("read the schema of a CRD: it describes no object")
	}
	plain(s.decl)
	s.decl = s.decl.MaybeAssignTypeName(objectType(VarSelf).TypeName())
	s.types = apiservercel.NewDeclTypeProvider(s.decl)
	return s, nil
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

// plain names fields such as `namespace` as they are: what is a word of CEL can
// stand behind a dot, and an object without a schema has no other name for it.
func plain(d *apiservercel.DeclType) {
	if d.ElemType != nil {
		plain(d.ElemType)
	}
	for name, field := range d.Fields {
		if raw, _ := apiservercel.Unescape(name); name == "__"+raw+"__" {
			delete(d.Fields, name)
			d.Fields[raw] = field
		}
		plain(field.Type)
	}
}

// Value makes the fields of an object readable by their types: dates are times,
// and whole numbers stay whole. Nothing is converted before it is read.
func (s *Schema) Value(object map[string]any) ref.Val {
	return common.UnstructuredToVal(object, s.root)
}

// maybeMissing is how many names of a path, which begins below the object, lead to the first field that an object may be
// without; 0: all are there, or content that nobody declared decides.
func (s *Schema) maybeMissing(path []string) int {
	at := s.root
	for i, name := range path {
		field, declared := at.Properties()[name]
		switch {
		case i == 0 && name != "spec":
			return 0 // the API server, or this program, fills it in
		case !declared && at.AdditionalProperties() == nil:
			return 0
		case !declared || !slices.Contains(at.Required(), name) && field.Default() == nil:
			return i + 1
		}
		at = field
	}
	return 0
}

// metadata is what an API server guarantees. The lengths are those that it
// enforces; labels and annotations have no limit of their own, 256 is generous.
var metadata = fieldObject(map[string]crd.Schema{
	"name": fieldText(253), "generateName": fieldText(253), "namespace": fieldText(63), "uid": fieldText(128), "resourceVersion": fieldText(128),
	"generation": {SchemaProps: crd.SchemaProps{Type: crd.StringOrArray{"integer"}}},
	"labels":     fieldTexts(63), "annotations": fieldTexts(1024),
	"finalizers":        fieldList(fieldText(317)),
	"creationTimestamp": fieldDate(), "deletionTimestamp": fieldDate(),
	"ownerReferences": fieldList(fieldObject(map[string]crd.Schema{
		"apiVersion": fieldText(317), "kind": fieldText(63), "name": fieldText(253), "uid": fieldText(128), "controller": *crd.BooleanProperty(), "blockOwnerDeletion": *crd.BooleanProperty(),
	})),
})

const maxMetadata = 256

func fieldText(most int64) crd.Schema { return *crd.StringProperty().WithMaxLength(most) }

// fieldDate is null in an object that was not stored yet.
func fieldDate() crd.Schema {
	date := crd.DateTimeProperty()
	date.Nullable = true
	return *date
}

func fieldTexts(most int64) crd.Schema {
	return *crd.MapProperty(new(fieldText(most))).WithMaxProperties(maxMetadata)
}

func fieldList(of crd.Schema) crd.Schema { return *crd.ArrayProperty(&of).WithMaxItems(maxMetadata) }

func fieldObject(properties map[string]crd.Schema) crd.Schema {
	return crd.Schema{SchemaProps: crd.SchemaProps{Type: crd.StringOrArray{"object"}, Properties: properties}}
}

// remembered is a schema whose parts are made once: the library copies all
// properties of an object for each field that is read.
type remembered struct {
	*openapi.Schema
	properties map[string]common.Schema
	items      common.Schema
	additional common.SchemaOrBool
}

func rememberedOf(s *crd.Schema) *remembered {
	r := &remembered{Schema: &openapi.Schema{Schema: s}}
	if s.Properties != nil {
		r.properties = make(map[string]common.Schema, len(s.Properties))
		for name, p := range s.Properties {
			r.properties[name] = rememberedOf(&p)
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		r.items = rememberedOf(s.Items.Schema)
	}
	if a := s.AdditionalProperties; a != nil {
		values := rememberedValues{allows: a.Allows}
		if a.Schema != nil {
			values.schema = rememberedOf(a.Schema)
		}
		r.additional = values
	}
	return r
}

func (r *remembered) Properties() map[string]common.Schema      { return r.properties }
func (r *remembered) Items() common.Schema                      { return r.items }
func (r *remembered) AdditionalProperties() common.SchemaOrBool { return r.additional }

// rememberedValues are the values of a map.
type rememberedValues struct {
	schema common.Schema
	allows bool
}

func (v rememberedValues) Schema() common.Schema { return v.schema }
func (v rememberedValues) Allows() bool          { return v.allows }
