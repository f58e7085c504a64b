package fsm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// short says with lists, failure and deletion what long says in full.
const (
	short = `  finalizer: test.phasegate.dev/f
  effects: [{name: lock, acquire: Take, release: Give}]
  stepLists:
    observe:
    - {action: See}
    - {action: Look, until: 'result.seen'}
  failure: undo
  deletion: undo
  phases:
  - name: One
    poll: 5s
    steps:
    - use: observe
    - {action: Take}
    next: [{to: Two, when: 'guards.a'}]
    timeout: {after: 1h, to: RollingBack}
  - name: Two
    poll: 5s
    steps: [{action: Give}, {use: observe}]
    next: [{to: Done, when: 'guards.a'}]
    timeout: {after: 1h, to: RollingBack}
  - {name: Done, terminal: success}
`
	long = `  finalizer: test.phasegate.dev/f
  effects: [{name: lock, acquire: Take, release: Give}]
  phases:
  - name: One
    poll: 5s
    steps: [{action: See}, {action: Look, until: 'result.seen'}, {action: Take}]
    next: [{to: Two, when: 'guards.a'}]
    timeout: {after: 1h, to: RollingBack}
    onDelete: {to: Aborting}
  - name: Two
    poll: 5s
    steps: [{action: Give}, {action: See}, {action: Look, until: 'result.seen'}]
    next: [{to: Done, when: 'guards.a'}]
    timeout: {after: 1h, to: RollingBack}
    onDelete: {to: Aborting}
  - {name: Done, terminal: success, onDelete: {to: Aborting}}
  - name: RollingBack
    steps: [{undo: held}]
    next: [{to: Failed, reason: RolledBack}]
    timeout: {after: 1h, stalled: RollbackStalled}
    onDelete: {to: Aborting}
  - {name: Failed, terminal: failure, onDelete: {to: Aborting}}
  - name: Aborting
    deletion: true
    steps: [{undo: held}]
    next: [{to: Deleted, reason: Aborted}]
    timeout: {after: 1h, stalled: RollbackStalled}
  - {name: Deleted, deletion: true, end: true}
`
)

func shortBindings() program.Bindings {
	return program.Bindings{Guards: map[string]string{"a": ""}, Actions: map[string]program.ActionSpec{
		"Take": {}, "Give": {}, "See": {}, "Nod": {}, "Look": {Outputs: map[string]Type{"seen": TypeBool}},
	}}
}

// loaded is a file that has no finding.
func loaded(t *testing.T, file string) *Machine {
	t.Helper()
	def, diags := program.Load("test.yaml", []byte(file))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	m, diags := Bind(def, shortBindings())
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return m
}

// Objects go on at their step when a file is shortened.
func TestShortIsWrittenOut(t *testing.T) {
	is, want := loaded(t, spec(short)), loaded(t, spec(long))
	if is.Revision() != want.Revision() {
		t.Errorf("the revision is another one: (-in full +in short)\n%s", cmp.Diff(want.Definition().Spec, is.Definition().Spec))
	}
	for i, p := range want.Program().Order {
		if got := is.Program().Order[i]; got.Name != p.Name || got.Revision != p.Revision {
			t.Errorf("phase %s does what %s does not", got.Name, p.Name)
		}
	}
	if d := cmp.Diff(want.Edges(), is.Edges()); d != "" {
		t.Errorf("edges (-in full +in short):\n%s", d)
	}
}

