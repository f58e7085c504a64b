package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type object = *unstructured.Unstructured

// ref names an object.
type ref struct {
	schema.GroupVersionKind
	types.NamespacedName
}

func (r ref) String() string {
	return strings.TrimPrefix(fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name), "/")
}

func refOf(obj object) ref {
	return ref{obj.GroupVersionKind(), client.ObjectKeyFromObject(obj)}
}

// apiServer keeps objects in memory. It does what the runner and the built-in actions
// rely on: resourceVersions and preconditions, generations, finalizers, merge patches,
// the status subresource, owners of fields. It validates nothing. A fake client would
// lack UIDs, generations and the preconditions of a deletion, and is some ten times slower.
type apiServer struct {
	clock   clock.PassiveClock
	objects map[ref]object
	version int
	uids    int
	fields  fieldManagers
	// decoded are objects as Go's types, which are read far more often than written.
	decoded map[decodedRef]decodedObject
	// written hears of each change; before is nil for a new object, after for one that is gone.
	written func(before, after object)
}

// withoutStatus are the kinds that have no status subresource.
var withoutStatus = []string{"MachineState", "ConfigMap", "Event"}

// decodedRef names an object as a Go type.
type decodedRef struct {
	ref
	as reflect.Type
}

// decodedObject is what of, which no write changes, is as a Go type.
type decodedObject struct {
	of object
	as client.Object
}

// read fills obj as a client would.
func (s *apiServer) read(at ref, into client.Object) error {
	stored := s.objects[at]
	if stored == nil {
		return apierrors.NewNotFound(resourceOf(at), at.Name)
	}
	if _, ok := into.(object); ok {
		return decode(stored, into)
	}
	out := reflect.ValueOf(into).Elem()
	key := decodedRef{at, out.Type()}
	known := s.decoded[key]
	if known.of != stored {
		known = decodedObject{stored, reflect.New(out.Type()).Interface().(client.Object)}
		if err := decode(stored, known.as); err != nil {
			return err
		}
		if s.decoded == nil {
			s.decoded = map[decodedRef]decodedObject{}
		}
		s.decoded[key] = known
	}
	out.Set(reflect.ValueOf(known.as.DeepCopyObject()).Elem())
	return nil
}

// resourceOf is for the words of errors.
func resourceOf(at ref) schema.GroupResource {
	return schema.GroupResource{Group: at.Group, Resource: strings.ToLower(at.Kind) + "s"}
}

// all lists what there is of a kind, by name; an empty namespace means all of them.
func (s *apiServer) all(kind schema.GroupVersionKind, namespace string) []object {
	var found []object
	for at, obj := range s.objects {
		if at.GroupVersionKind == kind && (namespace == "" || namespace == at.Namespace) {
			found = append(found, obj)
		}
	}
	slices.SortFunc(found, func(a, b object) int { return strings.Compare(refOf(a).String(), refOf(b).String()) })
	return found
}

func (s *apiServer) create(obj object) error {
	at := refOf(obj)
	if s.objects[at] != nil {
		return apierrors.NewAlreadyExists(resourceOf(at), at.Name)
	}
	s.uids++
	obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.uids)))
	obj.SetCreationTimestamp(metav1.NewTime(s.clock.Now().Truncate(1e9)))
	obj.SetGeneration(1)
	s.store(nil, obj)
	return nil
}

// store takes an object over, with a new version.
func (s *apiServer) store(before, after object) {
	s.version++
	after.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[refOf(after)] = after.DeepCopy()
	s.written(before, after)
}

// put replaces an object, unless nothing changes. An object that is being deleted is gone
// with its last finalizer.
func (s *apiServer) put(before, after object) {
	if reflect.DeepEqual(before.Object, after.Object) {
		return
	}
	content := func(obj object) map[string]any {
		all := maps.Clone(obj.Object)
		delete(all, "metadata")
		delete(all, "status")
		return all
	}
	if !reflect.DeepEqual(content(before), content(after)) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		s.remove(before)
		return
	}
	s.store(before, after)
}

