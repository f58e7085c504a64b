package resources_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
)

// decision is a row of docs/reference/absent-fields.md for one field in one state.
type decision struct{ kind, path, state string }

func (d decision) String() string { return d.kind + " " + d.path + ", " + d.state }

var fieldOfRow = regexp.MustCompile("`([A-Za-z]+) ((?:spec|status)\\.[A-Za-z0-9.\\[\\]]+)`")

// decisions are what v3 gets, as the page says.
func decisions(t *testing.T) map[decision]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/absent-fields.md")
	must(t, err)
	all := map[decision]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		fields := fieldOfRow.FindAllStringSubmatch(cells[0], -1)
		if len(cells) != 5 || len(fields) == 0 {
			continue
		}
		for _, m := range fields {
			for state := range strings.SplitSeq(strings.TrimSpace(cells[1]), ", ") {
				d := decision{m[1], m[2], state}
				if _, twice := all[d]; twice {
					t.Errorf("%s has two rows", d)
				}
				all[d] = strings.TrimSpace(cells[4])
			}
		}
	}
	if len(all) < 150 {
		t.Fatalf("only %d decisions were found: are the patterns still right?", len(all))
	}
	return all
}

// Each field that v3's schema or a rule of ours fills in, or that a rule leaves out, has a row that says what Calico made
// of it in v1; and v3 gets what the row says. With the real CRDs no default of a new release goes unseen.
func TestAbsentFields(t *testing.T) {
	defs, rows := definitions(t), decisions(t)
	given := os.Getenv(crds.EnvDir) != ""
	seen := map[decision]bool{}
	for _, kind := range resources.Default().Kinds() {
		p := newProbe(t, kind, defs[kind.V3CRDName()])
		if given {
			p.assertDecided(t, rows, seen)
		}
		p.assertRows(t, rows, given)
	}
	for d := range rows {
		if given && !seen[d] {
			t.Errorf("the page has a row for %s, which no v3 CRD has", d)
		}
	}
}

// assertDecided notes what it has seen.
func (p *probe) assertDecided(t *testing.T, rows map[decision]string, seen map[decision]bool) {
	t.Helper()
	p.walk(p.root, nil, func(path string, of apiextensionsv1.JSONSchemaProps) {
		for state, value := range states(of) {
			d := decision{p.kind.Name(), path, state}
			_, decided := rows[d]
			if seen[d] = decided; !decided && p.matters(path, value, of) {
				t.Errorf("docs/reference/absent-fields.md has no row for %s (default %s): read in Calico's source what v1's readers made of it", d, raw(of.Default))
			}
		}
	})
}

// assertRows leaves out what only the real schemas do where they are not given.
func (p *probe) assertRows(t *testing.T, rows map[decision]string, given bool) {
	t.Helper()
	for d, want := range rows {
		if d.kind != p.kind.Name() || !given && want != "refused" && !strings.HasSuffix(want, "by the conversion") {
			continue
		}
		if got := p.got(d, given); got != want {
			t.Errorf("%s: v3 gets %s, the page says %s", d, got, want)
		}
	}
}

// states are the values with which a field says nothing. An absent one is no value.
func states(of apiextensionsv1.JSONSchemaProps) map[string]any {
	all := map[string]any{"absent": missing{}, "null": nil}
	switch {
	case of.Type == "array":
		all["empty"] = []any{}
	case of.Type == "integer" || of.Type == "number":
		all["empty"] = int64(0)
	case of.Type == "string" || of.XIntOrString:
		all["empty"] = ""
	}
	return all
}

type missing struct{}

func raw(value *apiextensionsv1.JSON) string {
	if value == nil {
		return "none"
	}
	return string(value.Raw)
}

// probe converts objects of one kind that say nothing in one field.
type probe struct {
	kind       *resources.Kind
	schema     *resources.Schema
	root       apiextensionsv1.JSONSchemaProps
	structural *structuralschema.Structural
}

func newProbe(t *testing.T, kind *resources.Kind, crd *apiextensionsv1.CustomResourceDefinition) *probe {
	t.Helper()
	schema, err := resources.NewSchema(crd, resources.V3Version)
	must(t, err)
	p := &probe{kind: kind, schema: schema, root: *crd.Spec.Versions[0].Schema.OpenAPIV3Schema}
	internal := &apiextensions.JSONSchemaProps{}
	must(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&p.root, internal, nil))
	if p.structural, err = structuralschema.NewStructural(internal); err != nil {
		t.Fatal(err)
	}
	return p
}

