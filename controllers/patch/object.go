package patch

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isNil also finds a typed nil pointer, which an interface comparison misses.
func isNil(obj client.Object) bool {
	if obj == nil {
		return true
	}
	v := reflect.ValueOf(obj)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// emptyLike is a new object of obj's type that names the same object.
func emptyLike[T client.Object](obj T) T {
	fresh := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(T)
	fresh.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	fresh.SetNamespace(obj.GetNamespace())
	fresh.SetName(obj.GetName())
	return fresh
}

// overwrite makes *obj what *with is. The two share memory afterwards, so with
// must not be used any more.
func overwrite[T client.Object](obj, with T) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(with).Elem())
}

// copyStatus gives to the status of from. A kind without a status is left alone.
func copyStatus(from, to client.Object) {
	if source, ok := from.(*unstructured.Unstructured); ok {
		copyUnstructuredStatus(source, to.(*unstructured.Unstructured))
		return
	}
	status := reflect.ValueOf(to).Elem().FieldByName("Status")
	if status.IsValid() {
		status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	}
}

func copyUnstructuredStatus(from, to *unstructured.Unstructured) {
	if status, found := from.Object["status"]; found {
		to.Object["status"] = status
		return
	}
	delete(to.Object, "status")
}
