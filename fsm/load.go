package fsm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Bounds of a machine file; a larger or deeper one is refused before decoding.
const (
	MaxFileSize  = 256 << 10
	maxFileDepth = 32
	maxFileNodes = 20_000
)

// Definition is a machine file that decoded without a finding.
type Definition struct {
	v1alpha1.Machine

	// File is the name used in diagnostics.
	File string
	// Revision is "sha256:" and the hash of the file's bytes.
	Revision string

	at map[string]place
}

// Pos is where a value such as spec.phases[2].next[0].when stands, or the
// nearest one above it.
func (d *Definition) Pos(path string) Pos { return d.diag(path, "", "", "").Pos }

// place is where a value stands, and how it is written there.
type place struct {
	Pos
	style yamlv3.Style
}

// Load decodes a machine file strictly; what it says is checked by Bind. It reads
// nothing but data, and may be called any number of times. The definition is nil
// when there is a finding.
func Load(file string, data []byte) (*Definition, Diagnostics) {
	d := &Definition{File: file, at: map[string]place{}}
	if diags := d.decode(data); len(diags) > 0 {
		return nil, diags.sorted()
	}
	sum := sha256.Sum256(data)
	d.Revision = "sha256:" + hex.EncodeToString(sum[:8])
	return d, nil
}

func (d *Definition) decode(data []byte) Diagnostics {
	if len(data) > MaxFileSize {
		return Diagnostics{d.diagAt(place{Pos: Pos{1, 1}}, "PG000",
			fmt.Sprintf("the file has %d bytes, more than %d", len(data), MaxFileSize), "split the machine or shorten its texts")}
	}
	root, err := parseYAML(data)
	if err != nil {
		return Diagnostics{d.diagAt(place{Pos: Pos{errorLine(err), 1}}, "PG000", err.Error(), "write one valid YAML document")}
	}
	w := &walker{def: d}
	w.walk(root, reflect.TypeFor[v1alpha1.Machine](), "", 0)
	if len(w.diags) > 0 {
		return w.diags
	}
	if err := decodeInto(root, &d.Machine); err != nil {
		return Diagnostics{d.diagAt(place{Pos: Pos{errorLine(err), 1}}, "PG000", err.Error(), "see docs/machine-format.md")}
	}
	if d.APIVersion != v1alpha1.APIVersion || d.Kind != v1alpha1.KindMachine {
		return Diagnostics{d.diag("apiVersion", "PG000", fmt.Sprintf("apiVersion %q, kind %q", d.APIVersion, d.Kind),
			fmt.Sprintf("write apiVersion: %s and kind: %s", v1alpha1.APIVersion, v1alpha1.KindMachine))}
	}
	return nil
}

func parseYAML(data []byte) (*yamlv3.Node, error) {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc, more yamlv3.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the file is empty")
		}
		return nil, err
	}
	switch err := dec.Decode(&more); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("the file holds more than one document: another begins at line %d", more.Line)
}

// decodeInto fills a value from the tree that the walker has seen: a second
// parser could read the same text differently (yes, on and 1:30 are such).
func decodeInto(root *yamlv3.Node, into any) error {
	var tree any
	if err := root.Decode(&tree); err != nil {
		return err
	}
	data, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

var lineInError = regexp.MustCompile(`line (\d+)`)

func errorLine(err error) int {
	if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
		if n, e := strconv.Atoi(m[1]); e == nil {
			return n
		}
	}
	return 1
}

// diag makes a finding at a path such as spec.phases[2].next[0].when, or at the
// nearest place above it that the file has.
func (d *Definition) diag(path, code, message, fix string) Diagnostic {
	for p := path; ; {
		if at, ok := d.at[p]; ok {
			x := d.diagAt(at, code, message, fix)
			x.Path = path
			return x
		}
		cut := strings.LastIndexAny(p, ".[")
		if cut < 0 {
			x := d.diagAt(place{Pos: Pos{1, 1}}, code, message, fix)
			x.Path = path
			return x
		}
		p = p[:cut]
	}
}

func (d *Definition) diagAt(at place, code, message, fix string) Diagnostic {
	return Diagnostic{Code: code, File: d.File, Pos: at.Pos, Severity: SeverityError, Message: message, Fix: fix}
}

// walker compares the YAML tree with the Go type, so that each finding has a
// line and a column; the decoder behind it knows neither.
type walker struct {
	def   *Definition
	diags Diagnostics
	nodes int
}

func (w *walker) find(n *yamlv3.Node, path, message, fix string) {
	x := w.def.diagAt(place{Pos: Pos{n.Line, n.Column}}, "PG000", message, fix)
	x.Path = path
	w.diags = append(w.diags, x)
}

func (w *walker) walk(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	if !w.bounded(n, path, depth) {
		return
	}
	w.def.at[path] = place{Pos: Pos{n.Line, n.Column}, style: n.Style}
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
		if !slices.Contains(anyTags, n.ShortTag()) {
			w.find(n, path, path+" must be a text, a number, true or false", "quote it")
		}
	}
}

func (w *walker) walkMapping(n *yamlv3.Node, t reflect.Type, path string, depth int) {
	if n.Kind != yamlv3.MappingNode {
		w.find(n, path, fmt.Sprintf("%s must be a mapping", cmpPath(path)), "write key: value")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		sub := strings.TrimPrefix(path+"."+key.Value, ".")
		f, known := fieldOf(t, key.Value)
		switch {
		case key.ShortTag() != "!!str" || key.Anchor != "" || key.Kind != yamlv3.ScalarNode:
			w.find(key, sub, "a key must be a plain text", "write the key out, quoted if need be")
		case seen[key.Value]:
			w.find(key, sub, fmt.Sprintf("duplicate key %q", key.Value), "keep one of them")
		case !known:
			w.find(key, sub, fmt.Sprintf("unknown field %q in %s", key.Value, cmpPath(path)),
				"known fields: "+strings.Join(fieldNames(t), ", "))
		case f.required && value.Kind == yamlv3.ScalarNode && value.Value == "":
			w.find(value, sub, sub+" is empty", "give it a value")
		default:
			w.walk(value, f.elem, sub, depth+1)
		}
		seen[key.Value] = true
	}
	w.checkMissing(n, t, path, seen)
}

func (w *walker) checkMissing(n *yamlv3.Node, t reflect.Type, path string, seen map[string]bool) {
	for _, f := range fieldsOf(t) {
		if f.required && !seen[f.name] {
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
	// required: the JSON tag does not say omitempty.
	required bool
}

// fieldsOf lists the keys of a struct; a map has none of its own.
func fieldsOf(t reflect.Type) []field {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var fields []field
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, field{name: name, elem: f.Type, required: options != "omitempty"})
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
