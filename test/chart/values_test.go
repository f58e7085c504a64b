package chart_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// property is what a person reads in the schema.
type property struct {
	Ref         string               `json:"$ref"`
	Description string               `json:"description"`
	Default     any                  `json:"default"`
	Closed      any                  `json:"additionalProperties"`
	Properties  map[string]*property `json:"properties"`
}

type described struct {
	Description string
	Default     any
}

// TestValuesAreDescribed: values.yaml and values.schema.json have the same values,
// with the same defaults and sentences; README.md is made from values.yaml.
func TestValuesAreDescribed(t *testing.T) {
	schema := &struct {
		property
		Definitions map[string]*property `json:"definitions"`
	}{}
	if err := json.Unmarshal([]byte(read(t, "charts", "phasegate", "values.schema.json")), schema); err != nil {
		t.Fatal(err)
	}
	inSchema := map[string]described{}
	var walk func(path string, p *property)
	walk = func(path string, p *property) {
		if name, ok := strings.CutPrefix(p.Ref, "#/definitions/"); ok {
			p = schema.Definitions[name]
		}
		if p.Description == "" {
			t.Errorf("the schema does not describe %s", path)
		}
		// An object of which each value is known; what a user may add to is a value itself.
		if p.Properties != nil && p.Default == nil {
			if p.Closed != false {
				t.Errorf("the schema lets a misspelt value of %s through", path)
			}
			for name, child := range p.Properties {
				walk(path+"."+name, child)
			}
			return
		}
		inSchema[path] = described{p.Description, p.Default}
	}
	for name, p := range schema.Properties {
		if name != "global" {
			walk(name, p)
		}
	}
	if diff := cmp.Diff(inValues(t, inSchema), inSchema); diff != "" {
		t.Errorf("-values.yaml +values.schema.json:\n%s", diff)
	}
}

// inValues are the values of values.yaml with what README.md says of them, where the schema
// says that they are values and not groups of some.
func inValues(t *testing.T, known map[string]described) map[string]described {
	t.Helper()
	said := map[string]string{}
	for _, row := range readmeRow.FindAllStringSubmatch(read(t, "charts", "phasegate", "README.md"), -1) {
		said[row[1]] = row[2]
	}
	var all any
	if err := yaml.Unmarshal([]byte(read(t, "charts", "phasegate", "values.yaml")), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]described{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		_, leaf := known[path]
		if group, ok := value.(map[string]any); ok && !leaf {
			for name, child := range group {
				walk(strings.TrimPrefix(path+"."+name, "."), child)
			}
			return
		}
		found[path] = described{sentence(said, path), value}
	}
	walk("", all)
	return found
}

// readmeRow is one row of the tables in README.md: a value and its comment in values.yaml.
var readmeRow = regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| (.*) \\| `.*` \\|$")

// sentence about a value. What all controllers have is described once, with the first.
func sentence(said map[string]string, path string) string {
	if own := said[path]; own != "" {
		return own
	}
	parts := strings.Split(path, ".")
	if len(parts) < 3 || parts[0] != "controllers" {
		return ""
	}
	parts[1] = "datastoremigration"
	return said[strings.Join(parts, ".")]
}

// Where the controllers differ is where they say so.
func TestControllersHaveTheSameValues(t *testing.T) {
	all := struct {
		Controllers map[string]map[string]any `json:"controllers"`
	}{}
	if err := yaml.Unmarshal([]byte(read(t, "charts", "phasegate", "values.yaml")), &all); err != nil {
		t.Fatal(err)
	}
	want := all.Controllers["datastoremigration"]
	delete(want, "calicoNamespace")
	delete(want, "cleanup")
	delete(want, "copyAhead")
	delete(want, "dependents")
	delete(want, "priorityLevel")
	delete(want, "storeQuota")
	delete(want, "requestTimeout")
	for name, got := range all.Controllers {
		want["enabled"], want["replicas"] = got["enabled"], got["replicas"] // nobody but a migration locks what a successor needs
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("controllers.%s (-datastoremigration +%s):\n%s", name, name, diff)
		}
	}
}

// What Artifact Hub shows is what the chart holds.
func TestAnnotations(t *testing.T) {
	chart := chartV4(t)
	about := chart.Metadata.Annotations
	if chart.Metadata.Version != chart.AppVersion() {
		t.Errorf("chart %s installs %s: they are released together", chart.Metadata.Version, chart.AppVersion())
	}
	for _, image := range []string{"manager", "proxyrunner"} {
		if want := fmt.Sprintf("image: ghcr.io/phasegate/%s:%s\n", image, chart.AppVersion()); !strings.Contains(about["artifacthub.io/images"], want) {
			t.Errorf("artifacthub.io/images does not have %q but:\n%s", want, about["artifacthub.io/images"])
		}
	}
	kinds := []string{"added", "changed", "deprecated", "removed", "fixed", "security"}
	var changes []struct{ Kind, Description string }
	if err := yaml.Unmarshal([]byte(about["artifacthub.io/changes"]), &changes); err != nil || len(changes) == 0 {
		t.Fatalf("artifacthub.io/changes: %v: %v", changes, err)
	}
	for _, change := range changes {
		if !slices.Contains(kinds, change.Kind) || change.Description == "" {
			t.Errorf("artifacthub.io/changes: %v: its kind is not among %v, or nothing is said", change, kinds)
		}
	}
}

// crdEntry is a CRD by its kind and the version that people should write.
type crdEntry struct{ Name, Kind, APIVersion string }

func TestAnnotationsOfCRDs(t *testing.T) {
	about := chartV4(t).Metadata.Annotations
	var told []struct{ Name, Kind, Version string }
	var examples []struct{ Kind, APIVersion string }
	for key, into := range map[string]any{"artifacthub.io/crds": &told, "artifacthub.io/crdsExamples": &examples} {
		if err := yaml.Unmarshal([]byte(about[key]), into); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	var want, got, shown, written []crdEntry
	for _, crd := range told {
		_, group, _ := strings.Cut(crd.Name, ".")
		entry := crdEntry{crd.Name, crd.Kind, group + "/" + crd.Version}
		got = append(got, entry)
		if crd.Name == stateCRD || crd.Name == definitionCRD { // nobody writes one
			continue
		}
		written = append(written, entry)
		example := examples[len(shown)]
		shown = append(shown, crdEntry{crd.Name, example.Kind, example.APIVersion})
	}
	out := mustRender(t, nil)
	for _, o := range out.objects(t) {
		if o.Kind != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		out.find(t, o.Kind, o.Name, crd)
		stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
		want = append(want, crdEntry{o.Name, crd.Spec.Names.Kind, crd.Spec.Group + "/" + crd.Spec.Versions[stored].Name})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("artifacthub.io/crds (-CRDs +told):\n%s", diff)
	}
	if diff := cmp.Diff(written, shown); diff != "" {
		t.Errorf("artifacthub.io/crdsExamples (-CRDs +examples):\n%s", diff)
	}
}
