package toolhive

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/support/crds"
)

// affinity is Kubernetes' own type, which is handed on whole: two kinds of it stand for all.
const affinity = "spec.resourceOverrides.proxyDeployment.affinity."

// TestServersHaveEachField: what no server has, TestSameFacts does not compare.
func TestServersHaveEachField(t *testing.T) {
	needs(t, envCRDs)
	had := map[string]bool{}
	for _, srv := range servers(t) {
		addPaths(had, "spec", srv.Object["spec"])
	}
	fields, err := crds.Fields(filepath.Join(os.Getenv(envCRDs), "toolhive.stacklok.dev_mcpservers.yaml"), "spec")
	if err != nil {
		t.Fatal(err)
	}
	if len(fields) < 100 {
		t.Fatalf("only %d fields: is the CRD read?", len(fields))
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !had[field] && !strings.HasPrefix(field, affinity) {
			t.Errorf("%s: no server of testdata/servers.yaml has it", field)
		}
	}
}

// addPaths adds the path of each field of an object, those of items without their number.
func addPaths(found map[string]bool, at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			found[at+"."+name] = true
			addPaths(found, at+"."+name, inner)
		}
	case []any:
		for _, item := range v {
			addPaths(found, at, item)
		}
	}
}
