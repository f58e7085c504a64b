package bench

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/crds"
	"github.com/phasegate/phasegate/test/fixture"
)

// uid is any UID: an object without one cannot be converted.
const uid = types.UID("0e5e3214-5bda-429e-8d53-2f1b77363286")

// subject is one v1 object with what its conversion needs.
type subject struct {
	kind   *resources.Kind
	schema *resources.Schema
	v1     *unstructured.Unstructured
}

// BenchmarkConvert is what a copy pays for each object besides requests.
func BenchmarkConvert(b *testing.B) {
	for name, s := range subjects(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resources.Convert(s.kind, s.v1, s.schema); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDigest is what the comparison of both sides pays twice for each object.
func BenchmarkDigest(b *testing.B) {
	for name, s := range subjects(b) {
		conv, err := resources.Convert(s.kind, s.v1, s.schema)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resources.Digest(s.kind, s.schema, conv.Object)
			}
		})
	}
}

// subjects has one object of each kind of the mix.
func subjects(b *testing.B) map[string]subject {
	b.Helper()
	set, err := crds.Load(resources.Default())
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]subject{}
	for _, obj := range fixture.Mix(100) {
		kind, known := resources.Default().Kind(obj.GetKind())
		if !known {
			b.Fatalf("the registry has no kind %s", obj.GetKind())
		}
		if _, have := out[kind.Name()]; have {
			continue
		}
		obj.SetUID(uid)
		out[kind.Name()] = subject{kind: kind, schema: compile(b, set, kind), v1: obj}
	}
	return out
}

func compile(b *testing.B, set crds.Set, kind *resources.Kind) *resources.Schema {
	b.Helper()
	for _, obj := range set.CRDs {
		if obj.GetName() != kind.V3CRDName() {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd); err != nil {
			b.Fatal(err)
		}
		schema, err := resources.NewSchema(crd, resources.V3Version)
		if err != nil {
			b.Fatal(err)
		}
		return schema
	}
	b.Fatalf("no CRD %s in the set", kind.V3CRDName())
	return nil
}
