package builtin

import (
	"errors"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm"
)

// What an action refuses whenever it is called is refused when the file is read: not after the application was stopped.
func TestAFileSaysWhatActionsCanDo(t *testing.T) {
	cases := map[string]struct {
		why  string
		step string // below steps
		want string // empty: nothing is found
	}{
		"plain":               {why: "all of it can be done", step: "{action: HTTPRequest, with: {url: 'https://example.org/health', method: post, timeout: 5s, headers: {a: b}}}"},
		"found later":         {why: "what an expression comes to is not known", step: "{action: HTTPRequest, with: {url: '${self.spec.url}', method: '${self.spec.method}'}}"},
		"no scheme":           {why: "nobody knows whom to ask", step: "{action: HTTPRequest, with: {url: example.org/health}}", want: "url has no scheme or no host"},
		"a password":          {why: "everybody could read it", step: "{action: HTTPRequest, with: {url: 'https://a:b@example.org'}}", want: "url has a user or password in it"},
		"no method":           {why: "a server would refuse it, each time", step: "{action: HTTPRequest, with: {url: 'https://example.org', method: GTE}}", want: `method "GTE" is none: write GET`},
		"too long":            {why: "a worker is held up meanwhile", step: "{action: HTTPRequest, with: {url: 'https://example.org', timeout: 50s}}", want: "timeout is 50s: give more than 0 and at most 30s"},
		"a number":            {why: "a header is a text", step: "{action: HTTPRequest, with: {url: 'https://example.org', headers: {a: 1}}}", want: `header "a": give a text`},
		"no kind":             {why: "it could not even be looked for", step: "{action: Apply, with: {manifest: {apiVersion: v1, metadata: {name: a}}}}", want: "the kind is empty"},
		"no name":             {why: "it would be another object each time", step: "{action: Apply, with: {manifest: {apiVersion: v1, kind: ConfigMap}}}", want: "the name is empty"},
		"no version":          {why: "the same kind can be in several groups", step: "{action: Apply, with: {manifest: {kind: ConfigMap, metadata: {name: a}}}}", want: `"" is no apiVersion`},
		"names found later":   {why: "there is something", step: "{action: Apply, with: {manifest: {apiVersion: '${self.spec.version}', kind: '${self.spec.kind}', metadata: {name: '${self.metadata.name}'}}}}"},
		"not a Job":           {why: "nobody would know when it is done", step: "{action: RunJob, with: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: a}}}}", want: "the manifest is a Pod: RunJob runs a Job"},
		"a Job that vanishes": {why: "it would run again", step: "{action: RunJob, with: {manifest: {spec: {ttlSecondsAfterFinished: 60}}}}", want: "ttlSecondsAfterFinished would take"},
		"nothing to delete":   {why: "without a name it would be all of the kind", step: "{action: Delete, with: {apiVersion: v1, kind: ConfigMap, name: ''}}", want: "the name is empty"},
		"a UID of many":       {why: "they have none in common", step: "{action: Delete, with: {apiVersion: v1, kind: Pod, uid: '${self.spec.uid}'}}", want: "a uid is of one object, and no name is given"},
		"an unknown choice":   {why: "a typo must not mean the default", step: "{action: Delete, with: {apiVersion: v1, kind: ConfigMap, name: a, notOurs: alow}}", want: `"alow" is none of its values: write keep or refuse or allow`},
		"a status":            {why: "it is another controller's", step: "{action: Patch, with: {apiVersion: v1, kind: Pod, name: a, patch: {status: {}}}}", want: "it names status"},
		"a field beside":      {why: "the API server drops it", step: "{action: Patch, with: {apiVersion: v1, kind: Pod, name: a, subresource: status, patch: {status: {}, spec: {}}}}", want: "patch.spec is no part of the subresource"},
		"no such part":        {why: "rights follow from it", step: "{action: Patch, with: {apiVersion: v1, kind: Pod, name: a, subresource: '${self.spec.part}', patch: {status: {}}}}", want: "write status or scale, plainly"},
		"no such status":      {why: "the API server drops it", step: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, subresource: status, patch: {status: {ready: 1}}}}", want: "a Deployment has no field status.ready"},
		"a scale":             {why: "all of it can be done", step: "{action: Patch, with: {apiVersion: example.org/v1, kind: Shop, name: a, subresource: scale, patch: {spec: {replicas: '${self.spec.size}'}}}}"},
		"no number":           {why: "null would be none", step: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, subresource: scale, patch: {spec: {replicas: null}}}}", want: "a scale has a number of replicas"},
		"a text for a number": {why: "the API server refuses it", step: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, subresource: scale, patch: {spec: {replicas: many}}}}", want: "must be a whole number"},
		"never scaled":        {why: "its number follows from the nodes", step: "{action: Patch, with: {apiVersion: apps/v1, kind: DaemonSet, name: a, subresource: scale, patch: {spec: {replicas: 1}}}}", want: "a DaemonSet cannot be scaled"},
		"a negative time":     {why: "the API server refuses it", step: "{action: Evict, with: {name: a, gracePeriodSeconds: -1}}", want: "gracePeriodSeconds is -1"},
		"a derived condition": {why: "two would write it", step: "{action: SetCondition, with: {type: Ready, reason: A}}", want: "condition Ready is derived"},
		"no word":             {why: "the API server refuses it", step: "{action: EmitEvent, with: {reason: to the brim, message: a}}", want: `"to the brim" cannot be a reason`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			def, diags := fsm.Load("machine.yaml", []byte(`apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: m}
spec:
  for: {apiVersion: example.org/v1, kind: Thing}
  initial: Pending
  phases:
  - name: Pending
    steps:
    - `+c.step+`
    next: [{to: Done}]
    timeout: {after: 1h, stalled: Stuck}
    onDelete: {immediate: true}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
`))
			if def != nil {
				_, diags = fsm.Bind(def, fsm.Bindings{Actions: Specs()})
			}
			if len(diags) == 0 && c.want == "" {
				return
			}
			if len(diags) != 1 || c.want == "" || !strings.Contains(diags[0].Message, c.want) || diags[0].Line != 10 {
				t.Errorf("%s: found %v, want %q in line 10", c.why, diags, c.want)
			}
		})
	}
}

