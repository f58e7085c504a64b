package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Shape is what a CRD keeps of a status, which may be another project's: fields that it
// does not know are dropped, and a phase that it does not know would make the API server
// refuse all of it.
type Shape struct {
	// schema is that of the whole object; nil: everything is kept.
	schema *structuralschema.Structural
	// phases are those that status.phase may be; empty: any.
	phases []string
	// machine: the status has a place for the machine.
	machine bool
	// repeats: conditions may have a type several times.
	repeats bool
	// mostConditions is how many there may be; 0: any number.
	mostConditions int64
}

// ShapeOf reads the schema of a version of a CRD. The error says that there is no such version, that it has no status
// subresource, or that its schema is not structural.
func ShapeOf(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Shape, error) {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 {
		return nil, fmt.Errorf("CRD %s has no version %s: correct spec.for of the machine, or apply the CRD that has it", crd.Name, version)
	}
	v := &crd.Spec.Versions[i]
	if v.Subresources == nil || v.Subresources.Status == nil {
		return nil, fmt.Errorf("CRD %s has no status subresource in version %s: add subresources: {status: {}}", crd.Name, version)
	}
	if crd.Spec.PreserveUnknownFields || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return &Shape{machine: true}, nil
	}
	schema, err := structural(v.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("read the schema of CRD %s: %w", crd.Name, err)
	}
	status := v.Schema.OpenAPIV3Schema.Properties["status"].Properties
	_, machine := status["machine"]
	s := &Shape{schema: schema, phases: names(status["phase"].Enum), machine: machine}
	if conditions, known := status["conditions"]; known {
		s.repeats = conditions.XListType == nil || *conditions.XListType == "atomic"
		if conditions.MaxItems != nil {
			s.mostConditions = *conditions.MaxItems
		}
	}
	return s, nil
}

func structural(schema *apiextensionsv1.JSONSchemaProps) (*structuralschema.Structural, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(internal)
}

// names are the texts of an enumeration.
func names(enum []apiextensionsv1.JSON) (all []string) {
	for _, value := range enum {
		var name string
		if json.Unmarshal(value.Raw, &name) == nil {
			all = append(all, name)
		}
	}
	return all
}

// fitView changes the status of view, which was stored as it is in stored, to what the CRD
// keeps: it can be written, and compared with what is stored then. empty is a new object.
func fitView[T Object[T]](s *Shape, empty, view, stored T, spread func(T)) error {
	if spread != nil && s.repeats {
		spread(view)
	}
	if most := int(s.mostConditions); most > 0 && len(*view.Conditions()) > most {
		*view.Conditions() = (*view.Conditions())[:most]
	}
	if s.schema == nil {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(view)
	if err != nil {
		return fmt.Errorf("show the status of %s: %w", view.GetName(), err)
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return fmt.Errorf("show the status of %s: %w", view.GetName(), err)
	}
	s.fitPhase(object, before)
	pruning.Prune(object, s.schema, true)
	status, _ := object["status"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": status}, empty); err != nil {
		return fmt.Errorf("show the status of %s: %w", view.GetName(), err)
	}
	view.CopyStatusFrom(empty)
	return nil
}

// fitPhase leaves the phase that is shown where the CRD has no word for the new one; the
// message names it then.
func (s *Shape) fitPhase(object, before map[string]any) {
	status, _ := object["status"].(map[string]any)
	phase, _ := status["phase"].(string)
	if len(s.phases) == 0 || phase == "" || slices.Contains(s.phases, phase) {
		return
	}
	delete(status, "phase")
	was, _ := before["status"].(map[string]any)
	if last, _ := was["phase"].(string); slices.Contains(s.phases, last) {
		status["phase"] = last
	}
	message, _ := status["message"].(string)
	status["message"] = Cut(phase+": "+message, noteLimit)
}

// errNoShape says that the CRD of the kind has not been read yet.
var errNoShape = errors.New("the CRD has not been read yet")

// shapes follows the CRD of a kind: somebody may apply another one at any time.
type shapes struct {
	version string
	// changed holds a token after each change.
	changed chan struct{}

	mu    sync.Mutex
	shape *Shape
	err   error
}

func newShapes(version string) *shapes {
	return &shapes{version: version, changed: make(chan struct{}, 1), err: errNoShape}
}

// get answers what the CRD keeps, or why objects of the kind cannot be driven.
func (s *shapes) get() (*Shape, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shape, s.err
}

func (s *shapes) set(obj any) {
	shape, err := ShapeOf(obj.(*apiextensionsv1.CustomResourceDefinition), s.version)
	if err != nil {
		err = unfitError{err}
	}
	s.mu.Lock()
	s.shape, s.err = shape, err
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// follow reads the CRD, and again whenever it changes, until ctx is done.
func (s *shapes) follow(ctx context.Context, crds clientset.Interface, name string, logger logr.Logger) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(crds.ApiextensionsV1().RESTClient(), "customresourcedefinitions", "",
			fields.OneTermEqualSelector(metav1.ObjectNameField, name)),
		ObjectType: &apiextensionsv1.CustomResourceDefinition{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: s.set, UpdateFunc: func(before, now any) {
			if before.(*apiextensionsv1.CustomResourceDefinition).Generation != now.(*apiextensionsv1.CustomResourceDefinition).Generation {
				s.set(now)
			}
		}},
		Logger: &logger,
	})
	informer.RunWithContext(ctx)
}

// unfitError says what a person has to repair before any object of a kind can be driven.
type unfitError struct{ error }
