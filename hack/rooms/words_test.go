package rooms

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// retired are words that this project had for what its field calls otherwise, as a name has them, and what is said instead. The
// packages, files and names that had them were renamed once; this test is what keeps them so.
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
	all := list(t)
	for _, p := range all.ours {
		if _, isRoom := rooms[room(strings.TrimPrefix(p.ImportPath, module))]; !isRoom {
			continue
		}
		for _, file := range all.parsed(t, p.Dir, p.GoFiles...) {
			for _, id := range exported(file) {
				word, instead := retiredIn(id.Name)
				if seen[id.Name] = instead != ""; instead != "" && kept[id.Name] == "" {
					t.Errorf("%s: %s: the word %s is retired, say %s", all.fset.Position(id.Pos()), id.Name, word, instead)
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
