package reference_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// row is what the page says of a field.
type row struct {
	// newer: an older release does not have it.
	newer         bool
	verdicts, why string
}

var path = regexp.MustCompile("`((?:spec|status)\\.[A-Za-z0-9.*]+)`(¹?)")

// rows are those of the tables of fields, by path.
func rows(t *testing.T) map[string]row {
	t.Helper()
	data, err := os.ReadFile("toolhive-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]row{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range path.FindAllStringSubmatch(cells[0], -1) {
			if _, twice := found[m[1]]; twice {
				t.Errorf("%s has two rows", m[1])
			}
			found[m[1]] = row{m[2] != "", strings.TrimSpace(cells[1]) + " " + strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	return found
}

// Each row decides, and what is not as with ToolHive's operator has a reason.
func TestEachRowHasAVerdict(t *testing.T) {
	verdict := regexp.MustCompile("^(equal|refused|departure) (equal|refused|departure)$")
	all := rows(t)
	if len(all) < 50 {
		t.Fatalf("only %d fields were found: is the pattern still right?", len(all))
	}
	for field, r := range all {
		if !verdict.MatchString(r.verdicts) {
			t.Errorf("%s: %q: each is equal, refused or departure", field, r.verdicts)
		}
		if strings.Contains(r.verdicts, "departure") && r.why == "" {
			t.Errorf("%s departs without a reason", field)
		}
	}
}

// A field that nobody has decided about would be ignored without a word, and a row of a field
// that is gone would be believed. TOOLHIVE_CRDS is a directory of ToolHive's CRDs, of
// whichever release.
func TestEachFieldHasARow(t *testing.T) {
	dir := os.Getenv("TOOLHIVE_CRDS")
	if dir == "" {
		t.Skip("not run: TOOLHIVE_CRDS names no directory of ToolHive's CRDs")
	}
	fields, said := fieldsOf(t, filepath.Join(dir, "toolhive.stacklok.dev_mcpservers.yaml")), rows(t)
	for _, field := range without(said, fields) {
		t.Errorf("%s has no row", field)
	}
	used := map[string]bool{}
	for field := range fields {
		used[rowOf(said, field)] = true
	}
	for _, field := range slices.Sorted(maps.Keys(said)) {
		if !used[field] && !said[field].newer {
			t.Errorf("the row of %s is of no field", field)
		}
	}
}

// without are the fields that have no row.
func without(said map[string]row, fields map[string]bool) (missing []string) {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if rowOf(said, field) == "" {
			missing = append(missing, field)
		}
	}
	return missing
}

// rowOf is the row of a field: its own, or that of all below one above it.
func rowOf(said map[string]row, field string) string {
	if _, own := said[field]; own {
		return field
	}
	for above := field; strings.Contains(above, "."); {
		above = above[:strings.LastIndex(above, ".")]
		if _, all := said[above+".*"]; all {
			return above + ".*"
		}
	}
	return ""
}

// fieldsOf are the paths of spec and status in a CRD.
func fieldsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, version := range crd.Spec.Versions {
		if version.Name == "v1beta1" {
			addFields(found, "spec", version.Schema.OpenAPIV3Schema.Properties["spec"])
			addFields(found, "status", version.Schema.OpenAPIV3Schema.Properties["status"])
		}
	}
	return found
}

func addFields(found map[string]bool, at string, schema apiextensionsv1.JSONSchemaProps) {
	if schema.Items != nil && schema.Items.Schema != nil {
		schema = *schema.Items.Schema
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		addFields(found, at+".*", *schema.AdditionalProperties.Schema)
	}
	for name, field := range schema.Properties {
		found[at+"."+name] = true
		addFields(found, at+"."+name, field)
	}
}
