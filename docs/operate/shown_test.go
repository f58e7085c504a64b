package operate_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

var (
	camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*$`)
	kebabCase = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)+$|^[a-z]{4,}$`)
)

// What does not run in a cluster shows nothing there.
var offline = regexp.MustCompile(`_test\.go$|/zz_generated|/runnertest/|/fsmtest/|fsm/(sim|story|draw|compare)/|fsm/verify/prove|/lint/`)

// reasonOf says which argument of a call becomes the reason of a condition, of a
// transition or of an Event.
var reasonOf = map[string]int{
	"Terminal":       0, // fsm: an error for good
	"take":           2, // fsm: a transition
	"enter":          2,
	"noteTransition": 2,
	"conditions":     0,
	"Warn":           0, // runner: an Event
	"tell":           3,
	"tellOfTwo":      2,
	"Eventf":         3,
	"newProblem":     0, // mcpserver: a condition, an Event and an error
}

// reasons are all that an object of ours can show: those that the shipped machines
// give, and those in Go code.
func reasons(t *testing.T) []string {
	found := machineReasons(t)
	walkGo(t, []string{"controllers", "fsm", "api", "cmd/manager"}, func(n ast.Node) {
		for _, e := range reasonsIn(n) {
			for _, text := range texts(e) {
				if camelCase.MatchString(text) {
					found[text] = true
				}
			}
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// reasonsIn are the expressions of a node whose value becomes a reason.
func reasonsIn(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if i, ok := reasonOf[called(n)]; ok {
			return n.Args[min(i, len(n.Args)):min(i+1, len(n.Args))]
		}
	case *ast.CompositeLit:
		if named(n.Type) == "stall" {
			return n.Elts[:min(1, len(n.Elts))]
		}
	case *ast.KeyValueExpr:
		if strings.EqualFold(named(n.Key), "reason") {
			return []ast.Expr{n.Value}
		}
	case *ast.AssignStmt:
		if named(n.Lhs[0]) == "Reason" {
			return n.Rhs[:1]
		}
	case *ast.ValueSpec: // constants that are used in the places above
		if strings.HasPrefix(strings.ToLower(n.Names[0].Name), "reason") {
			return n.Values
		}
	}
	return nil
}

// machineReasons are those of the shipped machine files.
func machineReasons(t *testing.T) map[string]bool {
	found := map[string]bool{}
	files, err := filepath.Glob(root + "/phases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		def, diags := fsm.Load(file, []byte(read(t, file)))
		if def == nil {
			t.Fatal(diags.Err())
		}
		for _, p := range def.Spec.Phases {
			for _, reason := range phaseReasons(p) {
				found[reason] = true
			}
		}
	}
	return found
}

// phaseReasons are those of one phase, with what the engine takes where the file
// gives none.
func phaseReasons(p v1alpha1.Phase) (all []string) {
	if p.Kind == "progressing" || p.Kind == "" && p.Terminal == "" {
		all = append(all, p.Name) // of Ready and Reconciling
	}
	for _, x := range p.Require {
		all = append(all, cmp.Or(x.Reason, "RequirementNotMet"))
	}
	for _, x := range p.Next {
		all = append(all, cmp.Or(x.Reason, x.To))
	}
	for _, x := range p.OnError {
		if x.Reason != "" || x.Is != string(fsm.ClassTerminal) { // which brings its own
			all = append(all, cmp.Or(x.Reason, x.Is+"Error"))
		}
	}
	if p.Timeout != nil {
		all = append(all, cmp.Or(p.Timeout.Reason, p.Timeout.Stalled, "Timeout"))
	}
	return all
}

// checkIDs are the IDs of all checks, wherever package check is used.
func checkIDs(t *testing.T) []string {
	found := map[string]bool{}
	walkGo(t, []string{"controllers", "cmd"}, func(n ast.Node) {
		var values []ast.Expr
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if named(n.Key) == "ID" {
				values = []ast.Expr{n.Value}
			}
		case *ast.ValueSpec: // a constant that is used in such a place
			if strings.HasSuffix(n.Names[0].Name, "Check") {
				values = n.Values
			}
		}
		for _, e := range values {
			for _, text := range texts(e) {
				if kebabCase.MatchString(text) {
					found[text] = true
				}
			}
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// walkGo visits every node of the program's sources below directories of the repository.
func walkGo(t *testing.T, dirs []string, visit func(ast.Node)) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || offline.MatchString(filepath.ToSlash(path)) {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				visit(n)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// called is the name of a function or method, without what it belongs to.
func called(call *ast.CallExpr) string { return named(call.Fun) }

func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// texts are the string literals in an expression; what is put together of several
// is left out.
func texts(e ast.Expr) (found []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
