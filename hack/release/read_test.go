package main

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// readYAML reads a file strictly: a field that the test does not know is a field
// that nobody looks at.
func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
