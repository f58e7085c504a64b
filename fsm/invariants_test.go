package fsm

import (
	"strings"
	"testing"
)

// invariantFile is a sound machine with one invariant.
func invariantFile(expr string) string {
	return strings.Replace(one(toDone), "  phases:", "  invariants:\n  - {name: mine, expr: '"+expr+"'}\n  phases:", 1)
}

func TestInvariantsAreChecked(t *testing.T) {
	for name, c := range map[string]badFile{
		"syntax": {
			why: "the place is exact", code: "PG006",
			bad: invariantFile(`deleting || ⟦)`), good: invariantFile(`deleting || !gone || gone`),
			contains: []string{"Syntax error"},
		},
		"self": {
			why: "there is no object in a proof", code: "PG006",
			bad: invariantFile(`held.size() == 0 || ⟦self.spec.x`), good: invariantFile(`held.size() == 0 || "lock" in held`),
			contains: []string{"undeclared reference to 'self'"},
		},
		"field of phase": {
			why: "what would never be there proves nothing", code: "PG006",
			bad: invariantFile(`⟦phase.nam != "One"`), good: invariantFile(`phase.name != "Out" || deleting`),
			contains: []string{"undeclared reference to 'phase'"},
		},
		"not a boolean": {
			why: "a number is neither true nor false", code: "PG007",
			bad: strings.Replace(invariantFile(`held.size()`), "expr: ", "expr: ⟦", 1), good: invariantFile(`held.size() <= 1`),
			contains: []string{"is int, not a boolean"},
		},
		"effect": {
			why: "no ledger ever has this name, so it would hold for no reason", code: "PG005",
			bad: invariantFile(`!(⟦"lok" in held) || ⟦"lok" in inPlace`), good: invariantFile(`!("lock" in held) || !gone`),
			contains: []string{`effect "lok" is not declared`, `effect "lok" is not declared`},
		},
		"phase": {
			why: "an object is never in such a phase", code: "PG001",
			bad: invariantFile(`phase.name == ⟦"Non" || phase.name in ["", "One", ⟦"Don"] || true`), good: invariantFile(`phase.name == "One" || phase.name in ["", "One", "Done"] || true`),
			contains: []string{`phase "Non" does not exist`, `phase "Don" does not exist`},
		},
		"name of a built-in one": {
			why: "a finding could not say which of the two it means", code: "PG000",
			bad:      strings.Replace(invariantFile(`true`), "name: mine", "name: ⟦noLeak", 1),
			good:     invariantFile(`true`),
			contains: []string{"noLeak is proved of every machine"},
		},
		"name twice": {
			why: "a finding could not say which of the two it means", code: "PG000",
			bad:      strings.Replace(invariantFile(`true`), "  phases:", "  - {name: ⟦mine, expr: 'true'}\n  phases:", 1),
			good:     strings.Replace(invariantFile(`true`), "  phases:", "  - {name: other, expr: 'true'}\n  phases:", 1),
			contains: []string{`invariant "mine" is declared twice`},
		},
	} {
		t.Run(name, c.check)
	}
}
