package scaffold

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
)

var update = flag.Bool("update", false, "write testdata anew")

func bound(t *testing.T, file string) *fsm.Machine {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	def, diags := fsm.Load(file, data)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	bindings, err := catalog.Bindings(def)
	if err != nil {
		t.Fatal(err)
	}
	m, diags := fsm.Bind(def, bindings)
	if m == nil {
		t.Fatal(diags)
	}
	return m
}

// gateways say a plural that nobody would guess.
func gateways() []apiextensionsv1.CustomResourceDefinition {
	crd := apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Group = "gateway.networking.k8s.io"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Gateway", Plural: "gateways"}
	return []apiextensionsv1.CustomResourceDefinition{crd}
}

func TestScaffold(t *testing.T) {
	examples := filepath.Join("..", "..", "..", "..", "docs", "extend", "examples")
	cases := map[string]struct {
		why, file string
		options   Options
	}{
		"upkeep":           {why: "names, kinds and types, literal and computed", file: "testdata/upkeep.yaml", options: Options{CRDs: gateways()}},
		"database-restore": {why: "an example of the documentation", file: filepath.Join(examples, "database-restore", "database-restore.yaml")},
		"site-check":       {why: "no objects of others, and in no namespace", file: filepath.Join(examples, "site-check", "site-check.yaml"), options: Options{ClusterScoped: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := bound(t, c.file)
			c.options.Account = types.NamespacedName{Namespace: "phasegate-system", Name: "phasegate-custom"}
			crd, err := CRD(m, c.options)
			if err != nil {
				t.Fatal(err)
			}
			role, err := Role(m, c.options)
			if err != nil {
				t.Fatal(err)
			}
			got := crd + "---\n" + role
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; go test ./cmd/kubectl-phasegate/internal/scaffold -update writes it anew):\n%s", c.why, diff)
			}
		})
	}
}
