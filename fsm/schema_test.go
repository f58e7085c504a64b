package fsm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// jobSchema is what a CRD could say of its objects.
const jobSchema = `{"type": "object", "required": ["spec"], "properties": {
  "spec": {"type": "object", "required": ["size"], "properties": {
    "size": {"type": "integer"}, "go": {"type": "string"}, "mode": {"type": "string", "maxLength": 9, "default": "a"}, "of": {"type": "object", "properties": {"kind": {"type": "string"}}},
    "name": {"type": "string", "maxLength": 40},
    "share": {"type": "number"},
    "after": {"type": "string", "format": "date-time"},
    "port": {"x-kubernetes-int-or-string": true},
    "max-age": {"type": "string", "format": "duration"},
    "parts": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
      "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 63}, "ready": {"type": "boolean"}}}},
    "many": {"type": "array", "maxItems": 10000, "items": {"type": "string", "maxLength": 100}},
    "free": {"type": "array", "items": {"type": "string"}}}}}}`

func jobBindings(t testing.TB) program.Bindings {
	t.Helper()
	s, err := expr.NewSchema([]byte(jobSchema))
	if err != nil {
		t.Fatal(err)
	}
	b := testBindings
	b.Self = s
	return b
}

func TestExpressionsAreTyped(t *testing.T) {
	for name, c := range map[string]badFile{
		"field of self": {
			why: "a typo in the spec would keep the guard closed for ever", code: "PG006",
			bad: guarded(`'self.spec.⟦sise > 3'`), good: guarded(`'self.spec.size > 3'`), contains: []string{`self.spec has no field "sise"`},
		},
		"optional field of self": {
			why: "optional is a field that may be missing, not one that nobody knows", code: "PG006",
			bad: guarded(`'self.spec.?⟦nme.orValue("") == ""'`), good: guarded(`'self.spec.?name.orValue("") == ""'`), contains: []string{`self.spec has no field "nme"`},
		},
		"type of self": {
			why: "a number is never a text", code: "PG006",
			bad: guarded(`'self.spec.size ⟦== "3"'`), good: guarded(`'self.spec.size == 3'`), contains: []string{"== has a value of type int on its left and one of type string on its right"},
		},
		"element of self": {
			why: "lists are typed too", code: "PG006",
			bad: guarded(`'self.spec.parts.all(p, p⟦.redy)'`), good: guarded(`'self.spec.parts.all(p, p.ready)'`), contains: []string{"undefined field 'redy'"},
		},
		"metadata": {
			why: "every object has the same", code: "PG006",
			bad:      guarded(`'self.metadata.⟦lables["a"] == "b"'`),
			good:     guarded(`'self.metadata.labels["a"] == "b" && self.metadata.creationTimestamp < now && "x" in self.metadata.finalizers && self.metadata.ownerReferences.exists(o, o.controller)'`),
			contains: []string{`self.metadata has no field "lables"`},
		},
		"everything wrong": {
			why: "one lint run, all findings", code: "PG006",
			bad:      guarded(`'self.spec.⟦sise > 3 && result.⟦m == 1 && result.n ⟦== "a"'`),
			good:     guarded(`'self.spec.size > 3 && result.n >= 1 && result.n <= 2'`),
			contains: []string{`self.spec has no field "sise"`, "result.m is an output of no step", "== has a value of type int on its left and one of type string on its right"},
		},
		"result": {
			why: "the action declares it", code: "PG006",
			bad: guarded(`'result.n ⟦== "three"'`), good: guarded(`'result.n == 3 && result.list.exists(s, s.startsWith("x"))'`), contains: []string{"== has a value of type int on its left and one of type string on its right"},
		},
		"phase": {
			why: "a phase has a name, an age and attempts", code: "PG006",
			bad: guarded(`'phase.⟦nmea == "One"'`), good: guarded(`'phase.name == "One" && phase.attempts < 3 && phase.age > duration("1s")'`), contains: []string{`phase has no field "nmea"`},
		},
		"request": {
			why: "a request has three parts", code: "PG006",
			bad: guarded(`'request.go.⟦pendign'`), good: guarded(`'request.go.pending && request.go.token != ""'`), contains: []string{`request.go has no field "pendign"`},
		},
		"params of a request": {
			why: "they have the types of their expressions", code: "PG006",
			bad:      spec("  requests: [{name: go, token: 'self.metadata.name', params: {n: 'self.spec.size'}, valid: 'true'}]\n  variables: [{name: f, expr: '1'}]\n  phases:\n  - {name: One, terminal: failure, onDelete: {immediate: true}, next: [{to: Done, when: 'request.go.pending && request.go.params.n ⟦== \"a\"'}]}\n  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"),
			good:     spec("  requests: [{name: go, token: 'self.metadata.name', params: {n: 'self.spec.size'}, valid: 'true'}]\n  variables: [{name: f, expr: '1'}]\n  phases:\n  - {name: One, terminal: failure, onDelete: {immediate: true}, next: [{to: Done, when: 'request.go.pending && request.go.params.n == variables.f'}]}\n  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"),
			contains: []string{"== has a value of type int on its left and one of type string on its right"},
		},
		"variable": {
			why: "a variable has the type of its expression", code: "PG007",
			bad:      spec("  variables: [{name: f, expr: 'self.spec.size'}]\n  phases:\n  - {name: One, poll: 5s, onDelete: {immediate: true}, next: [{to: Done, when: ⟦'variables.f'}]}\n  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"),
			good:     spec("  variables: [{name: f, expr: 'self.spec.size > 3'}]\n  phases:\n  - {name: One, poll: 5s, onDelete: {immediate: true}, next: [{to: Done, when: 'variables.f'}]}\n  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"),
			contains: []string{"is int, not a boolean"},
		},
		"a variable that does not compile": {
			why: "one mistake is one finding", code: "PG006",
			bad:      spec("  variables: [{name: f, expr: 'self.spec.⟦sise > 3'}]\n  phases:\n  - {name: One, poll: 5s, onDelete: {immediate: true}, next: [{to: Done, when: 'variables.f'}]}\n  - {name: Done, terminal: success, onDelete: {immediate: true}}\n"),
			contains: []string{`no field "sise"`},
		},
		"results of an action that is not known": {
			why: "one mistake is one finding", code: "PG005",
			bad: one("    poll: 5s\n    steps: [{action: ⟦Loko, until: 'result.n > 3'}]\n" + toDone), contains: []string{`action "Loko" is not known`},
		},
		"parameter": {
			why: "the action would refuse it each time", code: "PG005",
			bad:      one("    poll: 5s\n    steps: [{action: Look}, {action: Work, with: {count: ⟦'${result.list}', text: ⟦'${result.n}', after: ⟦'${result.n > 1}'}}]\n" + toDone),
			good:     one("    poll: 5s\n    steps: [{action: Look}, {action: Work, with: {count: '${result.n}', text: 'n ${result.n}', after: '${duration(\"1s\")}'}}]\n" + toDone),
			contains: []string{"parameter count of Work is list(string), never of type int", "parameter text of Work is int, never of type string", "parameter after of Work is bool, never of type duration"},
		},
		"text around a number": {
			why: "more than one expression is a text", code: "PG005",
			bad:  one("    poll: 5s\n    steps: [{action: Look}, {action: Work, with: {count: ⟦'${result.n}0'}}]\n" + toDone),
			good: one("    poll: 5s\n    steps: [{action: Look}, {action: Work, with: {count: '${result.n * 10}'}}]\n" + toDone), contains: []string{"is string, never of type int"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.bindings = jobBindings(t)
			c.check(t)
		})
	}
}