// A call refuses the same where an expression came to it, with a reason that onError can name.
func TestValuesOfACall(t *testing.T) {
	manifest := func(fields map[string]any) fsm.Params { return fsm.Params{"manifest": fields} }
	cases := map[string]struct {
		why, action string
		with        fsm.Params
		reason      string // empty: it is called
	}{
		"another kind":      {"nobody would know when it is done", "RunJob", manifest(map[string]any{"kind": "ConfigMap"}), "InvalidManifest"},
		"ttl":               {"a Job that vanished would run again", "RunJob", manifest(map[string]any{"spec": map[string]any{"ttlSecondsAfterFinished": 60.0}}), "InvalidManifest"},
		"no name":           {"a generated name is another one after a crash", "Apply", manifest(map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}), "NameMissing"},
		"too patient":       {"a worker must not be held up", "HTTPRequest", fsm.Params{"timeout": "10m"}, "BadParameter"},
		"a Host header":     {"it would name a host that nobody allowed", "HTTPRequest", fsm.Params{"headers": map[string]any{"host": "evil.com"}}, "BadParameter"},
		"header, number":    {"headers are texts", "HTTPRequest", fsm.Params{"headers": map[string]any{"a": 1.0}}, "BadParameter"},
		"bad method":        {"it is no method", "HTTPRequest", fsm.Params{"method": "GET IT"}, "BadParameter"},
		"derived condition": {"Ready says what the phase is", "SetCondition", fsm.Params{"type": "Ready"}, "ReservedCondition"},
		"bad type":          {"the API server would refuse the whole status, for ever", "SetCondition", fsm.Params{"type": "not a type"}, "BadParameter"},
		"bad reason":        {"the same", "SetCondition", fsm.Params{"reason": "to the brim"}, "BadParameter"},
		"no reason":         {"the same", "SetCondition", fsm.Params{"reason": ""}, "BadParameter"},
		"other status":      {"there are three", "SetCondition", fsm.Params{"status": "Maybe"}, "BadParameter"},
		"with a prefix":     {"types may be qualified", "SetCondition", fsm.Params{"type": "example.org/Filled"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := "", checkValues(Specs()[c.action].Params, c.with)
			if terminal, is := errors.AsType[*fsm.TerminalError](err); is {
				got = terminal.Reason
			}
			if got != c.reason || (err == nil) != (c.reason == "") {
				t.Errorf("%s: got %v, want %q", c.why, err, c.reason)
			}
		})
	}
}
