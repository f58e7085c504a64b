package custom

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

func TestFit(t *testing.T) {
	type (
		crd    = apiextensionsv1.CustomResourceDefinition
		schema = apiextensionsv1.JSONSchemaProps
	)
	status := func(c *crd, change func(map[string]schema)) {
		change(c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties)
	}
	kind := v1alpha1.ObjectKind{APIVersion: "db.example.org/v1", Kind: "DatabaseRestore"}
	cases := map[string]struct {
		why    string
		change func(*crd)
		// want are parts of the error; none: it fits.
		want []string
	}{
		"as in the test": {why: "this is what the documentation asks for", change: func(*crd) {}},
		"keeps everything": {
			why: "what has no schema is not dropped",
			change: func(c *crd) {
				c.Spec.Versions[0].Schema.OpenAPIV3Schema = &schema{Type: "object", XPreserveUnknownFields: ptr.To(true)}
			},
		},
		"no status subresource": {
			why:    "a status would be written by whoever writes the spec, and ours would be refused",
			change: func(c *crd) { c.Spec.Versions[0].Subresources = nil },
			want:   []string{"databaserestores.db.example.org has no status subresource in version v1"},
		},
		"no machine": {
			why:    "every pass would begin anew",
			change: func(c *crd) { status(c, func(p map[string]schema) { delete(p, "machine") }) },
			want:   []string{"would drop status.machine in version v1", "x-kubernetes-preserve-unknown-fields"},
		},
		"a machine without a ledger": {
			why: "what was taken would never be given back",
			change: func(c *crd) {
				status(c, func(p map[string]schema) {
					p["machine"] = schema{Type: "object", Properties: map[string]schema{"phase": {Type: "string"}}}
				})
			},
			want: []string{"status.machine.held", "status.machine.requests"},
		},
		"no conditions": {
			why:    "kubectl wait would wait for ever",
			change: func(c *crd) { status(c, func(p map[string]schema) { delete(p, "conditions") }) },
			want:   []string{"would drop status.conditions"},
		},
		"another version": {
			why:    "the machine asks for one that is not served",
			change: func(c *crd) { c.Spec.Versions[0].Name = "v2" },
			want:   []string{"no CRD has DatabaseRestore in version db.example.org/v1", "spec.for"},
		},
	}
	data, err := os.ReadFile(filepath.Join("testdata", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			def := &crd{}
			if err := yaml.UnmarshalStrict(data, def); err != nil {
				t.Fatal(err)
			}
			c.change(def)
			err := (&fit{crds: fake.NewClientset(def), kind: kind}).check(t.Context())
			if (err == nil) != (c.want == nil) {
				t.Fatalf("got %v: %s", err, c.why)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q but: %v", part, err)
				}
			}
		})
	}
}

// The CRD that the documentation asks for must be one that fits.
func TestDocumentedCRD(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "machine-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\nsubresources:")
	if !found {
		t.Fatal("docs/machine-format.md shows no CRD any more")
	}
	text, _, _ := strings.Cut(rest, "```")
	version := &apiextensionsv1.CustomResourceDefinitionVersion{}
	if err := yaml.UnmarshalStrict([]byte("subresources:"+text), version); err != nil {
		t.Fatal(err)
	}
	if err := keeps(&apiextensionsv1.CustomResourceDefinition{}, version); err != nil {
		t.Error(err)
	}
}

// What everyField leaves out would not be missed in a CRD.
func TestEveryField(t *testing.T) {
	object, err := everyField()
	if err != nil {
		t.Fatal(err)
	}
	status := object["status"].(map[string]any)
	for of, got := range map[reflect.Type]any{
		reflect.TypeFor[Status]():                 status,
		reflect.TypeFor[v1alpha1.MachineStatus](): status["machine"],
		reflect.TypeFor[v1alpha1.Blocked]():       status["machine"].(map[string]any)["blocked"].([]any)[0],
	} {
		want, have := map[string]bool{}, map[string]bool{}
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want[name] = true
		}
		for name := range got.(map[string]any) {
			have[name] = true
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("fields of %s (-want +got):\n%s", of, diff)
		}
	}
}

// Two objects never share memory: the runner compares what was with what is.
func TestDeepCopy(t *testing.T) {
	o := &Object{Spec: map[string]any{"list": []any{map[string]any{"n": int64(1)}}}}
	o.Annotations = map[string]string{"a": "1"}
	o.Status.Machine.Held = v1alpha1.Held("lock")
	c := o.DeepCopyObject().(*Object)
	if diff := cmp.Diff(o, c); diff != "" {
		t.Fatalf("the copy differs (-original +copy):\n%s", diff)
	}
	c.Spec["list"].([]any)[0].(map[string]any)["n"] = int64(2)
	c.Annotations["a"], c.Status.Machine.Held[0].Name = "2", "door"
	if o.Spec["list"].([]any)[0].(map[string]any)["n"] != int64(1) || o.Annotations["a"] != "1" || o.Status.Machine.Held[0].Name != "lock" {
		t.Errorf("a change of the copy changed the original: %+v", o)
	}
}
