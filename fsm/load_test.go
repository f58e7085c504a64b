package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// finding is a diagnostic without its fix, which is for people to judge.
type finding struct {
	Code    string
	Pos     diag.Pos
	Message string
}

// mark stands in a bad file where the finding must point to.
const mark = "⟦"

// expected takes the marks out of a bad file: one finding per mark, in order.
func expected(bad string) (file string, places []diag.Pos) {
	line, column := 1, 1
	var b strings.Builder
	for _, r := range bad {
		if string(r) == mark {
			places = append(places, diag.Pos{Line: line, Column: column})
			continue
		}
		b.WriteRune(r)
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return b.String(), places
}

func load(file string, b program.Bindings) diag.Diagnostics {
	def, diags := program.Load("test.yaml", []byte(file))
	if len(diags) == 0 {
		_, diags = Bind(def, b)
	}
	return diags
}

// badFile is a file with one defect and the same file without it.
type badFile struct {
	why       string
	bad, good string
	code      string
	contains  []string         // one per mark
	bindings  program.Bindings // testBindings when there are none
}

func (c badFile) check(t *testing.T) {
	t.Helper()
	if c.bindings.Actions == nil {
		c.bindings = testBindings
	}
	file, places := expected(c.bad)
	var want, got []finding
	for i, p := range places {
		want = append(want, finding{c.code, p, c.contains[i]})
	}
	for i, d := range c.findings(file) {
		f := finding{d.Code, d.Pos, d.Message}
		if i < len(c.contains) && strings.Contains(d.Message, c.contains[i]) {
			f.Message = c.contains[i]
		}
		if d.File != "test.yaml" || d.Fix == "" {
			t.Errorf("%s: a finding without file or fix: %+v", c.why, d)
		}
		got = append(got, f)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: findings (-want +got):\n%s", c.why, d)
	}
	if c.good == "" {
		return
	}
	if diags := c.findings(c.good); len(diags) > 0 {
		t.Errorf("%s: the repaired file has findings: %v", c.why, diags)
	}
}

// findings are the errors; a case about a warning sees those of its code too.
func (c badFile) findings(file string) diag.Diagnostics {
	return slices.DeleteFunc(load(file, c.bindings), func(d diag.Diagnostic) bool {
		return d.Severity == diag.SeverityWarning && d.Code != c.code
	})
}

// spec is a whole file around some lines of its spec.
func spec(lines string) string {
	return header + `spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
` + lines
}

const onePhase = `  phases:
  - {name: One, terminal: success, onDelete: {immediate: true}}
`

func TestLoadReadsStrictly(t *testing.T) {
	for name, c := range map[string]badFile{
		"unknown field": {
			why: "a misspelled field must not be ignored", code: "PG000",
			bad:      spec("  ⟦finaliser: x.dev/y\n" + onePhase),
			good:     spec("  finalizer: x.dev/y\n" + onePhase),
			contains: []string{`unknown field "finaliser" in spec`},
		},
		"unknown field inside a list": {
			why: "the column is that of the key, in a flow mapping too", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, terminal: success, ⟦ondelete: {immediate: true}, onDelete: {immediate: true}}\n"),
			good:     spec(onePhase),
			contains: []string{`unknown field "ondelete" in spec.phases[0]`},
		},
		"other case": {
			why: "JSON decoding alone would take it", code: "PG000",
			bad:      spec("  ⟦Finalizer: x.dev/y\n" + onePhase),
			contains: []string{`unknown field "Finalizer"`},
		},
		"duplicate key": {
			why: "the second would win silently", code: "PG000",
			bad:      spec("  ⟦initial: One\n" + onePhase),
			good:     spec(onePhase),
			contains: []string{`duplicate key "initial": it is in line `},
		},
		"duplicate key in free data": {
			why: "with is free, but not that free", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {count: 1, ⟦count: 2}}], onDelete: {immediate: true}}\n"),
			good:     spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {count: 1}}], onDelete: {immediate: true}}\n"),
			contains: []string{`duplicate key "count"`},
		},
		"anchor and alias": {
			why: "an alias bomb grows without a limit", code: "PG000",
			bad:      spec("  watch:\n  - ⟦&w {apiVersion: v1, kind: Pod}\n  - ⟦*w\n" + onePhase),
			good:     spec("  watch:\n  - {apiVersion: v1, kind: Pod}\n" + onePhase),
			contains: []string{"anchors and aliases", "anchors and aliases"},
		},
		"merge key": {
			why: "it is an alias by another name", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {⟦<<: {count: 1}}}], onDelete: {immediate: true}}\n"),
			contains: []string{"a key must be a plain text"},
		},
		"key that is no text": {
			why: "1: and \"1\": must not be the same", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {⟦1: 2}}], onDelete: {immediate: true}}\n"),
			contains: []string{"a key must be a plain text"},
		},
		"two documents": {
			why: "one file, one machine", code: "PG000",
			bad:      spec(onePhase) + "⟦---\na: b\n",
			contains: []string{"more than one document"},
		},
		"empty":        {why: "nothing is not a machine", code: "PG000", bad: "⟦", contains: []string{"the file is empty"}},
		"comment only": {why: "nothing is not a machine", code: "PG000", bad: "⟦# nothing\n", contains: []string{"the file is empty"}},
		"syntax error": {
			why: "nothing closes it", code: "PG000",
			bad: header + "⟦spec: {\n", contains: []string{"yaml: "},
		},
		"indentation": {
			why: "the parser names the line in which the block begins", code: "PG000",
			bad: spec("  phases:\n  - name: One\n    poll: 1s\n⟦   terminal: success\n"), contains: []string{"yaml: did not find expected key"},
		},
		"syntax error behind a long value": {
			why: "a value of several lines is whole only with its last one", code: "PG000",
			bad: spec("  phases:\n  - {name: One,\n     poll: 1s,\n     terminal: success}\n⟦ - {name: Two}\n"), contains: []string{"yaml: did not find expected key"},
		},
		"text where a mapping belongs": {
			why: "the type is checked before decoding", code: "PG000",
			bad: header + "spec: ⟦hello\n", contains: []string{"spec must be a mapping"},
		},
		"mapping where a list belongs": {
			why: "the type is checked before decoding", code: "PG000",
			bad: spec("  phases: ⟦{name: One}\n"), contains: []string{"spec.phases must be a list"},
		},
		"number where a text belongs": {
			why: "5 is not 5s", code: "PG000",
			bad:      spec("  defaults: {poll: ⟦5}\n" + onePhase),
			good:     spec("  defaults: {poll: 5s}\n" + onePhase),
			contains: []string{"spec.defaults.poll must be a text"},
		},
		"null where a text belongs": {
			why: "an empty value is a forgotten one", code: "PG000",
			bad:      spec("  finalizer: ⟦null\n" + onePhase),
			contains: []string{"spec.finalizer must be a text"},
		},
		"text where a truth value belongs": {
			why: "yes is a text in YAML 1.2 and true in 1.1", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, terminal: success, onDelete: {immediate: ⟦yes}}\n"),
			good:     spec("  phases:\n  - {name: One, terminal: success, onDelete: {immediate: true}}\n"),
			contains: []string{"onDelete.immediate must be true or false"},
		},
		"attempts out of range": {
			why: "the decoder behind has no column", code: "PG000",
			bad:      spec("  defaults: {retry: {attempts: ⟦3000000000}}\n" + onePhase),
			good:     spec("  defaults: {retry: {attempts: 3}}\n" + onePhase),
			contains: []string{"attempts must be a whole number"},
		},
		"factor that is no number": {
			why: "no comparison with NaN is ever true", code: "PG000",
			bad:      spec("  defaults: {retry: {factor: ⟦.nan}}\n" + onePhase),
			good:     spec("  defaults: {retry: {factor: 3}}\n" + onePhase),
			contains: []string{"factor must be a number"},
		},
		"empty value in free data": {
			why: "it was forgotten; a null that is written out removes a field in a merge patch", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {any: {a: ⟦}}}], onDelete: {immediate: true}}\n"),
			good:     spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {any: {a: null}}}], onDelete: {immediate: true}}\n"),
			contains: []string{"with.any.a must be a text"},
		},
		"date in free data": {
			why: "it would reach the action as another text", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {text: ⟦2026-01-01}}], onDelete: {immediate: true}}\n"),
			good:     spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {text: '2026-01-01'}}], onDelete: {immediate: true}}\n"),
			contains: []string{"with.text must be a text"},
		},
		"missing fields": {
			why: "a field without which nothing works is asked for where it belongs", code: "PG000",
			bad:      header + "spec:\n  ⟦initial: One\n  phases:\n  - ⟦{terminal: success, onDelete: {immediate: true}}\n",
			contains: []string{"spec has no for", "spec.phases[0] has no name"},
		},
		"empty required field": {
			why: "an exit to nowhere would stall the machine when it is taken", code: "PG000",
			bad:      spec("  phases:\n  - {name: One, poll: 1s, next: [{to: ⟦''}], onDelete: {immediate: true}}\n"),
			contains: []string{"next[0].to is empty"},
		},
		"other kind": {
			why: "a kind registry is not a machine", code: "PG000",
			bad:      "apiVersion: ⟦phasegate.dev/v2\n" + strings.SplitN(spec(onePhase), "\n", 2)[1],
			good:     spec(onePhase),
			contains: []string{`apiVersion "phasegate.dev/v2"`},
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); c.check(t) })
	}
}

func TestLoadIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		why, file, contains string
	}{
		"oversize":    {"256 KiB is enough for any machine", spec(onePhase) + "#" + strings.Repeat("x", diag.MaxFileSize), "more than 262144"},
		"deep":        {"with may hold anything, but not any depth", spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}}], onDelete: {immediate: true}}\n"), "32 levels"},
		"many values": {"a list of nothing is still work", spec("  phases:\n  - {name: One, kind: steady, poll: 1s, steps: [{action: Work, with: {a: [" + strings.Repeat("1,", 30_000) + "]}}], onDelete: {immediate: true}}\n"), "more than 20000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			diags := load(c.file, testBindings)
			if len(diags) != 1 || diags[0].Code != "PG000" || !strings.Contains(diags[0].Message, c.contains) {
				t.Errorf("%s: got %v", c.why, diags)
			}
		})
	}
}

func TestScalarsAreReadAsYAML12(t *testing.T) {
	def, diags := program.Load("test.yaml", []byte(spec("  phases:\n  - {name: yes, description: on, terminal: success, message: 1:30, onDelete: {immediate: true}}\n  - {name: One, poll: 5s, next: [{to: yes}], onDelete: {immediate: true}}\n")))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	p := def.Spec.Phases[0]
	if got, want := []string{p.Name, p.Description, p.Message}, []string{"yes", "on", "1:30"}; cmp.Diff(want, got) != "" {
		t.Errorf("a text without quotes must stay as it is written: got %q, want %q", got, want)
	}
}

func TestExampleOfTheDocumentation(t *testing.T) {
	_, text, _ := strings.Cut(string(ReadFile(t, "../docs/machine-format.md")), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	def, diags := program.Load("machine-format.md", []byte(text))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	b := program.Bindings{Actions: map[string]program.ActionSpec{"TryHandle": {Outputs: map[string]expr.Type{"turned": expr.TypeBool}}}}
	if _, diags := Bind(def, b); len(diags) > 0 {
		t.Error(diags)
	}
}

const header = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: test}
`

// testBindings are for small machines: Take and Give are an effect's, Look's
// outputs are free.
var testBindings = program.Bindings{
	Guards: map[string]string{"a": "", "b": ""},
	Actions: map[string]program.ActionSpec{
		"Look":  {Outputs: map[string]expr.Type{"n": expr.TypeInt, "list": expr.TypeStrings}},
		"Work":  {Params: map[string]program.Param{"count": {Type: expr.TypeInt}, "text": {Type: expr.TypeString}, "after": {Type: expr.TypeDuration}, "any": {Type: expr.TypeAny}}},
		"Take":  {},
		"Give":  {},
		"Take2": {},
		"Give2": {},
	},
}
