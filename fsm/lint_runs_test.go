package fsm

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// running is a machine that stops an application and runs a Job under it: by the steps of One, and on the way out by
// those of Back.
func running(effects, working, back string) string {
	return spec("  finalizer: test.phasegate.dev/f\n  effects: [{name: stopped, acquire: Stop, release: Start}" + effects + "]\n" + `  phases:
  - {name: One, steps: [` + working + `], next: [{to: Done}], timeout: {after: 1h, to: Back}, onDelete: {to: Out}}
  - {name: Done, terminal: success, onDelete: {to: Out}}
  - {name: Back, steps: [` + back + `], next: [{to: Ended}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}
  - {name: Ended, steps: [{undo: held}], next: [{to: Failed}], timeout: {after: 1h, stalled: Slow}, onDelete: {to: Out}}
  - {name: Failed, terminal: failure, onDelete: {to: Out}}
  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}}
  - {name: End, deletion: true, end: true}
`)
}

func TestRuns(t *testing.T) {
	b := testBindings
	b.Actions = maps.Clone(b.Actions)
	for _, name := range []string{"Stop", "Start", "EndRun"} {
		b.Actions[name] = program.ActionSpec{}
	}
	b.Actions["Run"] = program.ActionSpec{Runs: "Job"}
	const job = ", {name: job, acquire: Run, release: EndRun}"
	cases := map[string]struct {
		why, file string
		// want is the message, and trace the way.
		want  string
		trace []string
	}{
		"not an effect": {why: "the application starts while the Job runs", file: running("", "{action: Stop}, {action: Run}, {action: Start}", "{undo: held}"),
			want: "step undo of Back releases stopped while the Job of step Run may still run", trace: []string{"One → Back (timeout)"}},
		"an effect":       {why: "it was taken last, so it ends first", file: running(job, "{action: Stop}, {action: Run}, {action: EndRun}, {action: Start}", "{undo: held}")},
		"nothing is held": {why: "the Job goes on and disturbs nothing", file: running("", "{action: Run}, {action: Stop}, {action: Start}", "{undo: held}")},
		"further on": {why: "the next phase does it", file: strings.Replace(running("", "{action: Stop}, {action: Run}, {action: Start}", "{action: Work}"), "to: Back}, onDelete: {to: Out}", "to: Back}, onDelete: {hold: soon}", 1),
			want: "step undo of Ended releases stopped while the Job of step Run may still run", trace: []string{"One → Back (timeout)", "Back → Ended (next)"}},
		"the older one first": {why: "a step releases it before the Job has ended", file: running(job, "{action: Stop}, {action: Run}, {action: EndRun}, {action: Start}", "{action: Start}, {action: EndRun}"),
			want: "step Start of Back releases stopped while the Job of step Run may still run", trace: []string{"One → Back (timeout)"}},
		"the Job first": {why: "then nothing runs", file: running(job, "{action: Stop}, {action: Run}, {action: EndRun}, {action: Start}", "{action: EndRun}, {action: Start}")},
		"perhaps the Job": {why: "the condition may be false", file: running(job, "{action: Stop}, {action: Run}, {action: EndRun}, {action: Start}", "{action: EndRun, if: 'guards.a'}, {action: Start}"),
			want: "step Start of Back releases stopped while the Job of step Run may still run", trace: []string{"One → Back (timeout)"}},
		"after it is done": {why: "the exit is taken when the steps are done", file: running(job, "{action: Stop}, {action: Run}, {action: EndRun}", "{action: EndRun}, {action: Start}")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var found []string
			var trace []string
			for _, d := range (badFile{bindings: b}).findings(c.file) {
				if d.Code != "PG020" {
					t.Logf("besides: %v", d)
					continue
				}
				found, trace = append(found, d.Message), d.Trace
			}
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if d := cmp.Diff(want, found); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if d := cmp.Diff(c.trace, trace); d != "" {
				t.Errorf("the way (-want +got):\n%s", d)
			}
		})
	}
}

// What a step writes bears its ID: it must stay when steps are added, and be no other step's.
func TestStepID(t *testing.T) {
	def, diags := program.Load("test.yaml", []byte(phases(`  - name: One
    onDelete: {to: Out}
    steps: [{action: Work}, {action: Take}, {action: Work, name: Look}, {undo: held}]
    next: [{to: Done}]
    timeout: {after: 1h, stalled: Slow}
`+rest)))
	if def == nil {
		t.Fatal(diags)
	}
	m, diags := Bind(def, testBindings)
	if m == nil {
		t.Fatal(diags)
	}
	var ids []string
	for _, s := range m.prog.Phases["One"].StepList {
		ids = append(ids, s.ID)
	}
	if d := cmp.Diff([]string{"One/Work", "One/Take", "One/Look", "One/undo"}, ids); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
