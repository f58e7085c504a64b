package scaffold

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// gateways say a plural that nobody would guess.
func gateways() []apiextensionsv1.CustomResourceDefinition {
	crd := apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Group = "gateway.networking.k8s.io"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: "Gateway", Plural: "gateways"}
	return []apiextensionsv1.CustomResourceDefinition{crd}
}

func TestScaffold(t *testing.T) {
	examples := filepath.Join("..", "..", "..", "..", "docs", "extend", "examples")
	for name, c := range map[string]struct {
		why, file string
		options   Options
	}{
		"upkeep":           {why: "names, kinds and types, literal and computed", file: "testdata/upkeep.yaml", options: Options{CRDs: gateways()}},
		"database-restore": {why: "an example of the documentation", file: filepath.Join(examples, "database-restore", "database-restore.yaml")},
		"site-check":       {why: "no objects of others, and in no namespace", file: filepath.Join(examples, "site-check", "site-check.yaml"), options: Options{ClusterScoped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			m := fsmtest.Machine(t, c.file, generic.Bindings())
			c.options.Account = types.NamespacedName{Namespace: "phasegate-system", Name: "phasegate-custom"}
			crd, err := CRD(m, c.options)
			if err != nil {
				t.Fatal(err)
			}
			role, err := Role(m, c.options)
			if err != nil {
				t.Fatal(err)
			}
			fsmtest.Golden(t, "testdata/"+name+".golden", crd+"---\n"+role)
		})
	}
}

// Lint takes each machine with the CRD that is printed for it: what no use tells the type of, too.
func TestCRDFitsItsMachine(t *testing.T) {
	const machine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: any}
spec:
  for: {apiVersion: example.com/v1, kind: Any}
  initial: Waiting
  variables: [{name: v, expr: '%s'}]
  phases:
  - {name: Waiting, kind: waiting, poll: 5s, next: [{to: Done, when: 'dyn(variables.v) == 1'}], onDelete: {immediate: true}}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`
	docs := filepath.Join("..", "..", "..", "..", "docs")
	files := map[string]string{}
	for _, file := range []string{"testdata/upkeep.yaml", filepath.Join(docs, "extend/examples/database-restore/database-restore.yaml"),
		filepath.Join(docs, "extend/examples/site-check/site-check.yaml"), filepath.Join(docs, "tutorials/your-own-controller/maintenance.yaml")} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[file] = string(data)
	}
	for _, expr := range []string{
		`self.spec.a`, `self.spec.a == self.spec.b`, `self.spec.a.b.c > self.spec.a.d`, `self.spec.a.all(i, i.x == i.y)`, `self.spec.a[0].b + 1`,
		`self.spec.a["b c"] == 1`, `self.spec.?a[?"b-c"].orValue(1)`, `self.spec["a-b"] == "x" && self.spec["a-b"] != self.spec.c`, `has(self.spec.a) ? self.spec.a : 2`,
		`timestamp(self.spec.a) < now || self.spec.a == "never"`, `duration(self.spec.a) < phase.age`, `self.spec.a * 1.5 > 2.0`, `self.spec.a in [self.spec.b, "x"]`,
		`size(self.spec.a) > 0 && self.spec.a.exists(k, k == self.spec.b)`, `self.spec.namespace == "a"`, `self.spec.a == 1.5 && self.spec.b == 2`, `!self.spec.a && self.spec.b.startsWith("x")`,
	} {
		files[expr] = fmt.Sprintf(machine, expr)
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			crd, err := CRD(fsmtest.Machine(t, path, generic.Bindings()), Options{})
			if err != nil {
				t.Fatal(err)
			}
			crds, err := lint.LoadCRDs(lint.File{Name: "crd.yaml", Data: []byte(crd)})
			if err != nil {
				t.Fatal(err)
			}
			known := lint.Known{CRDs: crds}
			report, err := lint.Check([]lint.File{{Name: "m.yaml", Data: []byte(text)}}, lint.Options{Bindings: known.Bindings, Kinds: known.Kinds})
			// Items of any type that are compared as a whole may be large: there the author has to say more.
			dear := !strings.Contains(name, "exists") && slices.ContainsFunc(report.Findings, func(d diag.Diagnostic) bool { return d.Code == "PG016" })
			if err != nil || report.Errors > 0 || dear {
				t.Errorf("%v %v\n%s", err, report.Findings, crd)
			}
		})
	}
}