func TestShortGivesWay(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		file string
		want []string // the phases, each with what a deletion does there
	}{
		"both": {"all four", short, []string{"One Aborting", "Two Aborting", "Done Aborting", "RollingBack Aborting", "Failed Aborting", "Aborting", "Deleted"}},
		"own rollback": {"the file's, which leads to the phase that is added", short + "  - {name: RollingBack, steps: [{undo: held}, {action: Nod}], next: [{to: Failed}], timeout: {after: 2h, stalled: Stuck}, onDelete: {hold: soon}}\n",
			[]string{"One Aborting", "Two Aborting", "Done Aborting", "RollingBack soon", "Failed Aborting", "Aborting", "Deleted"}},
		"own exit of a deletion": {"it says more than the machine", strings.Replace(short, "{name: Done, terminal: success}", "{name: Done, terminal: success, onDelete: {immediate: true}}", 1),
			[]string{"One Aborting", "Two Aborting", "Done none", "RollingBack Aborting", "Failed Aborting", "Aborting", "Deleted"}},
		"failure alone": {"a deletion waits for what is released, and nothing is held afterwards",
			strings.NewReplacer("  deletion: undo\n", "", "to: RollingBack}\n", "to: RollingBack}\n    onDelete: {hold: soon}\n", "terminal: success}", "terminal: success, onDelete: {immediate: true}}").Replace(short),
			[]string{"One soon", "Two soon", "Done none", "RollingBack Waiting until what is held is released", "Failed none"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range loaded(t, spec(c.file)).Definition().Spec.Phases {
				text := p.Name
				if d := p.OnDelete; d != nil && d.Immediate {
					text += " none"
				} else if d != nil {
					text += " " + d.To + d.Hold
				}
				got = append(got, text)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestShortIsChecked(t *testing.T) {
	edited := func(old, now string) string { return spec(strings.Replace(short, old, now, 1)) }
	for name, c := range map[string]badFile{
		"unknown list":     {why: "a typo", code: "PG005", bad: edited("    - use: observe", "    - use: ⟦obsrve"), contains: []string{`step list "obsrve" is not there`}},
		"unused list":      {why: "it looks as if it were done", code: "PG000", bad: edited("    observe:\n", "    more: ⟦[{action: Nod}]\n    observe:\n"), contains: []string{"step list more is used by no phase"}},
		"empty list":       {why: "it does nothing", code: "PG000", bad: edited("    observe:\n", "    more: ⟦⟦[]\n    observe:\n"), contains: []string{"step list more is empty", "is used by no phase"}},
		"list in a list":   {why: "it could lead to itself", code: "PG000", bad: edited("- {action: See}", "- {use: ⟦observe}"), contains: []string{"a step list uses no other one"}},
		"use and more":     {why: "of which of the steps is it?", code: "PG000", bad: edited("{use: observe}", "⟦{use: observe, if: 'guards.a'}"), contains: []string{"has nothing beside it"}},
		"list of no name":  {why: "no path could name it", code: "PG000", bad: edited("    observe:\n", "    a-b: ⟦⟦[{action: Nod}]\n    observe:\n"), contains: []string{"is not a name", "is used by no phase"}},
		"in the list":      {why: "it stands there once, though two phases use it", code: "PG005", bad: edited("{action: See}", "{action: ⟦Sea}"), contains: []string{`action "Sea" is not known`}},
		"in an expression": {why: "the same, and the column counts", code: "PG006", bad: edited("until: 'result.seen'", "until: 'result.⟦sen'"), contains: []string{"sen"}},
		"after the list":   {why: "the steps behind it are later ones now", code: "PG005", bad: edited("- {action: Take}", "- {action: ⟦Tak}"), contains: []string{`action "Tak" is not known`}},
		"used twice":       {why: "names of steps are unique in a phase", code: "PG000", bad: edited("[{action: Give}, {use: observe}]", "[{action: Give}, {use: observe}, {use: observe}]"), contains: nil},
		"another way":      {why: "there is one", code: "PG000", bad: edited("failure: undo", "failure: ⟦redo"), contains: []string{`spec.failure is "redo"`}},
		"nothing fails":    {why: "no way leads to the phase that is added", code: "PG002", bad: spec(strings.ReplaceAll(strings.Replace(short, "failure: undo", "failure: ⟦⟦undo", 1), "to: RollingBack", "stalled: Stuck")), contains: []string{"phase RollingBack is unreachable", "phase Failed is unreachable"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.good, c.bindings = spec(short), shortBindings()
			if name == "used twice" {
				if found := c.findings(c.bad); len(found) == 0 || found[0].Line != 10 && found[0].Line != 11 {
					t.Errorf("%s: %v", c.why, found)
				}
				return
			}
			c.check(t)
		})
	}
	nested := strings.Repeat("{use: observe}, ", 5000)
	big := spec(strings.Replace(short, "{use: observe}", strings.TrimSuffix(nested, ", "), 1))
	if _, diags := program.Load("test.yaml", []byte(big)); len(diags) == 0 || !strings.Contains(diags[0].Message, "written out") {
		t.Errorf("a small file that is a large one: %v", diags)
	}
}
