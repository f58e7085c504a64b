package diag

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// walker compares the YAML tree with the Go type, so that each finding has a
// line and a column; the decoder behind it knows neither.
type walker struct {
	source *Source
	diags  Diagnostics
	nodes  int
}

func (w *walker) find(n *yamlv3.Node, path, message, fix string) {
	x := w.source.diagAt(place{Pos: Pos{n.Line, n.Column}}, "PG000", message, fix)
	x.Path = path
	w.diags = append(w.diags, x)
}

func (w *walker) walk(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	if !w.bounded(n, path, depth) {
		return
	}
	w.source.at[path] = place{Pos: Pos{n.Line, n.Column}, style: n.Style}
	if n.Kind == yamlv3.AliasNode || n.Anchor != "" {
		w.find(n, path, "anchors and aliases are not allowed", "write the value out")
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		w.walkMapping(n, t, path, depth)
	case reflect.Slice:
		w.walkList(n, t, path, depth)
	case reflect.Interface:
		w.walkAny(n, t, path, depth)
	default:
		w.checkScalar(n, t.Kind(), path)
	}
}

// bounded is false once the file is too large or too deep; it says so once.
func (w *walker) bounded(n *yamlv3.Node, path string, depth int) bool {
	w.nodes++
	if w.nodes == maxFileNodes || w.nodes < maxFileNodes && depth > maxFileDepth {
		w.find(n, path, fmt.Sprintf("more than %d values or %d levels", maxFileNodes, maxFileDepth), "simplify the file")
	}
	return w.nodes < maxFileNodes && depth <= maxFileDepth
}

func (w *walker) walkList(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	if n.Kind != yamlv3.SequenceNode {
		w.find(n, path, path+" must be a list", "begin each item with a dash")
		return
	}
	for i, c := range n.Content {
		w.walk(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

func (w *walker) walkAny(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	switch n.Kind {
	case yamlv3.MappingNode:
		w.walkMapping(n, reflect.MapOf(reflect.TypeFor[string](), t), path, depth)
	case yamlv3.SequenceNode:
		w.walkList(n, reflect.SliceOf(t), path, depth)
	default:
		// A null that is written out means something: a merge patch removes a field
		// by it. One that is not is a forgotten value.
		if null := n.ShortTag() == "!!null" && n.Value != ""; !null && !slices.Contains(anyTags, n.ShortTag()) {
			w.find(n, path, path+" must be a text, a number, true, false or null", "quote it")
		}
	}
}

func (w *walker) walkMapping(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	if n.Kind != yamlv3.MappingNode {
		w.find(n, path, fmt.Sprintf("%s must be a mapping", cmpPath(path)), "write key: value")
		return
	}
	seen := map[string]int{} // the line of each key
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		sub := strings.TrimPrefix(path+"."+key.Value, ".")
		f, known := fieldOf(t, key.Value)
		switch {
		case key.ShortTag() != "!!str" || key.Anchor != "" || key.Kind != yamlv3.ScalarNode:
			w.find(key, sub, "a key must be a plain text", "write the key out, quoted if need be")
		case seen[key.Value] > 0:
			w.find(key, sub, fmt.Sprintf("duplicate key %q: it is in line %d already", key.Value, seen[key.Value]), "keep one of them")
		case !known:
			w.find(key, sub, fmt.Sprintf("unknown field %q in %s", key.Value, cmpPath(path)),
				Instead(key.Value, "known fields", fieldNames(t)))
		case f.required && value.Kind == yamlv3.ScalarNode && value.Value == "":
			w.find(value, sub, sub+" is empty", "give it a value")
		default:
			w.walk(value, f.elem, sub, depth+1)
		}
		seen[key.Value] = key.Line
	}
	w.checkMissing(n, t, path, seen)
}

func (w *walker) checkMissing(n *yamlv3.Node, t reflect.Type, path string, seen map[string]int) {
	for _, f := range fieldsOf(t) {
		if f.required && seen[f.name] == 0 {
			w.find(n, path, fmt.Sprintf("%s has no %s", cmpPath(path), f.name), fmt.Sprintf("add %s:", f.name))
		}
	}
}

func cmpPath(path string) string {
	return cmp.Or(path, "the file")
}

// field is one key that a mapping may have.
type field struct {
	name string
	elem reflect.Type
	// required: the JSON tag does not say that it may be left out.
	required bool
}

func fieldsOf(t reflect.Type) []field {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var fields []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" { // it is not for files
			continue
		}
		fields = append(fields, field{name: name, elem: f.Type, required: options == ""})
	}
	return fields
}

func fieldOf(t reflect.Type, name string) (field, bool) {
	if t.Kind() == reflect.Map {
		return field{name: name, elem: t.Elem()}, true
	}
	for _, f := range fieldsOf(t) {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

var (
	// anyTags are the scalars that `with` may hold.
	anyTags    = []string{"!!str", "!!int", "!!float", "!!bool"}
	scalarTags = map[reflect.Kind]struct {
		tags []string
		want string
	}{
		reflect.String:  {[]string{"!!str"}, "a text; quote it"},
		reflect.Bool:    {[]string{"!!bool"}, "true or false"},
		reflect.Int32:   {[]string{"!!int"}, "a whole number below 2147483648"},
		reflect.Int64:   {[]string{"!!int"}, "a whole number"},
		reflect.Float64: {[]string{"!!int", "!!float"}, "a number"},
	}
)

func (w *walker) checkScalar(n *yamlv3.Node, kind reflect.Kind, path string) {
	want := scalarTags[kind]
	ok := n.Kind == yamlv3.ScalarNode && slices.Contains(want.tags, n.ShortTag())
	if ok && kind == reflect.Int32 {
		ok = n.Decode(new(int32)) == nil
	}
	if ok && kind == reflect.Float64 {
		var f float64
		ok = n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	if !ok {
		w.find(n, path, fmt.Sprintf("%s must be %s", path, want.want), "see docs/machine-format.md")
	}
}
