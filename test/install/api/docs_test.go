package api_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// What people copy out of the page must be accepted, and hold no field that we do
// not know. A block that is a part of a server is tried with the rest of one.
func TestPageShowsWhatIsAccepted(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "mcpserver.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("the page shows no server")
	}
	known := readCRD(t, filepath.Join("..", "..", "..", "charts", "phasegate", "files", "crds")).
		Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	for _, block := range blocks {
		var shown struct{ Spec object }
		if err := yaml.Unmarshal(block[1], &shown); err != nil {
			t.Fatalf("%v in:\n%s", err, block[1])
		}
		if shown.Spec == nil {
			continue // values of the chart
		}
		for field := range shown.Spec {
			if _, ok := known[field]; !ok {
				t.Errorf("there is no spec.%s:\n%s", field, block[1])
			}
		}
		if shown.Spec["image"] == nil {
			shown.Spec["image"] = "i"
		}
		if err := ruled(t).Create(t.Context(), server("v1beta1", "shown", wholeNumbers(shown.Spec)), client.DryRunAll); err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
		}
	}
}

// wholeNumbers turns the numbers of decoded JSON into those of unstructured objects.
func wholeNumbers(o object) object {
	for name, value := range o {
		if f, ok := value.(float64); ok {
			o[name] = int64(f)
		}
	}
	return o
}
