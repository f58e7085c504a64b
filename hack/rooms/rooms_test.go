// Package rooms holds the tree to the order in which docs/architecture.md says that it is read: imports go one way,
// and in the packages of fsm/ so do, as far as they can, the references between files. It also keeps names of machine files
// out of Go.
package rooms

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/phasegate/phasegate/"

// rooms may import themselves and these. What is no room holds data that is embedded, as docs/ and charts/ do, or is
// none of the product.
var rooms = map[string][]string{
	"api":         {},
	"phases":      {},
	"resources":   {"api"},
	"fsm":         {"api"},
	"controllers": {"resources", "phases", "fsm", "api"},
	"cmd":         {"controllers", "resources", "phases", "fsm", "api"},
}

// engine are the packages of fsm/, bottom to top: each may import those before it.
var engine = []string{"fsm/printable", "fsm/machine/diag", "fsm/machine/expr", "fsm/machine/program", "fsm/machine/lint", "fsm", "fsm/verify/prove", "fsm/show/graph", "fsm/show/describe", "fsm/show/diff", "fsm/verify/simulate", "fsm/fsmtest"}

// listed is a package of ours as the go command lists it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// tree are our packages, and an importer of what they need, from what the go command has built.
type tree struct {
	fset *token.FileSet
	from types.Importer
	ours []listed
}

// listing asks the go command once for all tests.
var listing = sync.OnceValues(func() (tree, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports", "./...")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return tree{}, err
	}
	all, exports := tree{fset: token.NewFileSet()}, map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			all.from = importer.ForCompiler(all.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
			return all, nil
		case err != nil:
			return tree{}, err
		}
		if exports[p.ImportPath] = p.Export; strings.HasPrefix(p.ImportPath, module) {
			all.ours = append(all.ours, p)
		}
	}
})

func list(t *testing.T) tree {
	t.Helper()
	all, err := listing()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parsed are files of a package.
func (all tree) parsed(t *testing.T, dir string, names ...string) (files []*ast.File) {
	t.Helper()
	for _, name := range names {
		f, err := parser.ParseFile(all.fset, filepath.Join(dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func room(path string) string {
	top, _, _ := strings.Cut(path, "/")
	return top
}

// wrong says why a package must not import another one of ours; empty: it may.
func wrong(from, to string) string {
	allowed, isRoom := rooms[room(from)]
	if !isRoom {
		return ""
	}
	_, toRoom := rooms[room(to)]
	if room(to) == "test" || room(to) == "hack" {
		return "the product does not know its tests and tools"
	}
	if toRoom && room(from) != room(to) && !slices.Contains(allowed, room(to)) {
		return room(from) + " imports " + strings.Join(append(allowed, "itself"), ", ")
	}
	if room(from) != "fsm" || room(to) != "fsm" {
		return ""
	}
	above, below := slices.Index(engine, from), slices.Index(engine, to)
	if above < 0 || below < 0 {
		return "a package of fsm/ needs a place in the order: add it to engine in hack/rooms"
	}
	if below > above {
		return "in fsm/ imports lead down: " + strings.Join(engine, ", ")
	}
	return ""
}

func TestImportsGoOneWay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t).ours {
		from := strings.TrimPrefix(p.ImportPath, module)
		seen[from] = true
		for _, i := range p.Imports {
			if to, ours := strings.CutPrefix(i, module); ours {
				if why := wrong(from, to); why != "" {
					t.Errorf("%s imports %s: %s", from, to, why)
				}
			}
		}
	}
	for _, name := range append([]string{"api/phasegate/v1alpha1", "controllers/runner"}, engine...) {
		if !seen[name] {
			t.Errorf("%s is not there any more", name)
		}
	}
}

func TestWrongImportsAreFound(t *testing.T) {
	cases := map[string]struct {
		why, from, to string
		wrong         bool
	}{
		"down":             {"the one way", "controllers/runner", "fsm", false},
		"up":               {"a room knows nothing of those above it", "fsm", "controllers/runner", true},
		"beside":           {"resources and fsm do not know each other", "resources", "fsm", true},
		"in fsm":           {"the engine runs a program", "fsm", "fsm/machine/program", false},
		"in fsm up":        {"a program is data, and nothing runs in it", "fsm/machine/program", "fsm", true},
		"in fsm beside":    {"lint and the proof do not know each other", "fsm/machine/lint", "fsm/verify/prove", true},
		"in fsm, new":      {"a new package gets a place", "fsm/new", "fsm", true},
		"same room":        {"controllers have no order yet", "controllers/runner", "controllers/machinestore", false},
		"data":             {"a page is embedded where it is", "cmd/kubectl-phasegate", "docs/lint", false},
		"its tests":        {"what is shipped has none", "cmd/manager", "test/cluster", true},
		"tests of a house": {"test/ may know everything", "test/e2e", "cmd/manager", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := wrong(c.from, c.to); (got != "") != c.wrong {
				t.Errorf("%s: %q", c.why, got)
			}
		})
	}
}
