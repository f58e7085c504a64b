// Package catalog knows which machines this program has controllers for, and
// what a machine file may name: the one answer for the manager, which runs
// machines, and for the command line, which only checks them.
package catalog

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/charts"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// compiled are the machines with a program of their own, by metadata.name.
var compiled = map[string]program{
	datastoremigration.MachineName: {
		bindings: datastoremigration.Bindings,
		needs: func(m *fsm.Machine, settings datastoremigration.Settings, _ rbac.Resources) []rbac.Need {
			return datastoremigration.Needs(m, settings) // no plural of Calico's is its own choice
		},
		kind: v1alpha1.ObjectKind{APIVersion: migrationv1.GroupVersion.String(), Kind: "DatastoreMigration"},
	},
	mcpserver.MachineName: {
		bindings: mcpserver.Bindings,
		needs: func(m *fsm.Machine, _ datastoremigration.Settings, resources rbac.Resources) []rbac.Need {
			return mcpserver.Program(nil, mcpserver.Settings{}).Needs(m, resources)
		},
		kind: v1alpha1.ObjectKind{APIVersion: toolhivev1beta1.GroupVersion.String(), Kind: "MCPServer"},
	},
}

type program struct {
	bindings func() fsm.Bindings
	needs    func(*fsm.Machine, datastoremigration.Settings, rbac.Resources) []rbac.Need
	kind     v1alpha1.ObjectKind
}

// Names lists the machines with a program of their own.
func Names() []string { return slices.Sorted(maps.Keys(compiled)) }

// Compiled tells whether this program has a controller of its own for machines of
// a name; any other machine is made of the built-in actions alone.
func Compiled(name string) bool { return compiled[name].bindings != nil }

// Bindings answers what the machine of a file may name. It may be called any
// number of times.
func Bindings(def *fsm.Definition) (fsm.Bindings, error) {
	b := BindingsOf(def.Metadata.Name)
	var err error
	b.Self, err = Schema(def.Spec.For)
	return b, err
}

// BindingsOf answers what a machine of a name may name, whatever its kind.
func BindingsOf(name string) fsm.Bindings {
	own, ok := compiled[name]
	if !ok {
		return generic.Bindings()
	}
	b := own.bindings()
	b.For = own.kind
	return b
}

// Needs is what the controller of a machine must be allowed to do. The settings
// matter for a migration only: which kinds, and where Calico's components run.
func Needs(machine *fsm.Machine, migration datastoremigration.Settings, resources rbac.Resources) []rbac.Need {
	own, ok := compiled[machine.Name()]
	if !ok {
		return generic.Program(builtin.Options{}).Needs(machine, resources)
	}
	return own.needs(machine, migration, resources)
}

// Unclear are the calls of a machine whose rights are not among Needs: an expression says the kind.
func Unclear(machine *fsm.Machine) []runner.Unclear {
	return generic.Program(builtin.Options{}).Unclear(machine) // no action of a compiled-in machine has its kind from a parameter
}

// read are the CRDs of the chart, which all who bind a machine share: nobody changes them.
// To read them takes longer than to compile a machine.
var read = sync.OnceValues(CRDs)

// CRDs are those of the chart. Each call answers with CRDs of its own.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(charts.CRDs, "phasegate/files/crds/*.yaml")
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		data, err := charts.CRDs.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crds[i] = &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crds[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", path.Base(file), err)
		}
	}
	return crds, nil
}

// Schema is the type of a kind whose CRD is in the chart; nil of any other kind.
func Schema(kind v1alpha1.ObjectKind) (*expr.Schema, error) {
	crds, err := read()
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if schema := SchemaOf(crd, kind); schema != nil {
			return expr.NewSchema(schema)
		}
	}
	return nil, nil
}

// SchemaOf is the schema of a kind in a CRD, as JSON for expr.NewSchema; nil when
// the CRD is of another kind, does not have the version, or has no schema.
func SchemaOf(crd *apiextensionsv1.CustomResourceDefinition, kind v1alpha1.ObjectKind) []byte {
	v := VersionOf(crd, kind)
	if v == nil || v.Schema == nil {
		return nil
	}
	data, _ := json.Marshal(v.Schema.OpenAPIV3Schema) // it came out of JSON
	return data
}

// VersionOf is the version of a kind in a CRD; nil where the CRD is of another kind, or does not have it.
func VersionOf(crd *apiextensionsv1.CustomResourceDefinition, kind v1alpha1.ObjectKind) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i, v := range crd.Spec.Versions {
		if crd.Spec.Names.Kind == kind.Kind && crd.Spec.Group+"/"+v.Name == kind.APIVersion {
			return &crd.Spec.Versions[i]
		}
	}
	return nil
}
