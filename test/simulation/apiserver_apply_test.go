package simulation

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// fieldManagers know who owns which field, by the code of the API server itself. Without
// an OpenAPI schema each list is one value.
type fieldManagers map[schema.GroupVersionKind]*managedfields.FieldManager

// tracked are the kinds whose fields have owners here: those that machines share with people.
var tracked = []string{"ConfigMap", "Deployment"}

func (f fieldManagers) of(kind schema.GroupVersionKind) *managedfields.FieldManager {
	if f[kind] == nil {
		m, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), asIs{}, asIs{}, asIs{}, kind, kind.GroupVersion(), "", nil)
		if err != nil {
			panic(err)
		}
		f[kind] = m
	}
	return f[kind]
}

// updated notes who changed what, other than by apply.
func (f fieldManagers) updated(before, after object, manager string) object {
	if !slices.Contains(tracked, after.GetKind()) {
		return after
	}
	return f.of(after.GroupVersionKind()).UpdateNoErrors(before.DeepCopy(), after, manager).(object)
}

// apply is server-side apply.
func (s *apiServer) apply(wanted object, manager string, force bool) error {
	at := refOf(wanted)
	before := s.objects[at]
	live := before.DeepCopy()
	if before == nil {
		if wanted.GetUID() != "" { // a resourceVersion does not keep an apply from creating
			return apierrors.NewConflict(resourceOf(at), at.Name, apierrors.NewNotFound(resourceOf(at), at.Name))
		}
		live = &unstructured.Unstructured{}
		live.SetGroupVersionKind(at.GroupVersionKind)
		live.SetNamespace(at.Namespace)
		live.SetName(at.Name)
	} else if err := preconditions(before, wanted.GetUID(), wanted.GetResourceVersion()); err != nil {
		return err
	}
	wanted = wanted.DeepCopy()
	wanted.SetResourceVersion("")
	applied, err := s.fields.of(at.GroupVersionKind).Apply(live, wanted, manager, force)
	if err != nil {
		return err
	}
	after := applied.(object)
	if before == nil {
		return s.create(after)
	}
	s.put(before, after)
	return nil
}

// asIs is for objects that have one version and no defaults.
type asIs struct{}

func (asIs) Convert(_, _, _ any) error { return nil }

func (asIs) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (asIs) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (asIs) Default(runtime.Object) {}

func (asIs) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}
