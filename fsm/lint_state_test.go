package fsm

import (
	"strings"
	"testing"
)

// What reads a value that has none stops there, so a file that could come to it is refused.
func TestReadBeforeAssigned(t *testing.T) {
	for name, c := range map[string]struct{ why, state, one, two, want string }{
		"initial":           {"it has a value from the beginning", "{type: int, initial: 0}", "next: [{to: Two}]", "next: [{to: Done, when: 'state.n > 1'}]", ""},
		"assigned":          {"on the only way", "{type: int}", "next: [{to: Two, set: {n: '1'}}]", "next: [{to: Done, when: 'state.n > 1'}]", ""},
		"on one of two":     {"the other way leads there, too", "{type: int}", "next: [{to: Two, when: 'guards.a', set: {n: '1'}}, {to: Two}]", "next: [{to: Done, when: 'state.n > 1'}]", "state.n may not be assigned here"},
		"by a timeout":      {"which assigns nothing", "{type: int}", "timeout: {after: 1h, to: Two}, next: [{to: Two, when: 'guards.a', set: {n: '1'}}]", "next: [{to: Done, when: 'state.n > 1'}]", "state.n may not"},
		"by an error":       {"which leads on even where nothing can be assigned", "{type: int}", "steps: [{action: Work}], onError: [{is: Terminal, to: Two, set: {n: '1'}}], next: [{to: Done}]", "next: [{to: Done, when: 'state.n > 1'}]", "state.n may not be assigned here"},
		"by either":         {"the same, and it has a value anyway", "{type: int, initial: 0}", "steps: [{action: Work}], onError: [{is: Terminal, to: Two, set: {n: '1'}}], timeout: {after: 1h, to: Two, set: {n: 'state.n + 1'}}, next: [{to: Done}]", "next: [{to: Done, when: 'state.n > 1'}]", ""},
		"in set of onError": {"it would never be assigned", "{type: int}", "steps: [{action: Work}], onError: [{is: Terminal, to: Done, set: {n: 'state.n + 1'}}], next: [{to: Two}]", "next: [{to: Done}]", "state.n may not"},
		"asked for":         {"the author knows", "{type: int}", "next: [{to: Two}]", "next: [{to: Done, when: 'has(state.n) && state.n > 1'}]", ""},
		"in a parameter":    {"the step fails", "{type: int}", "next: [{to: Two}]", "steps: [{action: Work, with: {any: '${state.n}'}}], next: [{to: Done}]", "state.n may not"},
		"by a variable":     {"the same through another", "{type: int}", "next: [{to: Two}]", "next: [{to: Done, when: 'variables.more'}]", "state.n may not"},
		"of itself":         {"there is nothing to add to", "{type: int}", "next: [{to: Two, set: {n: 'state.n + 1'}}]", "next: [{to: Done}]", "state.n may not"},
		"only in a text":    {"it shows as ?", "{type: int}", "message: 'n is ${state.n}', next: [{to: Two}]", "next: [{to: Done}]", ""},
		"after a loop":      {"the second round has it, the first has not", "{type: int}", "next: [{to: Two}]", "next: [{to: One, when: 'guards.a', set: {n: '1'}}, {to: Done, when: 'state.n > 1'}]", "state.n may not"},
		"where it is kept":  {"the loop assigns it before", "{type: int}", "next: [{to: Two, set: {n: '1'}}]", "next: [{to: One, when: 'guards.a && state.n > 0'}, {to: Done}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := spec("  finalizer: test.phasegate.dev/f\n  state: {n: " + c.state + "}\n  variables: [{name: more, expr: 'state.n > 1'}]\n  phases:\n" +
				"  - {name: One, kind: waiting, poll: 5s, " + c.one + ", onDelete: {to: Out}}\n  - {name: Two, kind: waiting, poll: 5s, " + c.two + ", onDelete: {to: Out}}\n" + rest)
			findingOf(t, c.why, "PG023", file, c.want)
		})
	}
}

