package bench

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
)

// uid is any UID: an object without one cannot be converted.
const uid = types.UID("0e5e3214-5bda-429e-8d53-2f1b77363286")

// subject is one v1 object with what its conversion needs.
type subject struct {
	kind   *resources.Kind
	schema *resources.Schema
	v1     *unstructured.Unstructured
}

func (s subject) convert() (*unstructured.Unstructured, error) {
	conv, err := resources.Convert(s.kind, s.v1, s.schema)
	if err != nil {
		return nil, err
	}
	return conv.Object, nil
}

// subjects gives every object what it needs. No cluster is asked.
func subjects(objects []*unstructured.Unstructured) ([]subject, error) {
	registry := resources.Default()
	set, err := crds.Load(registry)
	if err != nil {
		return nil, err
	}
	schemas := map[string]*resources.Schema{}
	out := make([]subject, len(objects))
	for i, obj := range objects {
		kind, known := registry.Kind(obj.GetKind())
		if !known {
			return nil, fmt.Errorf("the registry has no kind %s", obj.GetKind())
		}
		if schemas[kind.Name()] == nil {
			if schemas[kind.Name()], err = compile(set, kind); err != nil {
				return nil, err
			}
		}
		v1 := obj.DeepCopy()
		v1.SetUID(uid)
		out[i] = subject{kind: kind, schema: schemas[kind.Name()], v1: v1}
	}
	return out, nil
}

func compile(set crds.Set, kind *resources.Kind) (*resources.Schema, error) {
	for _, obj := range set.CRDs {
		if obj.GetName() != kind.V3CRDName() {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, crd); err != nil {
			return nil, err
		}
		return resources.NewSchema(crd, resources.V3Version)
	}
	return nil, fmt.Errorf("no CRD %s in the set", kind.V3CRDName())
}