// walk visits all fields of spec and status, those in lists and maps included.
func (p *probe) walk(of apiextensionsv1.JSONSchemaProps, path []string, visit func(string, apiextensionsv1.JSONSchemaProps)) {
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		if len(path) == 0 && name != "spec" && name != "status" {
			continue
		}
		field, at := of.Properties[name], append(slices.Clip(path), name)
		if len(at) > 1 {
			visit(strings.Join(at, "."), field)
		}
		for field.Items != nil && field.Items.Schema != nil {
			at[len(at)-1] += "[]"
			field = *field.Items.Schema
		}
		if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
			at[len(at)-1] += "{}"
			field = *field.AdditionalProperties.Schema
		}
		p.walk(field, at, visit)
	}
}

// matters tells whether v3 has something else in the field than v1.
func (p *probe) matters(path string, value any, of apiextensionsv1.JSONSchemaProps) bool {
	if _, none := value.(missing); (none || value == nil) && of.Default != nil {
		return true
	}
	after, err := p.convert(path, value)
	if err != nil {
		return true
	}
	return !cmp.Equal(after, value) && !(value == nil && after == missing{})
}

// got is what v3 has in the field, in the words of the page.
func (p *probe) got(d decision, filled bool) string {
	value := map[string]any{"absent": missing{}, "null": nil, "empty": ""}[d.state]
	if of, known := p.at(d.path); known && d.state == "empty" {
		value = states(of)["empty"]
	} else if strings.HasSuffix(strings.ToLower(d.path), "types") && d.state == "empty" {
		value = []any{}
	}
	after, err := p.convert(d.path, value)
	if err != nil {
		return "refused"
	}
	by := "conversion"
	if _, none := after.(missing); (none || after == nil) && filled {
		content := nested(d.path, after).(map[string]any)
		defaulting.PruneNonNullableNullsWithoutDefaults(content, p.structural)
		defaulting.Default(content, p.structural)
		after, by = find(content, strings.Split(d.path, ".")), "schema"
	}
	if _, none := after.(missing); none {
		return "nothing"
	}
	data, _ := json.Marshal(after)
	return fmt.Sprintf("`%s` by the %s", data, by)
}

func (p *probe) at(path string) (of apiextensionsv1.JSONSchemaProps, known bool) {
	p.walk(p.root, nil, func(at string, field apiextensionsv1.JSONSchemaProps) {
		if at == path {
			of, known = field, true
		}
	})
	return of, known
}

// convert is what the copy of an object with this value says.
func (p *probe) convert(path string, value any) (any, error) {
	v1 := &unstructured.Unstructured{Object: nested(path, value).(map[string]any)}
	v1.SetGroupVersionKind(p.kind.V1GVK())
	v1.SetName("a")
	v1.SetUID("0e5e3214-5bda-429e-8d53-2f1b77363286")
	conv, err := resources.Convert(p.kind, v1, p.schema)
	if err != nil {
		return nil, err
	}
	content := maps.Clone(conv.Object.Object)
	if conv.Status != nil {
		content["status"] = conv.Status
	}
	return find(content, strings.Split(path, ".")), nil
}

// nested is an object with one value at the end of a path, through one item of each list or map.
func nested(path string, value any) any {
	steps := strings.Split(path, ".")
	for _, step := range slices.Backward(steps) {
		name, inside := strings.TrimRight(step, "[]{}"), value
		for kinds := step[len(name):]; kinds != ""; kinds = kinds[2:] {
			if kinds[0] == '[' {
				inside = []any{inside}
			} else {
				inside = map[string]any{"key": inside}
			}
		}
		value = map[string]any{}
		if inside != any(missing{}) {
			value = map[string]any{name: inside}
		}
	}
	return value
}

// find is the value at the end of a path, or missing.
func find(value any, steps []string) any {
	for _, step := range steps {
		name := strings.TrimRight(step, "[]{}")
		fields, _ := value.(map[string]any)
		inside, there := fields[name]
		if !there {
			return missing{}
		}
		for kinds := step[len(name):]; kinds != ""; kinds = kinds[2:] {
			switch of := inside.(type) {
			case []any:
				inside = of[0]
			case map[string]any:
				inside = of["key"]
			}
		}
		value = inside
	}
	return value
}
