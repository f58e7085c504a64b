package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/lint"
)

// found lints a machine of the built-in actions, and answers its findings but those of some codes.
func found(t *testing.T, file string, but ...string) (all []string) {
	t.Helper()
	report, err := lint.Check([]lint.File{{Name: "m.yaml", Data: []byte(file)}}, lint.Options{Bindings: lint.Known{}.Bindings, Kinds: lint.Known{}.Kinds})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Findings {
		if !strings.Contains(fmt.Sprint(but), d.Code) {
			all = append(all, fmt.Sprintf("%s: %s: %s", d.Code, d.Message, d.Fix))
		}
	}
	return all
}

const readingMachine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: reading}
spec:
  for: {apiVersion: example.com/v1, kind: Reading}
  initial: Reading
  phases:
  - name: Reading
    steps:
    - {name: Deployment, action: ReadObject, with: {apiVersion: apps/v1, kind: Deployment, name: a%s}, until: '%s'}
    - {name: Service, action: ReadObject, with: {apiVersion: v1, kind: Service, name: a, fields: [spec]}%s}
    next: [{to: Done, when: '%s'}]
    poll: 5s
    timeout: {after: 1h, to: Failed}
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
  - {name: Failed, terminal: failure, onDelete: {immediate: true}}
`

// What is read of another object is there in its kind, and among the fields that are read.
func TestWhatIsReadOfAnotherObject(t *testing.T) {
	const replicas = ", fields: [spec.replicas, metadata.annotations, spec.selector]"
	cases := map[string]struct {
		why                        string
		fields, until, skips, when string
		want                       []string
	}{
		"there":          {why: "nothing is wrong", fields: replicas, until: `result.object.spec.replicas == 3 && result.object.metadata.?annotations[?"a/b"].orValue("") == ""`},
		"in a map":       {why: "any name may be in it", fields: replicas, until: `result.object.spec.selector.matchLabels.app == "a" && result.object.spec.size() > 0`},
		"by default":     {why: "the status", until: `result.object.status.readyReplicas == result.object.metadata.generation`},
		"without a path": {why: "it is an object, as it always was", until: `result.object == {}`},
		"misspelt": {why: "it would never be there", fields: replicas, until: `result.object.spec.replica == 3`,
			want: []string{"PG006: result.object: a Deployment has no field spec.replica: did you mean replicas?"}},
		"misspelt, optional": {why: "it would always be the other", fields: replicas, until: `result.object.spec[?"replica"].orValue(1) == 3`,
			want: []string{"PG006: result.object: a Deployment has no field spec.replica: did you mean replicas?"}},
		"not read": {why: "the step does not keep it", fields: replicas, until: `has(result.object.spec.paused)`,
			want: []string{"PG006: result.object never has spec.paused: the step reads spec.replicas, metadata.annotations, spec.selector: add spec.paused to fields: of the step"}},
		"not read by default": {why: "the spec is not", until: `result.object.spec.replicas == 3`,
			want: []string{"PG006: result.object never has spec.replicas: the step reads metadata.generation, status: add spec.replicas to fields: of the step"}},
		"no object": {why: "nothing is in a number", fields: replicas, until: `result.object.spec.replicas.min == 3`,
			want: []string{"PG006: result.object: spec.replicas of a Deployment is a whole number, which has no field min: correct the value"}},
		"through a list": {why: "what is read of each of its objects is in it", fields: ", fields: ['spec.template.spec.containers[*].image']", until: `result.object.spec.template.spec.containers.exists(c, c.image == "a")`},
		"beside a list": {why: "the step does not keep it", fields: ", fields: ['spec.template.spec.containers[*].image']", until: `result.object.spec.template.spec.volumes.size() > 0`,
			want: []string{"PG006: result.object never has spec.template.spec.volumes: the step reads spec.template.spec.containers[*].image: add spec.template.spec.volumes to fields: of the step"}},
		"fields of an expression": {why: "nobody knows which", fields: ", fields: ['spec.${self.spec.field}']", until: `result.object.spec.paused`},
		"field misspelt": {why: "it would never be there", fields: ", fields: [spec.replica]", until: "true",
			want: []string{"PG018: a Deployment has no field spec.replica: did you mean replicas?"}},
		"the next step's": {why: "the object is another one then", fields: replicas, until: "true", when: "result.object.spec.seletor == {}",
			want: []string{"PG006: result.object: a Service has no field spec.seletor: did you mean selector?"}},
		"a step that may be left out": {why: "it may be either", fields: replicas, until: "true", skips: ", if: self.spec.x", when: "result.object.spec.replicas == 3 || result.object.spec.clusterIP == \"\""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.when == "" {
				c.when = "true"
			}
			got := found(t, fmt.Sprintf(readingMachine, c.fields, c.until, c.skips, c.when), "PG004", "PG101")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// What is refused when a Secret is read is refused when the file is read.
func TestReadsOfSecrets(t *testing.T) {
	cases := map[string]struct {
		why, with string
		want      []string
	}{
		"type and labels": {why: "they say nothing secret", with: "apiVersion: v1, kind: Secret, name: a, fields: [type, metadata.labels]"},
		"data": {why: "it would be in the status", with: "apiVersion: v1, kind: Secret, name: a, fields: [type, data.password]",
			want: []string{"PG018: field data.password of a Secret would be readable in the status, and is refused: read type, or metadata such as metadata.labels: correct the value"}},
		"by default": {why: "a Secret has no status", with: "apiVersion: v1, kind: Secret, name: a",
			want: []string{"PG018: field status of a Secret would be readable in the status, and is refused: read type, or metadata such as metadata.labels: correct the value"}},
		"of another group": {why: "it is another kind", with: "apiVersion: example.com/v1, kind: Secret, name: a, fields: [data]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := strings.Replace(fmt.Sprintf(readingMachine, "", "true", "", "true"), "apiVersion: apps/v1, kind: Deployment, name: a", c.with, 1)
			if diff := cmp.Diff(c.want, found(t, file, "PG004", "PG101")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

const workingMachine = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: working}
spec:
  for: {apiVersion: example.com/v1, kind: Working}
  initial: Working
  finalizer: example.com/working
  actions:
  - {name: Stop, use: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, patch: {spec: {replicas: 0}}}}
  - {name: Start, use: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, patch: {spec: {replicas: 1}}}}
  effects: [{name: stopped, acquire: Stop, release: Start}]
  phases:
  - name: Working
    steps:
    - {action: Stop}
    - {action: RunJob, with: {manifest: {metadata: {name: work}, spec: {template: {spec: {containers: [{name: a, image: a}]}}}}}}
    - {action: Start}
    next: [{to: Done}]
    timeout: {after: 1h, to: Back}
    onDelete: {to: Leaving}
  - {name: Done, terminal: success, onDelete: {to: Leaving}}
  - name: Back
    steps: [END{undo: held}]
    next: [{to: Failed}]
    timeout: {after: 1h, stalled: Slow}
    onDelete: {to: Leaving}
  - {name: Failed, terminal: failure, onDelete: {to: Leaving}}
  - name: Leaving
    deletion: true
    steps: [END{undo: held}]
    next: [{to: Deleted}]
    timeout: {after: 1h, stalled: Slow}
  - {name: Deleted, deletion: true, end: true}
`

