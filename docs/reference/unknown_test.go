package reference_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/charts"
)

func unknownInput(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("unknown-input.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The tests of package docs see to it that those tests exist.
func TestEachRowNamesATest(t *testing.T) {
	named, rows := regexp.MustCompile("`[a-z/]+\\.Test[A-Za-z]+(/[^`]+)?`"), 0
	for line := range strings.Lines(unknownInput(t)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[2]) == "tests" {
			continue
		}
		if rows++; !named.MatchString(cells[2]) {
			t.Errorf("%s: %q names no test", cells[0], cells[2])
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows were found: is the page still a table?", rows)
	}
}

// A field of a CRD in which everything is kept swallows typing errors: the page has them all.
func TestNoCRDKeepsUnknownFields(t *testing.T) {
	const dir = "phasegate/files/crds"
	files, err := charts.CRDs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	free := map[string][]string{}
	for _, file := range files {
		data, err := charts.CRDs.ReadFile(dir + "/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			kind := crd.Spec.Names.Kind
			free[kind] = append(free[kind], freeFields(v.Schema.OpenAPIV3Schema, "")...)
			if crd.Spec.PreserveUnknownFields {
				free[kind] = append(free[kind], "everything")
			}
		}
	}
	want := map[string][]string{}
	for kind, all := range free {
		if slices.Sort(all); len(all) > 0 {
			want[kind] = slices.Compact(all)
		}
	}
	got := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^([A-Z][A-Za-z]+): (`.+`)\\.$").FindAllStringSubmatch(unknownInput(t), -1) {
		got[m[1]] = strings.Split(strings.Trim(m[2], "`"), "`, `")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields that keep everything (-CRDs +page):\n%s", diff)
	}
}

func freeFields(s *apiextensionsv1.JSONSchemaProps, at string) (all []string) {
	if s == nil {
		return nil
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		all = append(all, at)
	}
	for name, inside := range s.Properties {
		all = append(all, freeFields(&inside, strings.TrimPrefix(at+"."+name, "."))...)
	}
	if s.Items != nil {
		all = append(all, freeFields(s.Items.Schema, at+"[]")...)
	}
	if s.AdditionalProperties != nil {
		all = append(all, freeFields(s.AdditionalProperties.Schema, at+"{}")...)
	}
	return all
}
