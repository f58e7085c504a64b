package lint_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// issuing asks a CA in its first phase, and uses what it got in the second.
const issuing = `
apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: issuing}
spec:
  for: {apiVersion: example.com/v1, kind: Certificate}
  initial: Asking
  state: {seen: {type: string, initial: ''}}
  variables: [{name: answer, expr: 'result.body'}]
  phases:
  - name: Asking
    steps:
    - {name: Ask, action: HTTPRequest, with: {url: 'https://ca.example.com'%s}, until: 'result.status == 200'}
    %s
    next: [{to: Using%s}]
    poll: 5s
    timeout: {after: 1h, to: Failed}
    onDelete: {immediate: true}
  - name: Using
    steps:
    - %s
    next: [{to: Done}]
    timeout: {after: 1h, to: Failed}
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
  - {name: Failed, terminal: failure, onDelete: {immediate: true}}
`

// A reference stands where a value takes its place, and nowhere else; what everybody can read is no secret.
func TestSecrets(t *testing.T) {
	const (
		kept  = ", secretOutputs: {key: body.key, chain: body.chain}"
		apply = "{action: Apply, with: {manifest: {apiVersion: v1, kind: Secret, metadata: {name: tls}, stringData: {tls.key: %s}}}}"
		use   = "{secretOutput: key}"
	)
	elsewhere := func(place string) []string {
		return []string{"PG024: a reference to a secret has no meaning in " + place + ": write it in headers or body of HTTPRequest, or in stringData of a Secret that Apply writes; a Job takes it by valueFrom.secretKeyRef"}
	}
	readable := func(from string) []string {
		return []string{"PG024: stringData.tls.key of a Secret is made of " + from + ", which everybody can read who may read the object: keep it with secretOutputs of the step that asks for it, and write {secretOutput: NAME} here"}
	}
	cases := map[string]struct {
		why                 string
		ask, then, set, use string
		want                []string
	}{
		"in a Secret": {why: "it is one", ask: kept, use: fmt.Sprintf(apply, use)},
		"copied":      {why: "from one Secret to another", use: fmt.Sprintf(apply, "{secret: {name: ca, key: key}}")},
		"in a request": {why: "at any depth of the body", ask: kept,
			use: "{action: HTTPRequest, with: {url: 'https://a.b', headers: {Authorization: {secret: {name: a, key: b}, format: 'Bearer %s'}}, body: {a: [{b: {secretOutput: chain}}]}}}"},
		"in the same phase": {why: "a step after it", ask: kept, then: "- " + fmt.Sprintf(apply, use), use: "{wait: 1s}"},
		"a volume":          {why: "it is a field of Pods", use: "{action: RunJob, with: {manifest: {spec: {template: {spec: {containers: [{name: a, image: b}], volumes: [{name: v, projected: {sources: [{secret: {name: a}}]}}]}}}}}}"},
		"a field of another kind": {why: "of ServiceMonitors, for example",
			use: "{action: Apply, with: {manifest: {apiVersion: a.b/v1, kind: Thing, metadata: {name: a}, spec: {ca: {secret: {name: a, key: b}}}}}}"},
		"in a ConfigMap": {why: "everybody may read it", ask: kept,
			use:  "{action: Apply, with: {manifest: {apiVersion: a.b/v1, kind: Thing, metadata: {name: a}, data: {key: {secretOutput: key}}}}}",
			want: elsewhere("manifest.data.key of Apply")},
		"formatted elsewhere": {why: "no kind has such a field",
			use:  "{action: Apply, with: {manifest: {apiVersion: a.b/v1, kind: Thing, metadata: {name: a}, spec: {ca: {secret: {name: a, key: b}, format: '%s'}}}}}",
			want: elsewhere("manifest.spec.ca of Apply")},
		"patched": {why: "a patch is compared with what is there, and replaces nothing", ask: kept,
			use:  "{action: Patch, with: {apiVersion: v1, kind: Secret, name: a, patch: {stringData: {a: {secretOutput: key}}}}}",
			want: append([]string{"PG018: stringData.a of a Secret is an object, and must be a text: correct the value"}, elsewhere("patch.stringData.a of Patch")...)},
		"misspelt": {why: "it would never be there", ask: kept, use: fmt.Sprintf(apply, "{secretOutput: kez}"),
			want: []string{"PG024: no step keeps secret output kez: did you mean key? secret outputs: chain, key"}},
		"too early": {why: "the way there does not lead through the other phase", ask: ", body: {secretOutput: late}",
			use: "{action: HTTPRequest, with: {url: 'https://a.b', secretOutputs: {late: body}}}", want: []string{"PG024: no way that leads here keeps secret output late: keep it in an earlier step, with secretOutputs"}},
		"half a reference": {why: "it would be sent as it is", ask: ", body: {a: {secret: {name: a}}}", use: "{wait: 1s}",
			want: []string{"PG024: the reference to a secret cannot be read: it lacks the name or the key of the Secret: write {secret: {name: NAME, key: KEY}} or {secretOutput: NAME}"}},
		"of the body":             {why: "fault: the key was in the status first", then: "- " + fmt.Sprintf(apply, "'${result.body}'"), use: "{wait: 1s}", want: readable("result.body")},
		"by a variable":           {why: "the same", then: "- " + fmt.Sprintf(apply, "'a ${variables.answer}'"), use: "{wait: 1s}", want: readable("result.body")},
		"by the name of the step": {why: "the same", then: "- " + fmt.Sprintf(apply, "'${steps.Ask.body}'"), use: "{wait: 1s}", want: readable("steps.Ask.body")},
		"by the state":            {why: "the same, and longer", set: ", set: {seen: 'result.body'}", use: fmt.Sprintf(apply, "'${state.seen}'"), want: readable("state.seen")},
		"of the status":           {why: "a number is no secret", then: "- " + fmt.Sprintf(apply, "'${string(result.status)}'"), use: "{wait: 1s}"},
		"an empty body": {why: "it is kept, and not to be read", ask: kept, then: "- {action: EmitEvent, with: {reason: A, message: 'got ${result.body}'}}", use: "{wait: 1s}",
			want: []string{"PG024: result.body of step Ask is read, and always empty: with secretOutputs, nothing of it can be read: ask another output, or split the request"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := found(t, fmt.Sprintf(issuing, c.ask, c.then, c.set, c.use), "PG102 PG106 PG108")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
