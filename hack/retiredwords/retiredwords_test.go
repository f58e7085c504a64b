// Package retiredwords keeps words out of exported names that this project had for what its field calls otherwise. The
// packages, files and names that had them were renamed once; this test is what keeps them so.
package retiredwords_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// retired are the words, as a name has them, and what is said instead.
var retired = map[string]string{
	"Adopted": "AlreadyEqual", "Crowded": "Large", "Deed": "LockWrite, Remedy", "Explained": "GuardResult", "Fate": "DeleteResult, Impact", "Fates": "Impacts", "Foreign": "Unmanaged",
	"Frozen": "UseSnapshot", "Insist": "Retry", "Leaving": "Terminating", "Ledger": "EqualityCache", "Looker": "Inspector", "Moving": "ChangedSince",
	"Oracle": "GuardStub", "Polite": "LowPriority", "Politely": "WithLowPriority", "Rival": "ConflictNext", "Settle": "RunUntilIdle", "Sift": "Filter", "Situation": "InvariantState", "Stray": "Orphan",
	"Strays": "Orphans", "Suspect": "Mismatch", "Teller": "EventSource, Describer", "Thaw": "Invalidate", "Unfollow": "Unwatch", "Vault": "BackupStore",
	"Verdict": "Decision", "Withheld": "Deferred", "Withhold": "Defer", "Told": "what it returns",
}

// kept are names that have such a word, each with its reason.
var kept = map[string]string{"OwnersWithheld": "status.progress has it, which people and machine files read"}

var words = regexp.MustCompile(`[A-Z][a-z0-9]*`)

func TestRetiredWordsStayAway(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"api", "cmd", "controllers", "fsm", "resources", "phases"} {
		for _, path := range sources(t, filepath.Join("..", "..", dir)) {
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range exported(file) {
				word, instead := retiredIn(id.Name)
				if seen[id.Name] = instead != ""; instead != "" && kept[id.Name] == "" {
					t.Errorf("%s: %s: the word %s is retired, say %s", set.Position(id.Pos()), id.Name, word, instead)
				}
			}
		}
	}
	for name := range kept {
		if !seen[name] {
			t.Errorf("%s is kept, and is not there any more", name)
		}
	}
}

// sources are the Go files under a directory that are no tests.
func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// retiredIn is the first retired word of a name, and what is said instead.
func retiredIn(name string) (word, instead string) {
	for _, word := range words.FindAllString(name, -1) {
		if instead := retired[word]; instead != "" {
			return word, instead
		}
	}
	return "", ""
}

// exported are the exported names that a file declares.
func exported(file *ast.File) (names []*ast.Ident) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
			return false // what is inside is nobody else's
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		}
		return true
	})
	return names
}