func (s *apiServer) remove(obj object) {
	delete(s.objects, refOf(obj))
	s.written(obj, nil)
}

// edit changes an object that is there; where there is none, nothing happens.
func (s *apiServer) edit(at ref, change func(object)) {
	before := s.objects[at]
	if before == nil {
		return
	}
	after := before.DeepCopy()
	change(after)
	s.put(before, s.fields.updated(before, after, "kubectl-edit"))
}

// patch merges data into an object, or into its status alone.
func (s *apiServer) patch(at ref, data []byte, subresource, manager string) (object, error) {
	before := s.objects[at]
	if before == nil {
		return nil, apierrors.NewNotFound(resourceOf(at), at.Name)
	}
	changes := map[string]any{}
	if err := utiljson.Unmarshal(data, &changes); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	asked := &unstructured.Unstructured{Object: changes}
	if err := preconditions(before, asked.GetUID(), asked.GetResourceVersion()); err != nil {
		return nil, err
	}
	whole := &unstructured.Unstructured{Object: merge(runtime.DeepCopyJSON(before.Object), changes)}
	after := whole
	switch {
	case subresource == "status":
		after = before.DeepCopy()
		setStatus(after, whole.Object["status"])
	case !slices.Contains(withoutStatus, at.Kind):
		setStatus(after, before.Object["status"])
	}
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetGeneration(before.GetGeneration())
	s.put(before, s.fields.updated(before, after, manager))
	return after, nil
}

func setStatus(obj object, status any) {
	if delete(obj.Object, "status"); status != nil {
		obj.Object["status"] = status
	}
}

func preconditions(live object, uid types.UID, version string) error {
	if uid != "" && uid != live.GetUID() || version != "" && version != live.GetResourceVersion() {
		return apierrors.NewConflict(resourceOf(refOf(live)), live.GetName(), fmt.Errorf("the object was changed: it has version %s", live.GetResourceVersion()))
	}
	return nil
}

// merge is RFC 7386.
func merge(into, changes map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for key, value := range changes {
		fields, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			inner, _ := into[key].(map[string]any)
			into[key] = merge(inner, fields)
		default:
			into[key] = value
		}
	}
	return into
}

// delete asks for the deletion of an object. In the foreground its dependents go first.
func (s *apiServer) delete(at ref, o client.DeleteOptions) error {
	before := s.objects[at]
	if before == nil {
		return apierrors.NewNotFound(resourceOf(at), at.Name)
	}
	if p := o.Preconditions; p != nil {
		var uid types.UID
		var version string
		if p.UID != nil {
			uid = *p.UID
		}
		if p.ResourceVersion != nil {
			version = *p.ResourceVersion
		}
		if err := preconditions(before, uid, version); err != nil {
			return err
		}
	}
	after := before.DeepCopy()
	if o.PropagationPolicy != nil && *o.PropagationPolicy == metav1.DeletePropagationForeground && before.GetDeletionTimestamp() == nil {
		after.SetFinalizers(append(after.GetFinalizers(), metav1.FinalizerDeleteDependents))
	}
	if len(after.GetFinalizers()) == 0 {
		s.remove(before)
		return nil
	}
	if before.GetDeletionTimestamp() == nil {
		now := metav1.NewTime(s.clock.Now().Truncate(1e9))
		after.SetDeletionTimestamp(&now)
		after.SetGeneration(before.GetGeneration() + 1)
	}
	s.put(before, after)
	return nil
}

// asObject is any object, or an apply configuration, as data.
func asObject(obj any, kind schema.GroupVersionKind) (object, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		return nil, err
	}
	if !kind.Empty() {
		u.SetGroupVersionKind(kind)
	}
	return u, nil
}

// decode fills obj as a client would.
func decode(from object, into client.Object) error {
	if u, ok := into.(*unstructured.Unstructured); ok {
		u.Object = runtime.DeepCopyJSON(from.Object)
		return nil
	}
	reflect.ValueOf(into).Elem().SetZero()
	return runtime.DefaultUnstructuredConverter.FromUnstructured(from.DeepCopy().Object, into)
}
