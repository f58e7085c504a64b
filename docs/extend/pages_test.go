package extend_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
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
	for dir, name := range map[string]string{"database-restore": "database-restore.yaml", "site-check": "site-check.yaml"} {
		t.Run(dir, func(t *testing.T) {
			def, diags := fsm.Load(name, []byte(read(t, filepath.Join("examples", dir, name))))
			if def == nil {
				t.Fatal(diags.Err())
			}
			bindings, err := catalog.Bindings(def)
			if err != nil {
				t.Fatal(err)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join("examples", dir, "crd.yaml"))), crd); err != nil {
				t.Fatal(err)
			}
			schema := catalog.SchemaOf(crd, def.Spec.For)
			if bindings.Self, err = fsm.NewSchema(schema); err != nil {
				t.Fatalf("the CRD is not that of the machine: %v", err)
			}
			m, diags := fsm.Bind(def, bindings)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			if _, diags := fsm.Prove(m, fsm.ProveOptions{}); len(diags) > 0 {
				t.Error(diags)
			}
		})
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(m[1]); err != nil && !strings.HasPrefix(m[1], "https://") {
				t.Errorf("%s: %v", page, err)
			}
		}
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
