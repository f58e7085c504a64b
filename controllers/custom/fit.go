package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// lookEvery bounds how often a CRD that does not fit is read again.
const lookEvery = 4 * time.Second

// fit answers whether the CRD of a kind keeps what a machine must remember. Once
// it does, it is not asked again: the runner compares what it wrote with what was
// stored.
type fit struct {
	crds clientset.Interface
	kind v1alpha1.ObjectKind

	mu     sync.Mutex
	looked time.Time
	err    error
}

// check is nil when objects of the kind can be driven.
func (f *fit) check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looked.IsZero() || f.err != nil && time.Since(f.looked) > lookEvery {
		f.err, f.looked = f.look(ctx), time.Now()
	}
	return f.err
}

func (f *fit) look(ctx context.Context) error {
	// From the API server's memory: a moment late is early enough.
	list, err := f.crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("read the CRD of %s %s: %w", f.kind.Kind, f.kind.APIVersion, err)
	}
	for i := range list.Items {
		crd := &list.Items[i]
		for j := range crd.Spec.Versions {
			v := &crd.Spec.Versions[j]
			if crd.Spec.Names.Kind == f.kind.Kind && crd.Spec.Group+"/"+v.Name == f.kind.APIVersion {
				return keeps(crd, v)
			}
		}
	}
	return fmt.Errorf("no CRD has %s in version %s: correct spec.for of the machine", f.kind.Kind, f.kind.APIVersion)
}

// keeps is an error when the API server would drop a part of the status.
func keeps(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) error {
	if v.Subresources == nil || v.Subresources.Status == nil {
		return fmt.Errorf("CRD %s has no status subresource in version %s: add subresources: {status: {}}", crd.Name, v.Name)
	}
	if crd.Spec.PreserveUnknownFields || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil); err != nil {
		return fmt.Errorf("read the schema of CRD %s: %w", crd.Name, err)
	}
	schema, err := structuralschema.NewStructural(internal)
	if err != nil {
		return fmt.Errorf("read the schema of CRD %s: %w", crd.Name, err)
	}
	object, err := everyField()
	if err != nil {
		return err
	}
	lost := pruning.PruneWithOptions(object, schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Errorf("CRD %s would drop %s in version %s: give status.machine x-kubernetes-preserve-unknown-fields: true, and status the fields phase, message, observedGeneration and conditions",
			crd.Name, strings.Join(lost, ", "), v.Name)
	}
	return nil
}

// everyField is an object whose status leaves nothing out, as JSON.
func everyField() (map[string]any, error) {
	at := metav1.NewMicroTime(time.Unix(0, 0))
	status := Status{
		Phase: "P", Message: "m", ObservedGeneration: 1,
		Conditions: []metav1.Condition{{Type: "T", Status: "True", ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(at.Time), Reason: "R", Message: "m"}},
		Machine: v1alpha1.MachineStatus{
			Name: "n", Revision: "r", Phase: "P", Step: "s", StepSince: &at, Cursor: 1, Since: &at, Generation: 1, Deadline: &at, Attempts: 1, NextCheck: &at,
			Held: v1alpha1.Held("h"), Result: "{}", OnDelete: "d",
			Blocked:  []v1alpha1.Blocked{{To: "P", Step: "s", Because: "b", Got: "g"}},
			Requests: []v1alpha1.RequestStatus{{Name: "n", Token: "t"}},
			History:  []v1alpha1.Transition{{To: "P", At: at}},
		},
	}
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, fmt.Errorf("show a status: %w", err)
	}
	object := map[string]any{}
	return object, json.Unmarshal(data, &object)
}
