package fsm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// edited waits at the last step of One; each part of it is changed by a case.
const edited = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: test}
spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  finalizer: test.phasegate.dev/f
  defaults: {poll: 20s}
  variables:
  - {name: big, expr: 'self.spec.n > 5'}
  - {name: over, expr: 'variables.big'}
  - {name: other, expr: 'self.spec.n > 7'}
  actions:
  - {name: Note, use: Work, with: {text: '${self.spec.text}'}}
  requests:
  - {name: go, token: 'self.spec.?go.orValue("")'}
  effects:
  - {name: app, acquire: Take, release: Give}
  phases:
  - name: One
    description: Works.
    steps:
    - {action: Look}
    - {action: Note, if: 'variables.over'}
    - {action: Take}
    - {action: Work, name: Pause, with: {count: 1}, until: 'request.go.pending', poll: 5s, message: waits}
    next: [{to: Two, message: moves}]
    timeout: {after: 1h, to: Out}
    onDelete: {hold: it works}
  - name: Two
    kind: waiting
    steps: [{undo: held}, {action: Work}]
    next: [{to: Done, when: 'variables.other'}]
    poll: 1m
    onDelete: {to: Out}
` + rest

func TestWhatAnEditDoes(t *testing.T) {
	const (
		sameMachine = iota // not even another revision
		goesOn             // at its step
		startsAgain        // with the first step of the phase
	)
	for name, c := range map[string]struct {
		why  string
		edit []string // old and new by turns
		want int
	}{
		"comment":                {"it says nothing to the program", []string{"    steps:\n", "    # of One\n    steps: # in order\n"}, sameMachine},
		"layout":                 {"blocks and flows say the same", []string{"  - {name: app, acquire: Take, release: Give}\n", "  - release: \"Give\"\n    acquire: 'Take'\n\n    name: app\n"}, sameMachine},
		"labels":                 {"they are for people and tools", []string{"metadata: {name: test}", "metadata: {name: test, labels: {a: b}, annotations: {c: d}}"}, sameMachine},
		"description":            {"it is for people", []string{"description: Works.", "description: Works hard."}, sameMachine},
		"messages":               {"they are for people", []string{"message: waits", "message: 'waits for ${variables.other}'", "message: moves", "message: goes"}, sameMachine},
		"text of hold":           {"it is for people", []string{"hold: it works", "hold: it is working"}, sameMachine},
		"what is default":        {"it is what the program takes anyway", []string{"description: Works.", "kind: progressing"}, sameMachine},
		"poll of the step":       {"how often it looks is not what it does", []string{"poll: 5s", "poll: 6s"}, goesOn},
		"default poll":           {"nor is that of all", []string{"poll: 20s", "poll: 30s"}, goesOn},
		"timeout":                {"nor is how long it may take", []string{"after: 1h", "after: 2h"}, goesOn},
		"retry":                  {"nor is what happens after an error", []string{"    timeout", "    retry: {base: 1s, attempts: 9, to: Out}\n    timeout"}, goesOn},
		"exit":                   {"the steps are the same", []string{"next: [{to: Two, message: moves}]", "next: [{to: Done, when: 'variables.other'}, {to: Two}]"}, goesOn},
		"onError":                {"the steps are the same", []string{"    timeout", "    onError: [{is: Terminal, to: Out}]\n    timeout"}, goesOn},
		"name of the step":       {"it is shown only", []string{"name: Pause", "name: Break"}, goesOn},
		"name of an action":      {"it is the same action with the same parameters", []string{"name: Note", "name: Write", "action: Note", "action: Write"}, goesOn},
		"another phase":          {"it is not in it", []string{"steps: [{undo: held}, {action: Work}]", "steps: [{undo: held}, {action: Work, with: {count: 7}}, {action: Look}]"}, goesOn},
		"another variable":       {"no step of it reads it", []string{"self.spec.n > 7", "self.spec.n > 8"}, goesOn},
		"new phase":              {"it is not in it", []string{"    next: [{to: Done, when: 'variables.other'}]", "    next: [{to: Three, when: 'variables.other'}]", "  - name: Two", "  - {name: Three, poll: 5s, timeout: {after: 1h, to: Out}, next: [{to: Done}], onDelete: {to: Out}}\n  - name: Two"}, goesOn},
		"parameter":              {"a step that is done would do something else", []string{"count: 1", "count: 2"}, startsAgain},
		"named action":           {"it is what a step does", []string{"self.spec.text", "self.spec.words"}, startsAgain},
		"variable of a variable": {"whether a step is done depends on it", []string{"self.spec.n > 5", "self.spec.n > 4"}, startsAgain},
		"request of a step":      {"whether a step is over depends on it", []string{"self.spec.?go", "self.spec.?start"}, startsAgain},
		"condition":              {"a step that was left out may be due", []string{"if: 'variables.over'", "if: 'variables.over || variables.other'"}, startsAgain},
		"until":                  {"a step that is over may not be", []string{"until: 'request.go.pending'", "until: 'request.go.pending && variables.other'"}, startsAgain},
		"new step":               {"it must be done, too", []string{"    - {action: Look}\n", "    - {action: Look}\n    - {wait: 1s}\n"}, startsAgain},
		"order":                  {"the stepIndex counts other steps", []string{"    - {action: Look}\n    - {action: Note, if: 'variables.over'}\n", "    - {action: Note, if: 'variables.over'}\n    - {action: Look}\n"}, startsAgain},
		"effect":                 {"what a step takes has another name", []string{"{name: app, acq", "{name: db, acq", "  variables:", "  upgrade: {effectMap: {app: db}}\n  variables:"}, startsAgain},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, machineOf(t, "test.yaml", []byte(edited), testBindings), map[string]any{"n": 6, "text": "a", "words": "b"})
			w.settle()
			if w.Stored.StepIndex != 3 || w.Stored.Step != "Pause" {
				t.Fatalf("it stands at step %d, %s", w.Stored.StepIndex, w.Stored.Step)
			}
			before, file := w.Stored.Revision, edited
			for i := 0; i < len(c.edit); i += 2 {
				if !strings.Contains(file, c.edit[i]) {
					t.Fatalf("the file does not say %q", c.edit[i])
				}
				file = strings.Replace(file, c.edit[i], c.edit[i+1], 1)
			}
			w.Machine, w.Called = machineOf(t, "test.yaml", []byte(file), testBindings), nil
			w.Wake()
			w.advance(2 * time.Second)
			got := goesOn
			switch {
			case len(w.Called) > 1:
				got = startsAgain
			case w.Stored.Revision == before:
				got = sameMachine
			}
			if got != c.want || w.Stored.Revision != w.Machine.Revision() || w.Stored.Step != w.Machine.Definition().Spec.Phases[0].Steps[w.Stored.StepIndex].Name {
				t.Errorf("%s: got %d, want %d; it stands at %s of revision %s, and has called %v", c.why, got, c.want, w.Stored.Step, w.Stored.Revision, w.Called)
			}
		})
	}
}

// A state that was stored without a word of what the phase does is one of a version that
// began the phase again after each change; so does this one, once.
func TestStateWithoutPhaseRevision(t *testing.T) {
	m := machineOf(t, "test.yaml", []byte(edited), testBindings)
	got := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: "sha256:0123456789abcdef", StepIndex: 2, Step: "Take"}, fsm.Observation{Now: time.Now}).Status()
	if d := cmp.Diff([]any{int32(0), "", m.Revision()}, []any{got.StepIndex, got.Step, got.Revision}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if again := m.Run(v1alpha1.MachineStatus{Phase: "One", Revision: got.Revision, PhaseRevision: got.PhaseRevision, StepIndex: 2, Step: "Take"}, fsm.Observation{Now: time.Now}).Status(); again.StepIndex != 2 {
		t.Errorf("it starts again each time: step %d", again.StepIndex)
	}
}

// A phase that was renamed goes on at its step if it does the same.
func TestRenamedPhaseGoesOnAtItsStep(t *testing.T) {
	for name, c := range map[string]struct {
		why    string
		edit   []string
		called []string
	}{
		"only renamed":      {"its steps are the same", nil, []string{"Work"}},
		"changed, too":      {"its steps are others", []string{"count: 1", "count: 2"}, []string{"Look", "Work", "Take", "Work"}},
		"changed, but said": {"the file says at which step it goes on", []string{"count: 1", "count: 2", "name: Pause", "name: Break", "{phaseMap", "{stepMap: {Pause: Break}, phaseMap"}, []string{"Work"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, machineOf(t, "test.yaml", []byte(edited), testBindings), map[string]any{"n": 6, "text": "a"})
			w.settle()
			file := strings.NewReplacer("name: One", "name: First", "initial: One", "upgrade: {phaseMap: {One: First}}\n  initial: First").Replace(edited)
			for i := 0; i < len(c.edit); i += 2 {
				file = strings.Replace(file, c.edit[i], c.edit[i+1], 1)
			}
			w.Machine, w.Called = machineOf(t, "test.yaml", []byte(file), testBindings), nil
			w.settle()
			for i, called := range w.Called {
				w.Called[i] = strings.Replace(called, "Note", "Work", 1)
			}
			if d := cmp.Diff(c.called, w.Called); d != "" || w.Stored.Phase != "First" {
				t.Errorf("%s: in %s (-want +got):\n%s", c.why, w.Stored.Phase, d)
			}
		})
	}
}

// noting notes how many replicas an application has, stops it, works, and starts it again.
const noting = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: test}
spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  phases:
  - name: One
    steps:
    - {action: Read} # phasegate:ignore PG106 the case is about what becomes of such a machine
    - {action: Scale, name: Stop, with: {replicas: 0}}
    - {action: Work, poll: 5s}
    - {action: Scale, name: Start, with: {replicas: '${result.replicas}'}}
    next: [{to: Done}]
    timeout: {after: 1h, stalled: Slow}
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`

