package fsm_test

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestHappyPath(t *testing.T) {
	cases := map[string]struct{ why, phases, want string }{
		"shortest": {why: "a detour over a waiting phase is not the way on which all goes well", phases: `
  - {name: A, next: [{to: B, when: 'self.spec.x == 1'}, {to: C}], onDelete: {immediate: true}}
  - {name: B, kind: waiting, poll: 5s, next: [{to: C}], onDelete: {immediate: true}}
  - {name: C, terminal: success, onDelete: {immediate: true}}`, want: "A C"},
		"steady": {why: "a machine that never ends rests in a steady phase", phases: `
  - {name: A, next: [{to: B}], onDelete: {immediate: true}}
  - {name: B, kind: steady, poll: 5s, next: [{to: A, when: 'self.spec.x == 1'}], onDelete: {immediate: true}}`, want: "A B"},
		"not over an end": {why: "only a request leads out of a failure", phases: `
  - {name: A, next: [{to: F, when: 'self.spec.x == 1'}, {to: B}], onDelete: {immediate: true}}
  - {name: B, next: [{to: C}], onDelete: {immediate: true}}
  - {name: F, terminal: failure, next: [{to: D, when: 'request.retry.pending'}], onDelete: {immediate: true}}
  - {name: C, next: [{to: E}], onDelete: {immediate: true}}
  - {name: E, next: [{to: D}], onDelete: {immediate: true}}
  - {name: D, terminal: success, onDelete: {immediate: true}}
  requests: [{name: retry, token: 'self.metadata.?annotations[?"x/retry"].orValue("")'}]`, want: "A B C E D"},
		"none": {why: "there is no success to lead to", phases: `
  - {name: A, terminal: failure, onDelete: {immediate: true}}`, want: "A"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := machineOf(t, "m.yaml", []byte("apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: m}\nspec:\n  for: {apiVersion: example.org/v1, kind: K}\n  initial: A\n  phases:"+c.phases+"\n"), program.Bindings{})
			if got := strings.Join(m.HappyPath(), " "); got != c.want {
				t.Errorf("%s: got %s, want %s", c.why, got, c.want)
			}
		})
	}
}
