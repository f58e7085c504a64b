package fsm

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

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

func TestWhatFailWhenReads(t *testing.T) {
	deletion := func(failWhen string) string {
		return phases("  - {name: One, next: [{to: Out}], onDelete: {to: Out}}\n  - {name: Out, deletion: true, steps: [{action: Look, failWhen: '" + failWhen + "'}, {undo: held}], timeout: {after: 1h, to: End}, next: [{to: End}]}\n  - {name: End, deletion: true, end: true}\n")
	}
	read := testBindings
	read.Actions = map[string]program.ActionSpec{"Take": {}, "Give": {}, "Look": {Outputs: map[string]expr.Type{"n": expr.TypeInt, "object": expr.TypeObject}}}
	state := func(failWhen string) string {
		return strings.Replace(one("    poll: 5s\n    timeout: {after: 1h, to: Done}\n    steps: [{action: Look, failWhen: '"+failWhen+"'}]\n"+toDone), "  phases:", "  state: {n: {type: int}}\n  phases:", 1)
	}
	good := one("    steps: [{action: Look, failWhen: 'result.n > 1'}]\n    timeout: {after: 1h, to: Done}\n" + toDone)
	for name, c := range map[string]badFile{
		"no action":                    {why: "nothing answers", code: "PG000", bad: one("    steps: [{wait: 5s, failWhen: ⟦'true'}]\n    timeout: {after: 1h, to: Done}\n" + toDone), good: good, contains: []string{"failWhen is about what an action has answered"}},
		"no boolean":                   {why: "0 is not false", code: "PG007", bad: one("    steps: [{action: Look, failWhen: ⟦'result.n'}]\n    timeout: {after: 1h, to: Done}\n" + toDone), good: good, contains: []string{`guard "result.n" is int`}},
		"another object in a deletion": {why: "the deletion would fail for ever by it", code: "PG014", bindings: read, bad: strings.Replace(deletion("result.object.spec.x == 1"), "'result.object", "⟦'result.object", 1), good: deletion("result.n > 1"), contains: []string{"result.object is the content of another object"}},
		"state that has no value":      {why: "the step would be tried for ever", code: "PG023", bad: strings.Replace(state("state.n > 1"), "'state.n", "⟦'state.n", 1), good: state("has(state.n) && state.n > 1"), contains: []string{"state.n may not be assigned here"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestTheTimeThatAStepHas(t *testing.T) {
	phase := func(step, timeout string) string {
		return one("    poll: 5s\n    timeout: {after: 1h, " + timeout + "}\n    steps: [{" + step + "}]\n" + toDone)
	}
	good := phase("action: Look, timeout: 10m", "to: Done")
	for name, c := range map[string]badFile{
		"of a wait":   {why: "it ends by itself", code: "PG000", bad: phase("wait: 5s, timeout: ⟦10m", "to: Done"), good: good, contains: []string{"a wait ends by itself"}},
		"no duration": {why: "a number has no unit", code: "PG000", bad: phase("action: Look, timeout: ⟦'10'", "to: Done"), good: good, contains: []string{`"10" is not a positive duration`}},
		"too long":    {why: "it would never fail by this", code: "PG000", bad: phase("action: Look, timeout: ⟦1h", "to: Done"), good: phase("action: Look, timeout: 2h", "stalled: Slow"), contains: []string{"the step may take 1h, and its phase ends after 1h"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestDurationsOfExpressions(t *testing.T) {
	phase := func(step, timeout string) string {
		return one("    poll: 5s\n    timeout: {" + timeout + ", to: Done}\n    steps: [{action: Look}, {" + step + "}]\n" + toDone)
	}
	const after = "after: 1h"
	good := phase("wait: '${duration(self.spec.grace)}', max: 30m", "after: '${duration(self.spec.limit)}', max: 1h")
	for name, c := range map[string]badFile{
		"no bound":               {why: "an object could wait for ever", code: "PG000", bad: phase("wait: ⟦'${duration(self.spec.grace)}'", after), good: good, contains: []string{"a duration from an expression has no bound"}},
		"no bound of a deadline": {why: "it could never come", code: "PG000", bad: phase("wait: 5s", "after: ⟦'${duration(self.spec.limit)}'"), good: good, contains: []string{"a duration from an expression has no bound"}},
		"nothing to bound":       {why: "it would be read and mean nothing", code: "PG000", bad: phase("wait: 5s, max: ⟦10s", after), good: good, contains: []string{"max bounds a duration from an expression"}},
		"no deadline to bound":   {why: "the same", code: "PG000", bad: phase("wait: 5s", after+", max: ⟦2h"), good: good, contains: []string{"max bounds a duration from an expression"}},
		"a text":                 {why: "an expression alone has a type", code: "PG000", bad: phase("wait: ⟦'${self.spec.hours}h', max: 1h", after), good: good, contains: []string{`"${self.spec.hours}h" is a text, not a duration`}},
		"a number":               {why: "of what?", code: "PG006", bad: phase("wait: ⟦'${result.n}', max: 1h", after), good: phase("wait: '${duration(string(result.n) + \"m\")}', max: 1h", after), contains: []string{"result.n is int, not a duration"}},
		"the clock":              {why: "half of it would be over at each look", code: "PG000", bad: phase("wait: ⟦'${timestamp(self.spec.at) - now}', max: 1h", after), good: good, contains: []string{"it reads the clock"}},
		"a result in a deadline": {why: "there is none when the phase is entered", code: "PG006", bad: phase("wait: 5s", "after: '${result.⟦pause}', max: 1h"), good: good, contains: []string{"result"}},
		"its own result": {why: "the step has none yet", code: "PG006", bad: one("    timeout: {after: 1h, to: Done}\n    steps: [{action: Look, timeout: '${duration(string(result.⟦n))}', max: 1m}]\n" + toDone),
			good: phase("action: Look, name: Again, timeout: '${duration(string(result.n) + \"s\")}', max: 1m", after), contains: []string{"result"}},
		"a state value without one": {why: "the step would fail each time", code: "PG023",
			bad:  strings.Replace(phase("wait: ⟦'${state.pause}', max: 1h", after), "  phases:", "  state: {pause: {type: duration}}\n  phases:", 1),
			good: strings.Replace(phase("wait: '${state.pause}', max: 1h", after), "  phases:", "  state: {pause: {type: duration, initial: 5s}}\n  phases:", 1), contains: []string{"state.pause may not be assigned here"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func TestClassesThatAreNotRetried(t *testing.T) {
	phase := func(retry string) string {
		return one("    poll: 5s\n    timeout: {after: 1h, to: Done}\n    steps: [{action: Look, retry: {" + retry + "}}]\n" + toDone)
	}
	good := phase("nonRetryable: [Forbidden, Invalid], to: Done")
	for name, c := range map[string]badFile{
		"unknown":  {why: "a typo would be retried", code: "PG000", bad: phase("nonRetryable: [⟦Forbid]"), good: good, contains: []string{`unknown error class "Forbid"`}},
		"terminal": {why: "it never is", code: "PG000", bad: phase("nonRetryable: [Forbidden, ⟦Terminal]"), good: good, contains: []string{"a Terminal error is never retried"}},
		"any":      {why: "that has another name", code: "PG000", bad: phase("nonRetryable: [⟦'*']"), good: good, contains: []string{"* would be all classes"}},
		"twice":    {why: "one of them was meant to be another", code: "PG000", bad: phase("nonRetryable: [Invalid, ⟦Invalid]"), good: good, contains: []string{"Invalid is there twice"}},
		"none":     {why: "nothing would lead there", code: "PG000", bad: phase("nonRetryable: [], to: ⟦Done"), good: good, contains: []string{"retry.to without attempts or nonRetryable is never reached"}},
		"hot": {why: "what is not retried leads on at once", code: "PG103",
			bad:  phases("  - {name: One, steps: [{action: Look}], retry: {nonRetryable: [Invalid], to: ⟦Two}, next: [{to: Done, when: guards.a}], timeout: {after: 1h, to: Done}, onDelete: {to: Out}}\n  - {name: Two, next: [{to: One}], onDelete: {to: Out}}\n" + rest),
			good: phases("  - {name: One, poll: 5s, steps: [{action: Look}], retry: {nonRetryable: [Invalid], to: Two}, next: [{to: Done, when: guards.a}], timeout: {after: 1h, to: Done}, onDelete: {to: Out}}\n  - {name: Two, next: [{to: One}], onDelete: {to: Out}}\n" + rest), contains: []string{"phase One leads back to itself without ever waiting"}},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}
