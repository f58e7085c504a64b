// Package kubetypes knows the fields of the kinds of Kubernetes itself, from the Go types that
// this program is built with. It asks no cluster.
package kubetypes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/phasegate/phasegate/fsm"
)

// Misfits compares content with a kind. A text that holds ${…} may come to anything where
// it is nothing else, and to a text where it is more. Of a kind that is not known nothing
// is a misfit.
func Misfits(apiVersion, kind string, content map[string]any) []fsm.Misfit {
	t, known := typeOf(apiVersion, kind)
	if !known {
		return unknownKind(apiVersion, kind)
	}
	w := walk{of: kind}
	w.value("", t, content)
	return w.misfits
}

// unknownKind is a misfit only where the group and version are Kubernetes' own.
func unknownKind(apiVersion, kind string) []fsm.Misfit {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || kind == "" || strings.Contains(kind, "${") || !clientgoscheme.Scheme.IsVersionRegistered(gv) {
		return nil
	}
	return []fsm.Misfit{{Path: "kind", Message: fmt.Sprintf("%s has no kind %q", apiVersion, kind), Name: kind, Known: kindsOf(gv)}}
}

// kindsOf are the kinds that have metadata: the others cannot be made.
func kindsOf(gv schema.GroupVersion) []string {
	var kinds []string
	for kind, t := range clientgoscheme.Scheme.KnownTypes(gv) {
		if field, found := t.FieldByName("ObjectMeta"); found && field.Anonymous {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Variables answers the JSON types of the fields that hold ${…} and nothing else, by that
// text: string, integer, number, boolean, object, array. Texts whose type is not clear are
// left out.
func Variables(apiVersion, kind string, content map[string]any) map[string]string {
	w := walk{variables: map[string]string{}}
	if t, known := typeOf(apiVersion, kind); known {
		w.value("", t, content)
	}
	return w.variables
}

// scaled are the kinds of Kubernetes itself that have the subresource scale.
var scaled = []string{"apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "/ReplicationController"}

// NoScale tells of a kind that is known that it has no subresource scale.
func NoScale(apiVersion, kind string) bool {
	_, known := typeOf(apiVersion, kind)
	return known && !slices.Contains(scaled, schema.FromAPIVersionAndKind(apiVersion, kind).Group+"/"+kind)
}

func typeOf(apiVersion, kind string) (reflect.Type, bool) {
	obj, err := clientgoscheme.Scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return nil, false
	}
	return reflect.TypeOf(obj).Elem(), true
}

// walk goes through content and its Go type side by side.
type walk struct {
	of        string
	misfits   []fsm.Misfit
	variables map[string]string
}

func (w *walk) wrong(path, format string, args ...any) {
	w.misfits = append(w.misfits, fsm.Misfit{Path: path, Message: fmt.Sprintf("%s of a %s is ", path, w.of) + fmt.Sprintf(format, args...)})
}

func (w *walk) value(path string, t reflect.Type, v any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := jsonType(t)
	text, isText := v.(string)
	switch {
	case v == nil || want == "":
	case isText && strings.Contains(text, "${"):
		w.expression(path, want, text)
	case !fits(want, v):
		w.wrong(path, "%s, and must be %s", shown(v), articles[want])
	default:
		w.parts(path, t, v)
	}
}

// parts are those of a value that fits its type.
func (w *walk) parts(path string, t reflect.Type, v any) {
	switch x := v.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct {
			w.fields(path, t, x)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			w.value(join(path, key), t.Elem(), x[key])
		}
	case []any:
		for i, item := range x {
			w.value(fmt.Sprintf("%s[%d]", path, i), t.Elem(), item)
		}
	}
}

func (w *walk) expression(path, want, text string) {
	alone := strings.HasPrefix(text, "${") && strings.Index(text, "}") == len(text)-1
	switch {
	case alone && w.variables != nil && want != "int or string":
		w.variables[text] = want
	case strings.HasPrefix(text, "${") && strings.HasSuffix(text, "}"), fits(want, text):
	default:
		w.wrong(path, "a text with an expression in it, and must be %s", articles[want])
	}
}

func (w *walk) fields(path string, t reflect.Type, content map[string]any) {
	known := map[string]reflect.Type{}
	fieldsOf(t, known)
	for _, name := range slices.Sorted(maps.Keys(content)) {
		at := join(path, name)
		if field, found := known[name]; found {
			w.value(at, field, content[name])
			continue
		}
		w.misfits = append(w.misfits, fsm.Misfit{Path: at, Name: name, Known: slices.Sorted(maps.Keys(known)),
			Message: fmt.Sprintf("a %s has no field %s", w.of, at)})
	}
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// fieldsOf collects the JSON fields of a struct, those of embedded ones included.
func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
			inner := field.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			fieldsOf(inner, into)
		case name != "":
			into[name] = field.Type
		}
	}
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	// special are types that read JSON by themselves.
	special = map[reflect.Type]string{
		reflect.TypeFor[intstr.IntOrString](): "int or string", reflect.TypeFor[resource.Quantity](): "int or string",
		reflect.TypeFor[metav1.Time](): "string", reflect.TypeFor[metav1.MicroTime](): "string", reflect.TypeFor[metav1.Duration](): "string",
	}
)

// jsonType is the type of the JSON of a Go type; empty: it may be any.
func jsonType(t reflect.Type) string {
	if name, found := special[t]; found {
		return name
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return ""
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string" // base64
		}
		return "array"
	}
	if t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 {
		return "integer"
	}
	return ""
}

func fits(want string, v any) bool {
	got := typeName(v)
	return got == want || want == "number" && got == "integer" || want == "int or string" && (got == "integer" || got == "string" || got == "number")
}

func typeName(v any) string {
	switch x := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case int64, int:
		return "integer"
	case float64:
		if x == float64(int64(x)) {
			return "integer"
		}
		return "number"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "null"
}

// shown is a value as a finding names it.
func shown(v any) string {
	switch v.(type) {
	case map[string]any, []any:
		return articles[typeName(v)]
	case string:
		return fmt.Sprintf("the text %q", v)
	}
	return fmt.Sprintf("%v", v)
}

// articles are for the types of jsonType.
var articles = map[string]string{
	"string": "a text", "integer": "a whole number", "boolean": "true or false", "array": "a list", "object": "an object", "number": "a number",
	"int or string": "a number or a text",
}
