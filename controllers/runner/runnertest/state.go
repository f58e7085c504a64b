package runnertest

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// state is what a run has come to, comparable with that of another run.
type state struct {
	// Objects are those that were written, by kind and order; gone ones are nil.
	Objects map[string]any
	Outputs any
}

// objects are those that were written, as the server has them; gone ones are nil.
func (r *run[T]) objects() map[string]map[string]any {
	r.t.Helper()
	all := map[string]map[string]any{}
	for i, written := range r.recorder.written() {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(written.GroupVersionKind)
		err := r.Client.Get(r.t.Context(), written.ObjectKey, obj)
		switch {
		case apierrs.IsNotFound(err):
			all[label(i, written)] = nil
		case err != nil:
			r.t.Fatalf("read %s %s: %v", written.Kind, written.ObjectKey, err)
		default:
			all[label(i, written)] = obj.Object
		}
	}
	return all
}

func label(i int, written ref) string { return fmt.Sprintf("%s #%d", written.Kind, i) }

// state leaves out, or gives a common name to, what differs from run to run.
func (r *run[T]) state() state {
	r.t.Helper()
	objects := r.objects()
	var names []string // pairs: what it is here, what it is called
	name := func(here, common string) {
		if here != "" {
			names = append(names, here, common)
		}
	}
	for i, written := range r.recorder.written() {
		common := label(i, written)
		if uid, found, _ := unstructured.NestedString(objects[common], "metadata", "uid"); found {
			name(uid, "UID of "+common)
		}
		if ip, _, _ := unstructured.NestedString(objects[common], "spec", "clusterIP"); ip != corev1.ClusterIPNone {
			name(ip, "address of "+common)
		}
		name(written.Name, "name of "+common)
	}
	name(string(r.obj.GetUID()), "UID of the object")
	name(r.obj.GetNamespace(), "its namespace")
	common := strings.NewReplacer(longestFirst(names)...)

	s := state{Objects: map[string]any{}, Outputs: rename(map[string]any(r.outputs), common)}
	for key, obj := range objects {
		if obj == nil {
			s.Objects[key] = nil
			continue
		}
		if key == label(0, r.recorder.written()[0]) {
			for _, field := range r.Progress {
				unstructured.RemoveNestedField(obj, strings.Split(field, ".")...)
			}
		}
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(obj, "metadata", field)
		}
		s.Objects[key] = rename(obj, common)
	}
	return s
}

// longestFirst lets a name win over the names that are its beginning.
func longestFirst(pairs []string) []string {
	chunks := slices.Collect(slices.Chunk(pairs, 2))
	slices.SortStableFunc(chunks, func(a, b []string) int { return len(b[0]) - len(a[0]) })
	return slices.Concat(chunks...)
}

// rename gives the texts in a value their common names.
func rename(value any, common *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return common.Replace(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[common.Replace(key)] = rename(item, common)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = rename(item, common)
		}
		return out
	}
	return value
}
