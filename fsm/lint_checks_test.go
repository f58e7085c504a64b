package fsm

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestWhatCountsInARow(t *testing.T) {
	step := func(text string) string {
		return one("    poll: 5s\n    timeout: {after: 1h, to: Done}\n    steps: [{" + text + "}]\n" + toDone)
	}
	good := step("action: Look, until: 'result.n > 1', consecutive: 5")
	for name, c := range map[string]badFile{
		"once":    {why: "that is no row", code: "PG000", bad: step("action: Look, until: 'result.n > 1', consecutive: ⟦1"), good: good, contains: []string{"1 is none of 2 to 100"}},
		"too far": {why: "a person would take it for a mistake", code: "PG000", bad: step("action: Look, until: 'result.n > 1', consecutive: ⟦101"), good: step("action: Look, until: 'result.n > 1', consecutive: 100"), contains: []string{"101 is none of 2 to 100"}},
		"what":    {why: "nothing is asked", code: "PG000", bad: step("action: Look, consecutive: ⟦5"), good: good, contains: []string{"consecutive without until counts nothing"}},
		"items": {why: "each item would need a count of its own", code: "PG000", bad: step("action: Look, forEach: {in: '[\"a\"]'}, until: 'result.n > 1', consecutive: ⟦5"),
			good: good, contains: []string{"in a forEach nothing is counted in a row"}},
		"steady": {why: "it would be Ready for a moment in each round", code: "PG000",
			bad:  phases("  - {name: One, kind: steady, poll: 5s, steps: [{action: Look, until: 'result.n > 1', consecutive: ⟦5}], next: [{to: Done, when: 'guards.a'}], onDelete: {to: Out}}\n" + rest),
			good: good, contains: []string{"the object would not be Ready meanwhile"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestWhatFailWhenReads(t *testing.T) {
	deletion := func(failWhen string) string {
		return phases("  - {name: One, next: [{to: Out}], onDelete: {to: Out}}\n  - {name: Out, deletion: true, steps: [{action: Look, failWhen: '" + failWhen + "'}, {undo: held}], timeout: {after: 1h, to: End}, next: [{to: End}]}\n  - {name: End, deletion: true, end: true}\n")
	}
	read := testBindings
	read.Actions = map[string]program.ActionSpec{"Take": {}, "Give": {}, "Look": {Outputs: map[string]expr.Type{"n": expr.TypeInt, "object": expr.TypeObject}}}
	state := func(failWhen string) string {
		return strings.Replace(one("    poll: 5s\n    timeout: {after: 1h, to: Done}\n    steps: [{action: Look, failWhen: '"+failWhen+"'}]\n"+toDone), "  phases:", "  state: {n: {type: int}}\n  phases:", 1)
	}
	good := one("    steps: [{action: Look, failWhen: 'result.n > 1'}]\n    timeout: {after: 1h, to: Done}\n" + toDone)
	for name, c := range map[string]badFile{
		"no action":                    {why: "nothing answers", code: "PG000", bad: one("    steps: [{wait: 5s, failWhen: ⟦'true'}]\n    timeout: {after: 1h, to: Done}\n" + toDone), good: good, contains: []string{"failWhen is about what an action has answered"}},
		"no boolean":                   {why: "0 is not false", code: "PG007", bad: one("    steps: [{action: Look, failWhen: ⟦'result.n'}]\n    timeout: {after: 1h, to: Done}\n" + toDone), good: good, contains: []string{`guard "result.n" is int`}},
		"another object in a deletion": {why: "the deletion would fail for ever by it", code: "PG014", bindings: read, bad: strings.Replace(deletion("result.object.spec.x == 1"), "'result.object", "⟦'result.object", 1), good: deletion("result.n > 1"), contains: []string{"result.object is the content of another object"}},
		"state that has no value":      {why: "the step would be tried for ever", code: "PG023", bad: strings.Replace(state("state.n > 1"), "'state.n", "⟦'state.n", 1), good: state("has(state.n) && state.n > 1"), contains: []string{"state.n may not be assigned here"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestTheTimeThatAStepHas(t *testing.T) {
	phase := func(step, timeout string) string {
		return one("    poll: 5s\n    timeout: {after: 1h, " + timeout + "}\n    steps: [{" + step + "}]\n" + toDone)
	}
	good := phase("action: Look, timeout: 10m", "to: Done")
	for name, c := range map[string]badFile{
		"of a wait":   {why: "it ends by itself", code: "PG000", bad: phase("wait: 5s, timeout: ⟦10m", "to: Done"), good: good, contains: []string{"a wait ends by itself"}},
		"no duration": {why: "a number has no unit", code: "PG000", bad: phase("action: Look, timeout: ⟦'10'", "to: Done"), good: good, contains: []string{`"10" is not a positive duration`}},
		"too long":    {why: "it would never fail by this", code: "PG000", bad: phase("action: Look, timeout: ⟦1h", "to: Done"), good: phase("action: Look, timeout: 2h", "stalled: Slow"), contains: []string{"the step may take 1h, and its phase ends after 1h"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}