// A machine may end its Jobs by a step before it undoes what they ran under.
func TestJobsThatAreEndedByAStep(t *testing.T) {
	refused := []string{"PG020: step undo of Back releases stopped while the Job of step RunJob may still run: make RunJob the acquire of an effect, after stopped, with a release that ends the Job"}
	cases := map[string]struct {
		why, end string
		want     []string
	}{
		"nothing ends it":       {why: "it may run on", want: refused},
		"all Jobs are deleted":  {why: "Delete waits until they are gone, with their Pods", end: "{action: Delete, with: {apiVersion: batch/v1, kind: Job}}, "},
		"another kind":          {why: "no Job goes with it", end: "{action: Delete, with: {apiVersion: v1, kind: Pod}}, ", want: refused},
		"one Job":               {why: "the Job's name has a suffix", end: "{action: Delete, with: {apiVersion: batch/v1, kind: Job, name: work}}, ", want: refused},
		"without waiting":       {why: "its Pods run on", end: "{action: Delete, with: {apiVersion: batch/v1, kind: Job, wait: false}}, ", want: refused},
		"in another namespace":  {why: "no Job of it is there", end: "{action: Delete, with: {apiVersion: batch/v1, kind: Job, namespace: other}}, ", want: refused},
		"perhaps":               {why: "the step may be left out", end: "{action: Delete, if: self.spec.x, with: {apiVersion: batch/v1, kind: Job}}, ", want: refused},
		"ended":                 {why: "EndJob does so, too", end: "{action: EndJob}, "},
		"ended by its name":     {why: "it is that of the manifest", end: "{action: EndJob, with: {name: work}}, "},
		"another one was ended": {why: "this one runs on", end: "{action: EndJob, with: {name: other}}, ", want: refused},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, found(t, strings.ReplaceAll(workingMachine, "END", c.end))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
