package lint_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/lint"
)

// What would fail only after the machine has begun its work is found in the file.
func TestKinds(t *testing.T) {
	const put, ask = "{action: Put}", "{action: HTTPRequest, with: {url: 'http://a/b'}}"
	const exit = "- {to: B, when: 'result.status == 200'}"
	cases := map[string]struct {
		why string
		// old is replaced by new.
		old, new string
		live     bool
		crd      func(*apiextensionsv1.CustomResourceDefinitionVersion)
		// want are findings without the name of the file.
		want []string
	}{
		"nothing":               {why: "the file is right as it is"},
		"manifest without kind": {why: "it is said once", old: "kind: ConfigMap, ", want: []string{"8:46: PG005: parameter manifest of Apply: the kind is empty: write one, for example Deployment: correct the value"}},
		"manifest without name": {why: "an apply needs one", old: "metadata: {name: a}, ", want: []string{"8:46: PG005: parameter manifest of Apply: the name is empty: give one that stays the same: correct the value"}},
		"a part of a manifest":  {why: "objects are laid over each other field by field", old: put, new: "{action: Put, with: {manifest: {data: {c: '${self.metadata.name}'}}}}"},
		"a wrong part":          {why: "the finding is where the part stands", old: put, new: "{action: Put, with: {manifest: {dat: {c: d}}}}", want: []string{"14:44: PG018: a ConfigMap has no field dat: did you mean data?"}},
		"watch of a template":   {why: "no object has such a name", old: "owned: true", new: "name: '${self.spec.x}'", want: []string{`12:53: PG000: name of a watch is "${self.spec.x}", which no object is called: a watch knows no expressions: write owned: true for what this machine makes, leave the watch out and rely on poll:, or name one object plainly`}},
		"watch of no kind":      {why: "nothing would wake", old: "kind: Deployment, owned", new: "kind: Deploymant, owned", want: []string{`12:35: PG018: apps/v1 has no kind "Deploymant": did you mean Deployment?`}},
		"no such field":         {why: "the API server drops it, and the Job has no container", old: put, new: "{action: RunJob, with: {manifest: {spec: {template: {spec: {container: []}}}}}}", want: []string{"14:78: PG018: a Job has no field spec.template.spec.container: did you mean containers?"}},
		"field in a list":       {why: "lists are looked into", old: put, new: "{action: RunJob, with: {manifest: {spec: {template: {spec: {containers: [{name: a, imge: b}]}}}}}}", want: []string{"14:96: PG018: a Job has no field spec.template.spec.containers[0].imge: did you mean image?"}},
		"wrong type":            {why: "the API server refuses it", old: put, new: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, patch: {spec: {replicas: 'three'}}}}", want: []string{`14:103: PG018: spec.replicas of a Deployment is the text "three", and must be a whole number: correct the value`}},
		"number from a text":    {why: "a text with more than an expression is no number", old: put, new: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, patch: {spec: {replicas: '1${self.spec.n}'}}}}", want: []string{"14:103: PG018: spec.replicas of a Deployment is a text with an expression in it, and must be a whole number: correct the value"}},
		"any expression":        {why: "what it comes to is not known", old: put, new: "{action: Patch, with: {apiVersion: apps/v1, kind: Deployment, name: a, patch: {spec: {replicas: '${self.spec.n}', template: '${self.spec.t}'}}}}"},
		"forms of their own":    {why: "quantities, ports and dates are read by their types", old: put, new: "{action: Apply, with: {manifest: {apiVersion: v1, kind: Pod, metadata: {name: a, creationTimestamp: null}, spec: {containers: [{name: a, image: b, resources: {limits: {cpu: 1, memory: 1Gi}}, livenessProbe: {httpGet: {port: http}}}]}}}}"},
		"no such kind":          {why: "Kubernetes' own groups are known", old: put, new: "{action: ReadObject, with: {apiVersion: apps/v1, kind: Deploymnt, name: a}}", want: []string{`14:62: PG018: apps/v1 has no kind "Deploymnt": did you mean Deployment?`}},
		"kind of nobody":        {why: "without a cluster it may be anybody's", old: put, new: "{action: ReadObject, with: {apiVersion: foo.org/v1, kind: Foo, name: a}}"},
		"kind not served":       {why: "the cluster says", live: true, old: put, new: "{action: ReadObject, with: {apiVersion: foo.org/v1, kind: Foo, name: a}}", want: []string{"14:65: PG019: the cluster does not serve foo.org/v1 Foo: correct the kind and its apiVersion, or install its CRD first"}},
		"own status": {why: "the manager writes it", old: put, new: "{action: Patch, with: {apiVersion: example.com/v1, kind: X, name: '${ self.metadata.name }', subresource: status, patch: {status: {a: 1}}}}",
			want: []string{"14:113: PG015: it would write the status of the object that the machine drives, which the manager writes: use spec.status for fields, and SetCondition for conditions"}},
		"status of another": {why: "it may be one that no machine drives", old: put, new: "{action: Patch, with: {apiVersion: example.com/v1, kind: X, name: '${self.spec.x}', subresource: status, patch: {status: {a: 1}}}}"},
		"status":            {why: "the CRD keeps it, or may", old: "  phases:\n", new: "  status: {n: 'self.spec.n', any: '1', time: 'self.metadata.creationTimestamp'}\n  phases:\n", crd: shows},
		"status of another type": {why: "the API server would refuse all of the status", old: "  phases:\n", new: "  status: {n: 'self.metadata.name'}\n  phases:\n", crd: shows,
			want: []string{"9:15: PG019: status.n of the CRD is of type integer, and this is string: the API server would refuse the status: convert it in the expression, or correct the CRD"}},
		"status that is dropped": {why: "nobody would see it", old: "  phases:\n", new: "  status: {m: '1'}\n  phases:\n", crd: shows,
			want: []string{"9:15: PG019: the CRD does not keep status.m: the API server would drop it: add it to the properties of status in the CRD, or correct the name"}},
		"constant guard": {why: "what follows is never asked", old: exit, new: "- {to: B, when: '1 == 1'}\n    - {to: B}", want: []string{"18:7: PG004: next[1] is never taken: next[0] is always open: put the exit that is always open last, and have only one"}},
		"own phase":      {why: "its timeout would never pass", old: exit, new: "- {to: A, when: 'result.status == 200'}", want: []string{"17:12: PG107: it leads from phase A to itself, which is no transition: remove it: with poll: the phase is looked at again from its first step; or lead to another phase"}},
		"status without machine": {why: "kubectl shows less", crd: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
			delete(v.Schema.OpenAPIV3Schema.Properties["status"].Properties, "machine")
		}, want: []string{"5:8: PG105: CRD xes.example.com does not keep status.machine: kubectl cannot show what is held, and why nothing moves: add machine: {type: object, x-kubernetes-preserve-unknown-fields: true} to its status; kubectl phasegate scaffold --only=crd prints a CRD that does"}},
		"no status subresource": {why: "nothing would be done", crd: func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Subresources = nil },
			want: []string{"5:8: PG019: CRD xes.example.com has no status subresource: its objects would not be driven: add subresources: {status: {}} there; kubectl phasegate scaffold --only=crd prints a CRD that does"}},
		"not served": {why: "nothing would be done", crd: func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Served = false },
			want: []string{"5:8: PG019: CRD xes.example.com does not serve version v1: set served: true there, or name another version"}},
		"own phase on an edit": {why: "a phase of its own does that", old: exit, new: "- {to: A, when: generationChanged}\n    " + exit,
			want: []string{"17:12: PG107: it leads from phase A to itself, which is no transition: remove it: with poll: the phase is looked at again from its first step; or lead to another phase"}},
		"as scaffold prints it": {why: "it keeps everything", crd: func(*apiextensionsv1.CustomResourceDefinitionVersion) {}},
	}
	data, err := os.ReadFile("testdata/target.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.old != "" && strings.Count(string(data), c.old) != 1 {
				t.Fatalf("target.yaml does not say %q once", c.old)
			}
			known := lint.Known{}
			if c.crd != nil {
				crd := drivenCRD()
				c.crd(&crd.Spec.Versions[0])
				known.CRDs = append(known.CRDs, crd)
			}
			if c.live {
				mapper := meta.NewDefaultRESTMapper(nil)
				for _, kind := range []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"}} {
					mapper.Add(kind, meta.RESTScopeNamespace)
				}
				known.Served = mapper
			}
			text := strings.Replace(string(data), c.old, c.new, 1)
			report, err := lint.Check([]lint.File{{Name: "x.yaml", Data: []byte(text)}}, lint.Options{Bindings: known.Bindings, Kinds: known.Kinds})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range report.Findings {
				got = append(got, fmt.Sprintf("%d:%d: %s: %s: %s", d.Line, d.Column, d.Code, d.Message, d.Fix))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// shows is a change of a CRD so that its status has fields beside those of the manager.
func shows(v *apiextensionsv1.CustomResourceDefinitionVersion) {
	yes := true
	properties := v.Schema.OpenAPIV3Schema.Properties
	properties["status"].Properties["n"] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	properties["status"].Properties["time"] = apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
	properties["status"].Properties["any"] = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: &yes}
	properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"n": {Type: "integer"}}}
}

func drivenCRD() apiextensionsv1.CustomResourceDefinition {
	crd := apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "xes.example.com"
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	of := object(map[string]apiextensionsv1.JSONSchemaProps{"status": object(map[string]apiextensionsv1.JSONSchemaProps{"machine": object(nil)})})
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "X"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &of}}}}
	return crd
}