// A step that has not run has no outputs: what reads them stops there, so a file that could come to it is refused.
func TestOutputsOfStepsThatDidNotRun(t *testing.T) {
	for name, c := range map[string]struct{ why, steps, when, want string }{
		"ran":                 {"it runs in each visit", "{name: Look, action: Work}", "steps.Look.n > 1", ""},
		"own until":           {"it has run then", "{name: Look, action: Work, if: 'guards.a', until: 'steps.Look.n > 1'}", "guards.a", ""},
		"later":               {"it has not run", "{action: Read, if: 'steps.Look.n > 1'}, {name: Look, action: Work}", "guards.a", "steps.Look is no step with outputs before this place"},
		"misspelt":            {"there is no such step", "{name: Look, action: Work}", "steps.Loook.n > 1", "steps.Loook is no step with outputs before this place"},
		"no such output":      {"the action declares its outputs", "{name: Look, action: Work}", "steps.Look.m > 1", `steps.Look has no field "m"`},
		"of another type":     {"n is a number", "{name: Look, action: Work}", "steps.Look.n == 'a'", "== has a value of type int on its left"},
		"skipped":             {"nobody knows then", "{name: Look, action: Work, if: 'guards.a'}", "steps.Look.n > 1", "step Look may be skipped by its if, and has no outputs then"},
		"asked for":           {"the author knows", "{name: Look, action: Work, if: 'guards.a'}", "has(steps.Look) && steps.Look.n > 1", ""},
		"asked of the output": {"has() looks at the last name only", "{name: Look, action: Work, if: 'guards.a'}", "has(steps.Look.n)", "step Look may be skipped"},
		"optional":            {"the author says what counts then", "{name: Look, action: Work, if: 'guards.a'}", "steps.?Look.?n.orValue(0) > 1", ""},
		"without a name":      {"nothing of it could be checked", "{name: Look, action: Work}", "size(steps) > 1", "steps is read without a name"},
		"by another name":     {"a name may have a dash", "{name: a-look, action: Work}", "steps['a-look'].n > 1", ""},
		"of a loop":           {"its outputs are those of the loop", "{name: All, action: Work, forEach: {in: '[\"a\"]'}}", "steps.All.done == 1 && steps.All.failed.size() == 0", ""},
		"in a loop":           {"an item's outputs are those of no step", "{name: All, action: Work, forEach: {in: '[\"a\"]'}, until: 'steps.All.n > 1'}", "guards.a", "steps.All is no step with outputs"},
	} {
		t.Run(name, func(t *testing.T) {
			file := spec("  finalizer: test.phasegate.dev/f\n  phases:\n  - name: One\n    poll: 5s\n    steps: [" + c.steps + "]\n    next: [{to: Done, when: \"" + c.when + "\"}]\n    onDelete: {to: Out}\n" + rest)
			findingOf(t, c.why, "PG006", file, c.want)
		})
	}
}

// A value that nothing reads decides nothing: either it is left over, or what should read it is missing.
func TestStateThatNothingReads(t *testing.T) {
	const counts = "next: [{to: Two, set: {n: 'state.n + 1'}}]"
	for name, c := range map[string]struct{ why, spec, one, want string }{
		"only counts":      {"its own assignment is not reading", "", counts, "nothing reads state.n"},
		"never named":      {"not even assigned", "", "next: [{to: Two}]", "nothing reads state.n"},
		"by a guard":       {"it decides", "", "next: [{to: Two, when: 'state.n < 3', set: {n: 'state.n + 1'}}]", ""},
		"by a message":     {"a person sees it", "", "message: 'n is ${state.n}', " + counts, ""},
		"by a variable":    {"which may be read", "  variables: [{name: more, expr: 'state.n > 1'}]\n", counts, ""},
		"by another value": {"which is read", "", "next: [{to: Two, when: 'state.m == 0', set: {m: 'state.n', n: 'state.m'}}]", ""},
		"by the status":    {"a person sees it", "  status: {n: 'state.n'}\n", counts, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := ""
			if strings.Contains(c.one, "state.m") {
				m = ", m: {type: int, initial: 0}"
			}
			file := spec("  finalizer: test.phasegate.dev/f\n  state: {n: {type: int, initial: 0}" + m + "}\n" + c.spec + "  phases:\n" +
				"  - {name: One, kind: waiting, poll: 5s, " + c.one + ", onDelete: {to: Out}}\n  - {name: Two, kind: waiting, poll: 5s, next: [{to: Done}], onDelete: {to: Out}}\n" + rest)
			findingOf(t, c.why, "PG108", file, c.want)
		})
	}
}
