package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// phases is a machine whose phases are given, with a finalizer and effects.
func phases(lines string) string {
	return spec(`  finalizer: test.phasegate.dev/f
  effects: [{name: lock, acquire: Take, release: Give}]
  requests: [{name: go, token: 'self.spec.go'}]
  phases:
` + lines)
}

// rest completes a machine whose initial phase is given and leads to Done.
const rest = `  - {name: Done, terminal: success, onDelete: {to: Out}}
  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}]}
  - {name: End, deletion: true, end: true}
`

// one is a machine whose initial phase leads to Done, with some more in it.
func one(more string) string {
	return phases("  - name: One\n    onDelete: {to: Out}\n" + more + rest)
}

const toDone = "    next: [{to: Done}]\n"

func TestEachCodeHasABadAndAGoodFile(t *testing.T) {
	for name, c := range map[string]badFile{
		"PG000 name of the machine": {
			why: "Events name it as their controller, and would be refused", code: "PG000",
			bad:      strings.Replace(one(toDone), "{name: test}", "{name: ⟦My machine}", 1),
			good:     strings.Replace(one(toDone), "{name: test}", "{name: my-machine}", 1),
			contains: []string{`"My machine" is not a name for a machine`},
		},
		"PG000 duration": {
			why: "a bare number has no unit", code: "PG000",
			bad: one("    poll: ⟦'10'\n" + toDone), good: one("    poll: 10s\n" + toDone),
			contains: []string{`"10" is not a positive duration`},
		},
		"PG000 negative duration": {
			why: "the past is no deadline", code: "PG000",
			bad: one("    timeout: {after: ⟦-5m, to: Done}\n" + toDone), good: one("    timeout: {after: 5m, to: Done}\n" + toDone),
			contains: []string{`"-5m" is not a positive duration`},
		},
		"PG000 timeout without an effect": {
			why: "to and stalled answer the same question", code: "PG000",
			bad: one("    timeout: ⟦{after: 5m}\n" + toDone), good: one("    timeout: {after: 5m, stalled: Slow}\n" + toDone),
			contains: []string{"exactly one of to and stalled"},
		},
		"PG000 kind": {
			why: "a misspelled kind would be progressing", code: "PG000",
			bad: one("    kind: ⟦Steady\n" + toDone), good: one("    kind: steady\n" + toDone),
			contains: []string{`kind is "Steady"`},
		},
		"PG000 step of two kinds": {
			why: "which comes first?", code: "PG000",
			bad: one("    steps:\n    - ⟦{action: Work, wait: 5s}\n" + toDone), good: one("    steps:\n    - {action: Work}\n    - {wait: 5s}\n" + toDone),
			contains: []string{"exactly one of action, undo and wait"},
		},
		"PG000 undo": {
			why: "only all that is held can be undone", code: "PG000",
			bad: one("    steps: [{undo: ⟦lock}]\n" + toDone), good: one("    steps: [{undo: held}]\n" + toDone),
			contains: []string{"lock is not taken for each item of a forEach"},
		},
		"PG000 error class": {
			why: "a class that nothing has is never caught", code: "PG000",
			bad: one("    onError: [{is: ⟦Fatal, to: Done}]\n" + toDone), good: one("    onError: [{is: Terminal, to: Done}]\n" + toDone),
			contains: []string{`unknown error class "Fatal"`},
		},
		"PG000 retry": {
			why: "a backoff that shrinks is none", code: "PG000",
			bad: one("    retry: ⟦{factor: 0.5}\n" + toDone), good: one("    retry: {factor: 1.5}\n" + toDone),
			contains: []string{"factor must be at least 1"},
		},
		"PG000 retry target": {
			why: "who never gives up goes nowhere", code: "PG000",
			bad: one("    retry: {to: ⟦Done}\n" + toDone), good: one("    retry: {attempts: 3, to: Done}\n" + toDone),
			contains: []string{"retry.to without attempts"},
		},
		"PG000 twice": {
			why: "the second would replace the first", code: "PG000",
			bad: one(toDone) + "  - {name: ⟦Done, terminal: failure, onDelete: {to: Out}}\n", good: one(toDone),
			contains: []string{`phase "Done" is declared twice, in line `},
		},
		"PG000 name": {
			why: "request.my-go would be a subtraction", code: "PG000",
			bad: spec("  requests: [{name: ⟦my-go, token: 'self.x'}]\n" + onePhase), good: spec("  requests: [{name: myGo, token: 'self.x'}]\n" + onePhase),
			contains: []string{`"my-go" is not a name for a request`},
		},
		"PG000 reason": {
			why: "the API server refuses the condition, and with it the whole status", code: "PG000",
			bad: one("    next: [{to: Done, reason: ⟦'all done'}]\n"), good: one("    next: [{to: Done, reason: AllDone}]\n"),
			contains: []string{`"all done" is not a reason`},
		},
		"PG000 shared action": {
			why: "the ledger could not tell the two effects apart", code: "PG000",
			bad:      spec("  finalizer: a.b/c\n  effects:\n  - {name: a, acquire: Take, release: Give}\n  - ⟦{name: b, acquire: Take2, release: Give}\n" + onePhase),
			good:     spec("  finalizer: a.b/c\n  effects:\n  - {name: a, acquire: Take, release: Give}\n  - {name: b, acquire: Take2, release: Give2}\n" + onePhase),
			contains: []string{"action Give belongs to effect a already"},
		},
		"PG000 exit of a terminal phase": {
			why: "an end that is left by itself is no end", code: "PG000",
			bad:  one("    next: [{to: Idle}]\n") + "  - {name: Idle, terminal: failure, onDelete: {to: Out}, next: [⟦{to: Done, when: 'self.x'}]}\n",
			good: one("    next: [{to: Idle}]\n") + "  - {name: Idle, terminal: failure, onDelete: {to: Out}, next: [{to: Done, when: 'request.go.pending'}]}\n",

			contains: []string{"terminal phase that no request opens"},
		},
		"PG000 require where it is not read": {
			why: "a precondition that is never checked gives false comfort", code: "PG000",
			bad: phases("  - name: One\n    terminal: success\n    onDelete: {to: Out}\n    require: ⟦[{when: 'guards.a', else: Done}]\n" + rest), good: one("    require: [{when: 'guards.a', else: Done}]\n" + toDone),
			contains: []string{"require is never checked"},
		},
		"PG000 phase map": {
			why: "an entry that is never read misleads", code: "PG000",
			bad: one(toDone) + "  upgrade: {phaseMap: {Done: ⟦One}}\n", good: one(toDone) + "  upgrade: {phaseMap: {Finished: Done}}\n",
			contains: []string{"Done is a phase of this revision"},
		},

		"PG001 next":     {why: "an exit to nowhere", code: "PG001", bad: one("    timeout: {after: 1h, to: Done}\n    next: [{to: ⟦Dnoe, when: 'true'}]\n"), good: one(toDone), contains: []string{`phase "Dnoe" does not exist`}},
		"PG001 initial":  {why: "no beginning", code: "PG001", bad: strings.Replace(one(toDone+"    timeout: {after: 1h, to: One}\n"), "initial: One", "initial: ⟦on", 1), contains: []string{`initial phase "on" does not exist`}},
		"PG001 require":  {why: "a rejection to nowhere", code: "PG001", bad: one("    require: [{when: 'guards.a', else: ⟦No}]\n" + toDone), good: one("    require: [{when: 'guards.a', else: Done}]\n" + toDone), contains: []string{`phase "No" does not exist`}},
		"PG001 timeout":  {why: "late to nowhere", code: "PG001", bad: one("    timeout: {after: 1h, to: ⟦No}\n" + toDone), good: one("    timeout: {after: 1h, to: Done}\n" + toDone), contains: []string{`phase "No" does not exist`}},
		"PG001 retry":    {why: "giving up to nowhere", code: "PG001", bad: one("    retry: {attempts: 1, to: ⟦No}\n" + toDone), good: one("    retry: {attempts: 1, to: Done}\n" + toDone), contains: []string{`phase "No" does not exist`}},
		"PG001 onError":  {why: "caught to nowhere", code: "PG001", bad: one("    onError: [{is: '*', to: ⟦No}]\n" + toDone), good: one("    onError: [{is: '*', to: Done}]\n" + toDone), contains: []string{`phase "No" does not exist`}},
		"PG001 onDelete": {why: "deleted to nowhere", code: "PG001", bad: one("    steps:\n    - {action: Work, retry: {attempts: 1, to: ⟦No}}\n" + toDone), good: one("    steps:\n    - {action: Work, retry: {attempts: 1, to: Done}}\n" + toDone), contains: []string{`phase "No" does not exist`}},
		"PG001 upgrade":  {why: "adopted to nowhere", code: "PG001", bad: one(toDone) + "  upgrade: {phaseMap: {Old: ⟦No}}\n", good: one(toDone) + "  upgrade: {phaseMap: {Old: One}}\n", contains: []string{`phase "No" does not exist`}},

		"PG002": {
			why: "code that is never run is a mistake somewhere else", code: "PG002",
			bad: one(toDone) + "  - {name: ⟦Lost, terminal: failure, onDelete: {to: Out}}\n", good: one(toDone),
			contains: []string{"phase Lost is unreachable"},
		},
		"PG003": {
			why: "nothing would ever happen again", code: "PG003",
			bad: phases("  - name: ⟦One\n    poll: 5s\n    onDelete: {to: Out}\n    onError: [{is: '*', to: Done}]\n" + rest), good: one("    poll: 5s\n    onError: [{is: '*', to: Done}]\n" + toDone),
			contains: []string{"phase One is a dead end"},
		},
		"PG004 after an open exit": {
			why: "the first match wins", code: "PG004",
			bad: one("    poll: 5s\n    next:\n    - {to: Done}\n    - ⟦{to: Out, when: 'guards.a'}\n"), good: one("    next:\n    - {to: Out, when: 'guards.a'}\n    - {to: Done}\n"),
			contains: []string{"next[1] is never taken: next[0] is always open"},
		},
		"PG004 after a guard that is always true": {
			why: "it is as if there were none", code: "PG004",
			bad: one("    poll: 5s\n    next:\n    - {to: Done, when: 'true || guards.a'}\n    - ⟦{to: Out}\n"), good: one("    next:\n    - {to: Done, when: 'guards.a'}\n    - {to: Out}\n"),
			contains: []string{"next[1] is never taken: next[0] is always open"},
		},
		"PG004 same guard": {
			why: "the first match wins", code: "PG004",
			bad: one("    poll: 5s\n    next:\n    - {to: Done, when: 'guards.a'}\n    - ⟦{to: Out, when: 'guards.a'}\n"), good: one("    poll: 5s\n    next:\n    - {to: Done, when: 'guards.a'}\n    - {to: Out, when: 'guards.b'}\n"),
			contains: []string{"next[1] is never taken: next[0] has the same when"},
		},
		"PG008 missing": {
			why: "a deletion must have an answer everywhere", code: "PG008",
			bad: phases("  - name: ⟦One\n" + toDone + rest), good: one(toDone),
			contains: []string{"phase One does not say what a deletion does"},
		},
		"PG008 two answers": {
			why: "hold and go is not an answer", code: "PG008",
			bad: phases("  - name: One\n    onDelete: ⟦{to: Out, hold: no}\n" + toDone + rest), good: one(toDone),
			contains: []string{"exactly one of to, hold and immediate"},
		},
		"PG009": {
			why: "kubectl delete would hang for ever", code: "PG009",
			bad: one(toDone+"    timeout: {after: 1h, to: Trap}\n") + "  - {name: ⟦Trap, kind: steady, poll: 5s, onDelete: {hold: never}}\n", good: one(toDone+"    timeout: {after: 1h, to: Trap}\n") + "  - {name: Trap, kind: steady, poll: 5s, onDelete: {to: Out}}\n",
			contains: []string{"no end phase is reachable from Trap"},
		},
		"PG010 exit": {
			why: "every exit has a guard and nobody looks again", code: "PG010",
			bad: phases("  - name: ⟦One\n    onDelete: {to: Out}\n    next: [{to: Done, when: 'guards.a'}]\n" + rest), good: one("    poll: 5s\n    next: [{to: Done, when: 'guards.a'}]\n"),
			contains: []string{"phase One could sleep for ever"},
		},
		"PG010 stalled": {
			why: "Stalled is raised once, and then it sleeps all the same", code: "PG010",
			bad: phases("  - name: ⟦One\n    onDelete: {to: Out}\n    timeout: {after: 1h, stalled: Slow}\n    next: [{to: Done, when: 'guards.a'}]\n" + rest), good: one("    timeout: {after: 1h, to: Done}\n    steps:\n    - {action: Look, until: 'result.n > 1'}\n" + toDone),
			contains: []string{"phase One could sleep for ever"},
		},
		"PG015": {
			why: "libraries of state machines read the name as a callback", code: "PG015",
			bad: one("    next: [{to: enter_done}]\n") + "  - {name: ⟦enter_done, terminal: success, onDelete: {to: Out}, next: [{to: Done, when: 'request.go.pending'}]}\n", good: one("    next: [{to: Entered}]\n") + "  - {name: Entered, terminal: success, onDelete: {to: Out}, next: [{to: Done, when: 'request.go.pending'}]}\n",
			contains: []string{`"enter_done" is a reserved name`},
		},
		"PG015 shown": {
			why: "the API server refuses it in status.phase, and with it the whole status", code: "PG015",
			bad: one("    showAs: ⟦'not yet'\n" + toDone), good: one("    showAs: Not-yet\n" + toDone),
			contains: []string{`"not yet" cannot be shown`},
		},
		"PG015 shown by an effect": {
			why: "the same, as soon as the effect is held", code: "PG015",
			bad: strings.Replace(one(toDone), "release: Give", "release: Give, showAs: ⟦'not yet'", 1), good: strings.Replace(one(toDone), "release: Give", "release: Give, showAs: Not-yet", 1),
			contains: []string{`"not yet" cannot be shown`},
		},
		"PG000 finalizer": {
			why: "the API server would refuse the object with it, and nothing would move", code: "PG000",
			bad: strings.Replace(one(toDone), "test.phasegate.dev/f", "⟦test.phasegate.dev/", 1), good: one(toDone),
			contains: []string{`"test.phasegate.dev/" is no finalizer, and the API server refuses it`},
		},
		"PG017": {
			why: "without a finalizer the object is gone before its effects are", code: "PG017",
			bad:      header + "spec:\n  ⟦for: {apiVersion: v1, kind: ConfigMap}\n  initial: One\n  effects: [{name: lock, acquire: Take, release: Give}]\n  phases:\n  - name: One\n    onDelete: {to: Out}\n" + toDone + rest,
			good:     one(toDone),
			contains: []string{"no finalizer"},
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); c.check(t) })
	}
}

// A finalizer without a domain works, so that no machine stops for it; the API server warns, and so does lint.
func TestFinalizerWithoutADomain(t *testing.T) {
	def, diags := program.Load("m.yaml", []byte(strings.Replace(one(toDone), "test.phasegate.dev/f", "cleanup", 1)))
	if def == nil {
		t.Fatal(diags.Err())
	}
	m, diags := Bind(def, testBindings)
	var got []string
	for _, d := range diags {
		if d.Path == "spec.finalizer" {
			got = append(got, fmt.Sprint(d.Code, " ", d.Severity, ": ", d.Message))
		}
	}
	want := []string{`PG000 warning: finalizer "cleanup" has no domain: the API server warns of it, and another program may take it for its own`}
	if diff := cmp.Diff(want, got); diff != "" || m == nil {
		t.Errorf("machine %v, findings (-want +got):\n%s", m, diff)
	}
}
