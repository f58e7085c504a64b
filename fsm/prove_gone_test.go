package fsm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVanishedObjectsAreProved(t *testing.T) {
	// file takes a lock, and releases it in a phase that a deletion goes on in.
	file := func(two string) string {
		return phases("  - {name: One, steps: [{action: Take}], next: [{to: Two}], timeout: {after: 1h, to: Two}, onDelete: {hold: goes on}}\n" +
			"  - {name: Two, poll: 5s, onDelete: {hold: goes on}, " + two + "}\n" + rest)
	}
	for name, c := range map[string]struct {
		why, two string
		found    bool
	}{
		"step that asks the object": {"there is no self.spec any more: the step is never over", "steps: [{action: Work, if: 'self.spec.x == 1'}, {action: Give}], next: [{to: Done}]", true},
		"optional field":            {"what is not there has a value", "steps: [{action: Work, if: 'self.?spec.?x.orValue(0) == 1'}, {action: Give}], next: [{to: Done}]", false},
		"exit that asks the object": {"the lock is released behind it", "next: [{to: Back, when: 'self.spec.x == 1'}], timeout: {after: 1h, stalled: Slow}", true},
		"exit that is shut":         {"it opens for an object only", "next: [{to: Back, when: 'has(self.spec)'}], timeout: {after: 1h, stalled: Slow}", true},
		"timeout that leads on":     {"time passes without an object too", "next: [{to: Back, when: 'has(self.spec)'}], timeout: {after: 1h, to: Back}", false},
		"parameter of the object":   {"the action is never called", "steps: [{action: Work, with: {text: 'for ${self.spec.x}'}}, {action: Give}], next: [{to: Done}]", true},
		"until asks the object too": {"whatever the other part says, it is not true", "steps: [{action: Work, until: 'guards.a && self.spec.x == 1'}, {action: Give}], next: [{to: Done}]", true},
		"until may do without":      {"one part is enough", "steps: [{action: Work, until: 'guards.a || self.spec.x == 1'}, {action: Give}], next: [{to: Done}]", false},
		"until compares with it":    {"there is nothing to compare with", "steps: [{action: Work, until: 'phase.attempts == self.spec.x'}, {action: Give}], next: [{to: Done}]", true},
		"failWhen asks the object":  {"an error that is tried again for ever", "steps: [{action: Work, failWhen: 'self.spec.x == 1'}, {action: Give}], next: [{to: Done}]", true},
		"loop over its list":        {"there is no list", "steps: [{action: Work, forEach: {in: self.spec.x}}, {action: Give}], next: [{to: Done}]", true},
		"loop over one of state":    {"the values are kept", "steps: [{action: Work, forEach: {in: state.names}}, {action: Give}], next: [{to: Done}]", false},
		"loop that may do without":  {"no items are none to wait for", "steps: [{action: Work, forEach: {in: 'self.?spec.?x.orValue([])'}}, {action: Give}], next: [{to: Done}]", false},
		"keys of the object":        {"nobody knows which", "steps: [{name: Some, undo: lock, keys: self.spec.x}, {undo: held}], next: [{to: Done}]", true},
		"keys that are none":        {"the rest is released behind it", "steps: [{name: Some, undo: lock, keys: 'self.?spec.?x.orValue([])'}, {undo: held}], next: [{to: Done}]", false},
		"keys of the file":          {"they are known without an object", "steps: [{name: Some, undo: lock, keys: '[\"1\", \"2\"]'}, {undo: held}], next: [{to: Done}]", false},
		"guard":                     {"the cluster may say so", "steps: [{action: Work, if: 'guards.a'}, {action: Give}], next: [{to: Done}]", false},
		"retries that lead on":      {"the errors end, and lead to where it is released", "steps: [{action: Work, if: 'self.spec.x == 1'}, {action: Give}], next: [{to: Done}], retry: {attempts: 3, to: Back}", false},
		"ledger":                    {"what is held is known without an object", "steps: [{action: Give, if: '\"lock\" in held'}], next: [{to: Done}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(file(c.two), "  phases:\n", "  state: {names: {type: '[]string', initial: []}}\n  phases:\n", 1)
			if strings.Contains(c.two, "keys:") {
				text = strings.Replace(text, "{action: Take}", "{action: Take, forEach: {in: state.names}}", 1)
			}
			if strings.Contains(c.two, "Back") {
				text += "  - {name: Back, steps: [{undo: held}], next: [{to: Done}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}\n"
			}
			var want, got []string
			if c.found {
				want = []string{"releasedWhenGone"}
			}
			for _, line := range proofOf(t, "test.yaml", text) {
				if _, rest, ok := strings.Cut(line, "PG201: invariant "); ok {
					invariant, _, _ := strings.Cut(rest, ":")
					got = append(got, invariant)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}