func TestValuesOfSelf(t *testing.T) {
	self := map[string]any{
		"metadata": map[string]any{"name": "a", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": map[string]any{"x/y": "1"}},
		"spec": map[string]any{
			"size": int64(3), "share": int64(2), "after": "2026-01-02T00:00:00Z", "port": "http", "max-age": "90s",
			"parts": []any{map[string]any{"name": "a", "ready": true}, map[string]any{"name": "b", "ready": false}},
		},
	}
	for name, c := range map[string]struct {
		why, when string
		want      verdict
	}{
		"date":          {"a date is a time", `self.spec.after - self.metadata.creationTimestamp == duration("24h")`, verdict{open: true}},
		"duration":      {"a duration too, and names that CEL cannot write are escaped", `self.spec.max__dash__age > duration("1m")`, verdict{open: true}},
		"word of CEL":   {"as it is written without a schema", `self.metadata.namespace == "b"`, verdict{because: `self.metadata.namespace == "b"`, got: `self.metadata.namespace = "a"`}},
		"number":        {"2 is a number where the schema says so", `self.spec.share * 1.5 == 3.0`, verdict{open: true}},
		"int or string": {"it is what it is", `self.spec.port == "http"`, verdict{open: true}},
		"keyed list":    {"its order does not matter", `self.spec.parts == self.spec.parts.map(p, p)`, verdict{open: true}},
		"element":       {"the one that decided", `self.spec.parts.all(p, p.ready)`, verdict{because: `self.spec.parts.all(p, p.ready)`, got: "p.ready = false"}},
		"annotation":    {"maps have any key", `self.metadata.annotations["x/y"] == "2"`, verdict{because: `self.metadata.annotations["x/y"] == "2"`, got: `self.metadata.annotations["x/y"] = "1"`}},
		"absent":        {"an optional field that is not there keeps the guard closed, and says so", `self.spec.name == "x"`, verdict{because: `self.spec.name == "x"`, got: "error: no such key: name"}},
		"asked for":     {"or has a value instead", `self.spec.?name.orValue("x") == "y"`, verdict{because: `self.spec.?name.orValue("x") == "y"`, got: "self.spec.name = none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def, diags := program.Load("test.yaml", []byte(guarded("'"+c.when+"'")))
			if len(diags) > 0 {
				t.Fatal(diags.Err())
			}
			m, diags := Bind(def, jobBindings(t))
			if diags.Err() != nil {
				t.Fatal(diags.Err())
			}
			r := m.Run(v1alpha1.MachineStatus{Phase: "One"}, Observation{Self: StaticObject(self), Now: time.Now})
			got := r.truth(t.Context(), r.phase().Exits[0].WhenExpr)
			if d := cmp.Diff([]any{c.want.open, c.want.because, c.want.got}, []any{got.open, got.because, got.got}); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}

func TestSchemasThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "{", "no schema": `{"properties": 3}`} {
		if _, err := expr.NewSchema([]byte(text)); err == nil {
			t.Errorf("%s: %s is taken", name, text)
		}
	}
}

// A deletion that reads what is not there never ends, and people delete objects that they have only half filled in.
func TestDeletionReadsWhatMayBeMissing(t *testing.T) {
	for name, c := range map[string]struct{ why, step, want string }{
		"until":          {"nothing is true of it", "action: Work, until: 'self.spec.name == \"a\"'", "self.spec.name may be missing"},
		"parameter":      {"the action is never called", "action: Work, with: {any: '${self.spec.name}'}", "self.spec.name may be missing"},
		"if":             {"neither is the step skipped", "action: Work, if: 'self.spec.name == \"a\"'", "self.spec.name may be missing"},
		"required":       {"the API server sees to it", "action: Work, if: 'self.spec.size > 1'", ""},
		"default":        {"it is always there", "action: Work, if: 'self.spec.mode == \"a\"'", ""},
		"asked for":      {"the author knows", "action: Work, if: 'has(self.spec.name) && self.spec.name == \"a\"'", ""},
		"optional":       {"the author says what counts then", "action: Work, if: 'self.spec.?name.orValue(\"\") == \"a\"'", ""},
		"by a variable":  {"the same through another", "action: Work, if: 'variables.named'", "self.spec.name may be missing"},
		"asked too late": {"has() needs what is before its last name", "action: Work, if: 'has(self.spec.of.kind)'", "self.spec.of may be missing"},
		"metadata":       {"the API server fills it in", "action: Work, if: 'self.metadata.name == \"a\"'", ""},
		"in a text":      {"it shows as ?", "action: Work, message: 'of ${self.spec.name}'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := spec("  finalizer: test.phasegate.dev/f\n  variables: [{name: named, expr: 'self.spec.name == \"a\"'}]\n  phases:\n" +
				"  - {name: One, next: [{to: Done}], timeout: {after: 1h, to: Done}, onDelete: {to: Leaving}}\n" +
				"  - {name: Done, terminal: success, onDelete: {to: Leaving}}\n" +
				"  - {name: Leaving, deletion: true, steps: [{" + c.step + "}], next: [{to: End}], timeout: {after: 1h, stalled: Slow}}\n  - {name: End, deletion: true, end: true}\n")
			var got []string
			for _, d := range load(file, jobBindings(t)) {
				got = append(got, d.Code+": "+d.Message)
			}
			var want []string
			if c.want != "" {
				want = []string{"PG109: " + c.want + ": then this is an error each time, and the deletion waits for ever"}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}
