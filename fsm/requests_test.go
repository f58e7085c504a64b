package fsm

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func TestAnnotationOf(t *testing.T) {
	cases := map[string]struct{ why, expr, want string }{
		"Optional":  {why: "as the shipped machines write it", expr: `self.metadata.?annotations[?"a.b/c"].orValue("")`, want: "a.b/c"},
		"Plain":     {why: "an index without a fall-back", expr: `self.metadata.annotations["a.b/c"]`, want: "a.b/c"},
		"Selected":  {why: "a key that is a name may be selected", expr: `self.metadata.?annotations.?again.orValue("")`, want: "again"},
		"Inside":    {why: "the annotation may be deep in the expression", expr: `"x" + string(self.metadata.annotations["again"])`, want: "again"},
		"First":     {why: "there is one token, and the first is as good a guess as any", expr: `self.metadata.annotations["a"] + self.metadata.annotations["b"]`, want: "a"},
		"Label":     {why: "labels are no annotations", expr: `self.metadata.?labels[?"a"].orValue("")`},
		"Template":  {why: "the annotations of a pod template are not the object's", expr: `self.spec.template.metadata.annotations["a"]`},
		"Computed":  {why: "a key that is not written out cannot be written for the user", expr: `self.metadata.annotations[self.metadata.name]`},
		"Spec":      {why: "a token may come from the spec", expr: `string(self.spec.restart)`},
		"Malformed": {why: "what does not parse reads nothing", expr: `self.`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := expr.AnnotationOf(tc.expr); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.why, got, tc.want)
			}
		})
	}
}

const gateMachine = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: gate}
spec:
  for: {apiVersion: example.org/v1, kind: Gate}
  initial: Closed
  requests:
  - name: approve
    token: 'self.metadata.?annotations[?"example.org/approve"].orValue("")'
    valid: 'token.startsWith("2026")'
    params: {strategy: 'self.metadata.?annotations[?"example.org/strategy"].orValue("slow")', size: 'self.spec.size'}
  - {name: retry, token: 'string(self.spec.retry)'}
  phases:
  - name: Closed
    steps: [{action: Look, until: 'request.approve.pending', poll: 5s}]
    next: [{to: Open}]
    retry: {attempts: 3, to: Broken}
    onDelete: {immediate: true}
  - {name: Open, terminal: success, next: [{to: Closed, when: 'request.approve.pending'}], onDelete: {immediate: true}}
  - {name: Broken, terminal: failure, next: [{to: Closed, when: 'request.retry.pending'}], onDelete: {immediate: true}}
`

func gate(t *testing.T) *Machine {
	t.Helper()
	def, diags := program.Load("gate.yaml", []byte(gateMachine))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	m, diags := Bind(def, program.Bindings{Actions: map[string]program.ActionSpec{"Look": {}}})
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRequests(t *testing.T) {
	want := []Request{
		{Name: "approve", Annotation: "example.org/approve", Params: map[string]string{"strategy": "example.org/strategy"}, Phases: []string{"Closed", "Open"}},
		{Name: "retry", Params: map[string]string{}, Phases: []string{"Broken"}},
	}
	if diff := cmp.Diff(want, gate(t).Requests()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A token that was acted on is never acted on again, whichever came after it.
func TestTokensAreActedOnOnce(t *testing.T) {
	const t1, t2, t3 = "2026-11-24T10:00:00Z", "2026-11-24T12:00:00+01:00", "2026-11-24T12:00:00Z"
	many := []string{"first"}
	for i := range 100 {
		many = append(many, fmt.Sprint("token ", i))
	}
	cases := map[string]struct {
		why   string
		acted []string
		token string
		want  bool
	}{
		"the last":              {"a request is acted on once", []string{"a", "b"}, "b", false},
		"one before":            {"somebody puts an older manifest in place", []string{"a", "b"}, "a", false},
		"another":               {"another token is another request", []string{"a", "b"}, "c", true},
		"a later time":          {"the zone does not matter", []string{t1}, t2, true},
		"an earlier time":       {"as a manifest of before has", []string{t1, t2, t3}, t2, false},
		"the same in a zone":    {"it is the same moment", []string{t2}, "2026-11-24T11:00:00Z", false},
		"a time after a word":   {"the two are not compared", []string{t3, "a"}, "2026-11-24T13:00:00Z", true},
		"a time before a word":  {"the latest time is remembered across words", []string{t3, "a", "b"}, t1, false},
		"never used, but older": {"it cannot be told from one that was acted on", []string{t3}, t2, false},
		"a word after a time":   {"words are remembered across times", []string{"a", t1, t2}, "a", false},
		"within the bound":      {"32 are remembered beside the last", many, "token 67", false},
		"beyond the bound":      {"the status has room for no more: write times", many, "first", true},
		"time beyond the bound": {"of times the latest is enough", append([]string{t3}, many...), t1, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			q := v1alpha1.RequestStatus{}
			for _, token := range c.acted {
				q = after("approve", token, marks(q))
			}
			if got := !acted(q, c.token); got != c.want {
				t.Errorf("%s: new is %t, want %t, of %+v", c.why, got, c.want, q)
			}
			if len(q.Earlier) > 1024 {
				t.Errorf("%d bytes are stored", len(q.Earlier))
			}
		})
	}
}

func TestAccepts(t *testing.T) {
	done := v1alpha1.MachineStatus{Requests: []v1alpha1.RequestStatus{{Name: "approve", Token: "2026-1"}}}
	cases := map[string]struct {
		why, request, token string
		st                  v1alpha1.MachineStatus
		want                bool
	}{
		"New":     {why: "valid, and nothing was acted on before", request: "approve", token: "2026-1", want: true},
		"Newer":   {why: "another token is another request", request: "approve", token: "2026-2", st: done, want: true},
		"Done":    {why: "a request is acted on once", request: "approve", token: "2026-1", st: done},
		"Invalid": {why: "valid refuses it", request: "approve", token: "1999"},
		"Empty":   {why: "no token is no request", request: "approve"},
		"Other":   {why: "each request has its own tokens; without valid all are valid", request: "retry", token: "2026-1", st: done, want: true},
		"Unknown": {why: "the machine has no such request", request: "restart", token: "2026-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := gate(t).Accepts(tc.request, tc.token, tc.st, nil); got != tc.want {
				t.Errorf("%s: %v", tc.why, got)
			}
		})
	}
}
