package fsm

import "testing"

// What reads a value that has none stops there, so a file that could come to it is refused.
func TestReadBeforeAssigned(t *testing.T) {
	for name, c := range map[string]struct{ why, state, one, two, want string }{
		"initial":          {"it has a value from the beginning", "{type: int, initial: 0}", "next: [{to: Two}]", "next: [{to: Done, when: 'state.n > 1'}]", ""},
		"assigned":         {"on the only way", "{type: int}", "next: [{to: Two, set: {n: '1'}}]", "next: [{to: Done, when: 'state.n > 1'}]", ""},
		"on one of two":    {"the other way leads there, too", "{type: int}", "next: [{to: Two, when: 'guards.a', set: {n: '1'}}, {to: Two}]", "next: [{to: Done, when: 'state.n > 1'}]", "state.n may not be assigned here"},
		"by a timeout":     {"which assigns nothing", "{type: int}", "timeout: {after: 1h, to: Two}, next: [{to: Two, when: 'guards.a', set: {n: '1'}}]", "next: [{to: Done, when: 'state.n > 1'}]", "state.n may not"},
		"asked for":        {"the author knows", "{type: int}", "next: [{to: Two}]", "next: [{to: Done, when: 'has(state.n) && state.n > 1'}]", ""},
		"in a parameter":   {"the step fails", "{type: int}", "next: [{to: Two}]", "steps: [{action: Work, with: {any: '${state.n}'}}], next: [{to: Done}]", "state.n may not"},
		"by a variable":    {"the same through another", "{type: int}", "next: [{to: Two}]", "next: [{to: Done, when: 'variables.more'}]", "state.n may not"},
		"of itself":        {"there is nothing to add to", "{type: int}", "next: [{to: Two, set: {n: 'state.n + 1'}}]", "next: [{to: Done}]", "state.n may not"},
		"only in a text":   {"it shows as ?", "{type: int}", "message: 'n is ${state.n}', next: [{to: Two}]", "next: [{to: Done}]", ""},
		"after a loop":     {"the second round has it, the first has not", "{type: int}", "next: [{to: Two}]", "next: [{to: One, when: 'guards.a', set: {n: '1'}}, {to: Done, when: 'state.n > 1'}]", "state.n may not"},
		"where it is kept": {"the loop assigns it before", "{type: int}", "next: [{to: Two, set: {n: '1'}}]", "next: [{to: One, when: 'guards.a && state.n > 0'}, {to: Done}]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := spec("  finalizer: test.phasegate.dev/f\n  state: {n: " + c.state + "}\n  variables: [{name: more, expr: 'state.n > 1'}]\n  phases:\n" +
				"  - {name: One, kind: waiting, poll: 5s, " + c.one + ", onDelete: {to: Out}}\n  - {name: Two, kind: waiting, poll: 5s, " + c.two + ", onDelete: {to: Out}}\n" + rest)
			findingOf(t, c.why, "PG023", file, c.want)
		})
	}
}
