package fsm

import (
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// MakeBindings has an action with an inverse, one whose inverse depends on a parameter, and one without.
func MakeBindings() program.Bindings {
	name := program.Param{Type: expr.TypeString, Required: true}
	return program.Bindings{Guards: map[string]string{"a": ""}, Actions: map[string]program.ActionSpec{
		"Make": {Params: map[string]program.Param{"manifest": {Type: expr.TypeObject, Required: true}, "force": {Type: expr.TypeBool}},
			Inverse: &program.Inverse{Action: "Unmake", With: map[string]string{"kind": "manifest.kind", "name": "manifest.metadata.name", "namespace": "manifest.metadata.namespace"}}},
		"Unmake": {Params: map[string]program.Param{"kind": name, "name": name, "namespace": {Type: expr.TypeString}}},
		"Set":    {Params: map[string]program.Param{"restore": {Type: expr.TypeBool}}, Inverse: &program.Inverse{Action: "Unset", If: "restore"}},
		"Unset":  {},
		"Nod":    {},
	}}
}

// Making takes an effect without a release: action is the acquire, and step the one that calls it.
func Making(action, step string) string {
	return spec(`  finalizer: test.phasegate.dev/f
  actions:
  - ` + action + `
  effects: [{name: thing, acquire: Acquire}]
  phases:
  - name: One
    poll: 5s
    steps: [` + step + `]
    next: [{to: Done, when: 'guards.a'}]
    onDelete: {to: Out}
  - {name: Done, terminal: success, keeps: [thing], onDelete: {to: Out}}
  - {name: Out, deletion: true, steps: [{undo: held}], next: [{to: End}]}
  - {name: End, deletion: true, end: true}
`)
}

func TestReleaseIsTheInverse(t *testing.T) {
	const (
		acquire = `{name: Acquire, use: Make, with: {manifest: {kind: A, metadata: {name: '${self.metadata.name}'}}}}`
		step    = `{action: Acquire}`
	)
	good := Making(acquire, step)
	for name, c := range map[string]badFile{
		"no inverse": {why: "nothing would release it", bad: strings.Replace(Making(`{name: Acquire, use: Nod}`, step), "acquire: Acquire", "acquire: ⟦Acquire", 1),
			good: strings.Replace(Making(`{name: Acquire, use: Nod}`, step), "acquire: Acquire", "acquire: Acquire, release: Unset", 1), contains: []string{"effect thing has no release, and action Nod has no inverse"}},
		"no inverse without the parameter": {why: "what was there is not on record", bad: strings.Replace(Making(`{name: Acquire, use: Set, with: {restore: false}}`, step), "acquire: Acquire", "acquire: ⟦Acquire", 1),
			good: Making(`{name: Acquire, use: Set, with: {restore: true}}`, step), contains: []string{"action Set has an inverse with restore: true only"}},
		"an expression is in the way": {why: "the file does not say what would be released", bad: Making(`{name: Acquire, use: Make, with: {manifest: ⟦'${self.spec.manifest}'}}`, step),
			good: good, contains: []string{"the release of thing cannot be made of an expression"}},
		"of another type": {why: "the release could not be called", bad: Making(`{name: Acquire, use: Make, with: {manifest: {kind: A, metadata: {name: ⟦'${1 + 1}'}}}}`, step),
			good: good, contains: []string{"parameter name of Unmake, which releases thing, is int"}},
		"a part is not there": {why: "the release needs it", bad: strings.Replace(Making(`{name: Acquire, use: Make, with: {manifest: {kind: A}}}`, step), "acquire: Acquire", "acquire: ⟦Acquire", 1),
			good: good, contains: []string{`action Unmake needs parameter "name"`}},
		"the step takes another": {why: "the release would be of the one that the named action says", bad: Making(acquire, `{action: Acquire, with: ⟦{manifest: {metadata: {name: other}}}}`),
			good: Making(acquire, `{action: Acquire, with: {force: true, manifest: {metadata: {labels: {a: b}}}}}`), contains: []string{"the step changes of Acquire what the release of thing is made of"}},
		"undone alone": {why: "the release has no name that a step could call", bad: Making(acquire, `{action: Acquire}, {undo: ⟦thing, name: Back}`), good: good, contains: []string{"not taken for each item"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.code, c.bindings = "PG005", MakeBindings()
			if name == "undone alone" {
				c.code = "PG000"
			}
			c.check(t)
		})
	}
}
