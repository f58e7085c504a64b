package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/expr"
)

// Known is what machines may name, and what their objects look like, where it is
// more than this program has.
type Known struct {
	// Program is that of another binary, for every machine that is not compiled into
	// this one; nil: this one's.
	Program *fsm.Bindings
	// CRDs come before those that are compiled in.
	CRDs []apiextensionsv1.CustomResourceDefinition
	// Served answers which kinds a cluster has; nil: no cluster is asked.
	Served meta.RESTMapper
}

// Bindings answers what a machine may name. It is an error when CRDs are given and
// the kind is in none of them, nor compiled in: `self` would silently go unchecked.
func (k Known) Bindings(def *fsm.Definition) (fsm.Bindings, error) {
	b := catalog.BindingsOf(def.Metadata.Name)
	if k.Program != nil && !catalog.Compiled(def.Metadata.Name) {
		b = *k.Program
	}
	var err error
	for i := range k.CRDs {
		if schema := catalog.SchemaOf(&k.CRDs[i], def.Spec.For); schema != nil {
			b.Self, err = expr.NewSchema(schema)
			return b, err
		}
	}
	b.Self, err = catalog.Schema(def.Spec.For)
	if err == nil && b.Self == nil && len(k.CRDs) > 0 {
		err = fmt.Errorf("no CRD describes %s %s: correct spec.for, or give the CRD that has this version", def.Spec.For.APIVersion, def.Spec.For.Kind)
	}
	return b, err
}

// LoadCRDs reads the CRDs of a file, of one or more documents; anything else in it
// is passed over.
func LoadCRDs(f File) ([]apiextensionsv1.CustomResourceDefinition, error) {
	var all []apiextensionsv1.CustomResourceDefinition
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(f.Data), 4096); ; {
		var crd apiextensionsv1.CustomResourceDefinition
		switch err := docs.Decode(&crd); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read CRDs of %s: %w", f.Name, err)
		case crd.Kind == "CustomResourceDefinition":
			all = append(all, crd)
		}
	}
}
