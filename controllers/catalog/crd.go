package catalog

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// SchemaOf is the schema of a kind in a CRD, as JSON for expr.NewSchema; nil when
// the CRD is of another kind, does not have the version, or has no schema.
func SchemaOf(crd *apiextensionsv1.CustomResourceDefinition, kind v1alpha1.ObjectKind) []byte {
	for _, v := range crd.Spec.Versions {
		if crd.Spec.Names.Kind != kind.Kind || crd.Spec.Group+"/"+v.Name != kind.APIVersion || v.Schema == nil {
			continue
		}
		data, err := json.Marshal(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil
		}
		return data
	}
	return nil
}
