package fsm

import "testing"

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