// What is noted is not noted anew because of an edit that has nothing to do with it; where
// the steps themselves are edited it is, which is what PG106 warns of.
func TestNotedValueSurvivesAnEdit(t *testing.T) {
	b := program.Bindings{Actions: map[string]program.ActionSpec{
		"Read":  {Outputs: map[string]expr.Type{"replicas": expr.TypeInt}, Reads: &program.Target{Fields: []string{"spec.replicas"}}},
		"Scale": {Params: map[string]program.Param{"replicas": {Type: expr.TypeInt}}, Writes: &program.Target{Fields: []string{"spec.replicas"}}},
		"Work":  {Params: map[string]program.Param{"any": {Type: expr.TypeAny}}},
	}}
	for name, c := range map[string]struct {
		why       string
		old, edit string
		want      int
	}{
		"comment":   {"it says nothing to the program", "    next:", "    # a comment\n    next:", 3},
		"timeout":   {"it is not what the steps do", "after: 1h", "after: 2h", 3},
		"exit":      {"it is not what the steps do", "next: [{to: Done}]", "next: [{to: Done, reason: Over}]", 3},
		"parameter": {"all steps are done again, and what was noted was changed by one of them", "{action: Work, poll", "{action: Work, with: {any: 1}, poll", 0},
	} {
		t.Run(name, func(t *testing.T) {
			replicas, ready := 3, false
			w := worldOf(t, machineOf(t, "test.yaml", []byte(noting), b), nil)
			w.Respond = func(action string, cmd fsm.Decision) (simulate.Answer, bool) {
				switch {
				case action == "Read":
					return answer(map[string]any{"replicas": replicas}), true
				case action == "Scale":
					replicas = cmd.With.Int("replicas", -1)
				case !ready:
					return failing(fsm.Wait("it runs"), ""), true
				}
				return simulate.Answer{}, true
			}
			w.settle()
			w.Machine = machineOf(t, "test.yaml", []byte(strings.Replace(noting, c.old, c.edit, 1)), b)
			w.settle()
			ready = true
			w.advance(time.Minute)
			if w.Stored.Phase != "Done" || replicas != c.want {
				t.Errorf("%s: it ends in %s with %d replicas, want %d", c.why, w.Stored.Phase, replicas, c.want)
			}
		})
	}
}
