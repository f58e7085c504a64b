package fsm

import (
	"strings"
	"testing"
)

// failed completes a machine that fails in a phase of its own.
const failed = "  - {name: Failed, terminal: failure, onDelete: {to: Out}}\n"

func TestRecoveryAndUpgradeAreChecked(t *testing.T) {
	recovery := func(entries string) string { return one(toDone) + "  recover: [" + entries + "]\n" }
	variable := func(expr, file string) string {
		return strings.Replace(file, "  phases:\n", "  variables: [{name: large, expr: '"+expr+"'}, {name: big, expr: 'variables.large'}]\n  phases:\n", 1)
	}
	failing := func(entries string) string {
		return one("    timeout: {after: 1h, to: Failed}\n"+toDone) + failed + "  recover: [" + entries + "]\n"
	}
	upgrade := func(maps string) string {
		return one("    poll: 5s\n    steps: [{action: Take}, {action: Work}]\n"+toDone) + "  upgrade: {" + maps + "}\n"
	}
	for name, c := range map[string]badFile{
		"recover to nowhere": {why: "a typo", code: "PG001",
			bad: recovery("{to: ⟦Dnoe}"), good: recovery("{to: Done}"), contains: []string{`phase "Dnoe" does not exist`}},
		"recover after an open entry": {why: "the first that applies is taken", code: "PG004",
			bad: recovery("⟦{to: Done}, {when: 'guards.a', to: One, reason: Begun}"), good: recovery("{when: 'guards.a', to: One, reason: Begun}, {to: Done}"), contains: []string{"the entries behind this one never apply"}},
		"recover that holds nothing known": {why: "a typo", code: "PG000",
			bad: recovery("{to: One, holds: [⟦lcok]}"), good: recovery("{to: One, holds: [lock]}"), contains: []string{`"lcok" is no effect of this machine`}},
		"recover that holds twice": {why: "it would be released twice", code: "PG000",
			bad: recovery("{to: One, holds: [lock, ⟦lock]}"), good: recovery("{to: One, holds: [lock]}"), contains: []string{`effect "lock" is listed twice`}},
		"recover for a reason": {why: "the API server refuses the condition", code: "PG000",
			bad: recovery("{to: Done, reason: ⟦'was done'}"), good: recovery("{to: Done, reason: WasDone}"), contains: []string{`"was done" is not a reason`}},
		"recover when": {why: "a guard is true or false", code: "PG007",
			bad: recovery("{to: Done, when: ⟦'1 + 1'}"), good: recovery("{to: Done, when: 'guards.a'}"), contains: []string{"not a boolean"}},
		"recover by a result": {why: "no step has run", code: "PG006",
			bad: recovery("{to: Done, when: 'result.⟦n > 3'}"), good: recovery("{to: Done, when: 'self.spec.n > 3'}"), contains: []string{"result.n is an output of no step"}},
		"recover by a variable of a result": {why: "no step has run, whatever the variable is called", code: "PG006",
			bad:  variable("result.n > 3", recovery("{to: Done, when: ⟦'variables.big'}")),
			good: variable("self.spec.n > 3", recovery("{to: Done, when: 'variables.big'}")), contains: []string{"variables.big reads result, and no step has run"}},
		"recover to where it leaks": {why: "a failure releases nothing", code: "PG011",
			bad:  failing("{to: ⟦Failed, holds: [lock]}"),
			good: failing("{to: Failed}"), contains: []string{"Failed is entered while lock may be held, and releases nothing"}},

		"effect that is not old":  {why: "an entry that is never read misleads", code: "PG000", bad: upgrade("effectMap: {lock: ⟦lock}"), good: upgrade("effectMap: {bolt: lock}"), contains: []string{"effect lock is one of this revision"}},
		"effect that is not new":  {why: "a typo", code: "PG000", bad: upgrade("effectMap: {bolt: ⟦lcok}"), good: upgrade("effectMap: {bolt: lock}"), contains: []string{`effect "lcok" does not exist`}},
		"step that is not old":    {why: "it needs no entry", code: "PG000", bad: upgrade("stepMap: {Take: ⟦Work}"), good: upgrade("stepMap: {Grab: Take}"), contains: []string{"step Take is one of this revision"}},
		"step that is not new":    {why: "a typo", code: "PG000", bad: upgrade("stepMap: {Grab: ⟦Grip}"), good: upgrade("stepMap: {Grab: Take}"), contains: []string{`step "Grip" does not exist`}},
		"request that is not old": {why: "it needs no entry", code: "PG000", bad: upgrade("requestMap: {go: ⟦go}"), good: upgrade("requestMap: {run: go}"), contains: []string{"request go is one of this revision"}},
		"request that is not new": {why: "a typo", code: "PG000", bad: upgrade("requestMap: {run: ⟦og}"), good: upgrade("requestMap: {run: go}"), contains: []string{`request "og" does not exist`}},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); c.check(t) })
	}
}
