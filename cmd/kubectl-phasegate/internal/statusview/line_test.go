package statusview

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// ends is a machine with a detour, a failure and a way back from it.
	ends = `
  - {name: Check, next: [{to: Ask, when: 'self.spec.x == 1'}, {to: Work}], onDelete: {immediate: true}}
  - {name: Ask, kind: waiting, poll: 5s, next: [{to: Work}], onDelete: {immediate: true}}
  - {name: Work, next: [{to: Ask, when: 'self.spec.x == 2'}, {to: Back, when: 'self.spec.x == 3'}, {to: Done}], onDelete: {immediate: true}}
  - {name: Back, next: [{to: Failed}], onDelete: {immediate: true}}
  - {name: Failed, terminal: failure, next: [{to: Check, when: 'request.retry.pending'}], onDelete: {immediate: true}}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
  requests: [{name: retry, token: 'self.metadata.?annotations[?"x/retry"].orValue("")'}]
  upgrade: {phaseMap: {Approve: Ask}}`
	// rests never ends.
	rests = `
  - {name: Check, next: [{to: Build}], onDelete: {immediate: true}}
  - {name: Build, next: [{to: Ready}], onDelete: {immediate: true}}
  - {name: Ready, kind: steady, poll: 5s, next: [{to: Build, when: 'self.spec.x == 1'}], onDelete: {immediate: true}}`
)

// The bar keeps what was passed, of any machine, and tells what is ahead.
func TestLine(t *testing.T) {
	cases := map[string]struct{ why, phases, history, phase, want string }{
		"new":           {why: "nothing has happened yet", phases: ends, want: "[Check] Work Done"},
		"first":         {why: "the initial phase", phases: ends, history: "Check", want: "[Check] Work Done"},
		"on its way":    {why: "the shortest way is ahead", phases: ends, history: "Check Work", want: "+Check [Work] Done"},
		"detour":        {why: "a wait beside the way", phases: ends, history: "Check Ask", want: "+Check [Ask] Work Done"},
		"after detour":  {why: "what was passed stays, also beside the way", phases: ends, history: "Check Ask Work", want: "+Check +Ask [Work] Done"},
		"loop":          {why: "in the order in which each was left last, and once", phases: ends, history: "Check Work Ask Work", want: "+Check +Ask [Work] Done"},
		"in a loop":     {why: "what comes again is not told twice", phases: ends, history: "Check Work Ask", want: "+Check +Work [Ask] Done"},
		"success":       {why: "the whole way", phases: ends, history: "Check Ask Work Done", want: "+Check +Ask +Work [Done]"},
		"failing":       {why: "no success is ahead", phases: ends, history: "Check Work Back", want: "+Check +Work [Back]"},
		"failed":        {why: "how it came there", phases: ends, history: "Check Work Back Failed", want: "+Check +Work +Back [Failed]"},
		"again":         {why: "a request leads out of an end: it begins anew", phases: ends, history: "Check Work Back Failed Check", want: "[Check] Work Done"},
		"second try":    {why: "of this try", phases: ends, history: "Check Work Back Failed Check Work", want: "+Check [Work] Done"},
		"renamed":       {why: "the phase goes on under its new name", phases: ends, history: "Check Approve Ask Work", want: "+Check +Ask [Work] Done"},
		"gone":          {why: "a phase that the file does not have any more was passed all the same", phases: ends, history: "Check Old Work", want: "+Check +Old [Work] Done"},
		"unknown":       {why: "another revision drives it: what is ahead of the last that is known", phases: ends, history: "Check New", want: "+Check [New] Work Done"},
		"unknown alone": {why: "nothing is known", phases: ends, phase: "New", want: "[New]"},
		"without":       {why: "a status without a history", phases: ends, phase: "Work", want: "[Work] Done"},
		"forgotten":     {why: "the history keeps the last ones only: what leads to them is the way", phases: rests, history: "~Build Ready Build Ready", want: "+Check +Build [Ready]"},
		"steady":        {why: "a machine that rests", phases: rests, history: "Check Build Ready", want: "+Check +Build [Ready]"},
		"working again": {why: "it leaves its rest and comes back", phases: rests, history: "Check Build Ready Build", want: "+Check +Ready [Build]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			def, diags := fsm.Load("m.yaml", []byte("apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: m}\nspec:\n  for: {apiVersion: example.org/v1, kind: K}\n  initial: Check\n  phases:"+tc.phases+"\n"))
			if def == nil {
				t.Fatal(diags.Err())
			}
			m, diags := fsm.Bind(def, fsm.Bindings{})
			if m == nil {
				t.Fatal(diags.Err())
			}
			st := &v1alpha1.MachineStatus{Phase: tc.phase}
			last := ""
			for _, to := range strings.Fields(tc.history) {
				if rest, cut := strings.CutPrefix(to, "~"); cut { // what is before it is forgotten
					last = rest
					continue
				}
				st.History = append(st.History, v1alpha1.Transition{From: last, To: to})
				st.Phase, last = to, to
			}
			var got []string
			for _, ph := range line(m, st) {
				text := ph.Name
				if ph.Present {
					text = "[" + text + "]"
				} else if ph.Visited {
					text = "+" + text
				}
				got = append(got, text)
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("%s: got %s, want %s", tc.why, text, tc.want)
			}
		})
	}
}
