package extend_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/verify/prove"
	"github.com/phasegate/phasegate/resources"
)

// quoted is a block of a page that is a file, whose name stands above it.
var quoted = regexp.MustCompile("(?s)\\[`(examples/[^`]+)`\\]\\(([^)]+)\\):\n\n```[a-z]+\n(.*?)```\n")

// What people copy out of a page must be what the end-to-end tests run.
func TestPagesQuoteTheirFiles(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, page := range pages {
		for _, m := range quoted.FindAllStringSubmatch(read(t, page), -1) {
			file, link, text := m[1], m[2], m[3]
			shown[file] = true
			if link != file {
				t.Errorf("%s: %s links to %s", page, file, link)
			}
			if diff := cmp.Diff(read(t, file), text); diff != "" {
				t.Errorf("%s quotes %s (-file +page):\n%s", page, file, diff)
			}
		}
	}
	var files []string
	err = filepath.WalkDir("examples", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("files that no page shows, or the other way round (-files +shown):\n%s", diff)
	}
}

// The machines of the pages are clean and proved, with the types of their CRDs.
func TestMachinesAreSound(t *testing.T) {
	cases := map[string]struct {
		why, file, crd string
		diffs          []string
	}{
		"database restore":     {why: "a kind of one's own", file: "examples/database-restore/database-restore.yaml", crd: "examples/database-restore/crd.yaml"},
		"site check":           {why: "a kind of one's own", file: "examples/site-check/site-check.yaml", crd: "examples/site-check/crd.yaml"},
		"canary release":       {why: "a kind of one's own", file: "examples/canary-release/canary-release.yaml", crd: "examples/canary-release/crd.yaml"},
		"fleet upgrade":        {why: "a kind of one's own", file: "examples/fleet-upgrade/fleet-upgrade.yaml", crd: "examples/fleet-upgrade/crd.yaml"},
		"storage migration":    {why: "a kind of one's own", file: "examples/storage-migration/storage-migration.yaml", crd: "examples/storage-migration/crd.yaml"},
		"certificate rotation": {why: "a kind of one's own", file: "examples/certificate-rotation/certificate-rotation.yaml", crd: "examples/certificate-rotation/crd.yaml"},
		"canary analysis":      {why: "a kind of one's own", file: "examples/canary-analysis/canary-analysis.yaml", crd: "examples/canary-analysis/crd.yaml"},
		"release plan":         {why: "a kind of one's own", file: "examples/release-plan/release-plan.yaml"},
		"pod replacement":      {why: "a kind of one's own", file: "examples/pod-replacement/pod-replacement.yaml"},
		"approval gate":        {why: "the edit must fit the shipped file", file: shipped, diffs: []string{"approval-gate/gate.diff"}},
		"health check":         {why: "the edit must fit the shipped file", file: shipped, diffs: []string{"health-check/smoke-test.diff"}},
		"both edits":           {why: "they are of different places", file: shipped, diffs: []string{"approval-gate/gate.diff", "health-check/smoke-test.diff"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			def, diags := fsm.Load(c.file, patched(t, c.file, c.diffs...))
			if def == nil {
				t.Fatal(diags.Err())
			}
			bindings, err := catalog.Bindings(def)
			if err != nil {
				t.Fatal(err)
			}
			if c.crd != "" {
				bindings.Described = described(t, c.crd, def)
			}
			m, diags := fsm.Bind(def, bindings)
			if len(diags) > 0 {
				t.Fatalf("%s: %v", c.why, diags)
			}
			if _, diags := prove.Prove(m, prove.Options{}); len(diags) > 0 {
				t.Errorf("%s: %v", c.why, diags)
			}
		})
	}
}

// With crashes everywhere: on every way out a restore has ended before the application starts; no step of a canary counts
// twice, and what it was before is put back; a fleet has what it had but for the waves that went well; no page is left out;
// a key is in use until the next one is there; no data is not good; a plan leaves no child behind.
func TestScenarios(t *testing.T) {
	for _, name := range []string{"database-restore", "canary-release", "fleet-upgrade", "storage-migration", "certificate-rotation", "canary-analysis", "release-plan"} {
		t.Run(name, func(t *testing.T) {
			file := "examples/" + name + "/" + name + ".yaml"
			def, diags := fsm.Load(file, []byte(read(t, file)))
			if def == nil {
				t.Fatal(diags.Err())
			}
			bindings, err := catalog.Bindings(def)
			if err != nil {
				t.Fatal(err)
			}
			fsmtest.Scenarios(t, fsmtest.Machine(t, file, bindings), "testdata/"+name+"/*.yaml")
		})
	}
}

const shipped = "../../phases/datastore-migration.yaml"

// patched is a file with edits, as `patch` makes it; by git, which tests may take for granted. Lines around an
// edit that have changed since are an error here, before anybody is asked to live with a guess of patch.
func patched(t *testing.T, file string, diffs ...string) []byte {
	t.Helper()
	text := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(text, []byte(read(t, file)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, diff := range diffs {
		path, err := filepath.Abs(filepath.Join("examples", diff))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "-p0", path)
		cmd.Dir = filepath.Dir(text)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s does not fit %s any more: %v\n%s", diff, file, err, said)
		}
	}
	return []byte(read(t, text))
}

// described is what a CRD says of `self`.
func described(t *testing.T, file string, def *fsm.Definition) *expr.Schema {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(read(t, file)), crd); err != nil {
		t.Fatal(err)
	}
	schema, err := generic.Describe(catalog.SchemaOf(crd, def.Spec.For))
	if err != nil {
		t.Fatalf("the CRD is not that of the machine: %v", err)
	}
	return schema
}

func TestRegistryEditFits(t *testing.T) {
	registry, err := resources.LoadRegistry("kinds.yaml", patched(t, "../../resources/kinds.yaml", "a-22nd-kind/kinds.diff"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(registry.Kinds()), 1+len(resources.Default().Kinds()); got != want {
		t.Errorf("%d kinds, want %d: one more", got, want)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
