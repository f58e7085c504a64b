package generic

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Two objects never share memory: the runner compares what was with what is.
func TestDeepCopy(t *testing.T) {
	o := &Object{Spec: map[string]any{"list": []any{map[string]any{"n": int64(1)}}}}
	o.Annotations = map[string]string{"a": "1"}
	o.Status.Machine.Held = v1alpha1.Held("lock")
	o.Status.Others = map[string]any{"weights": []any{int64(10)}}
	c := o.DeepCopyObject().(*Object)
	if diff := cmp.Diff(o, c); diff != "" {
		t.Fatalf("the copy differs (-original +copy):\n%s", diff)
	}
	c.Spec["list"].([]any)[0].(map[string]any)["n"] = int64(2)
	c.Status.Others["weights"].([]any)[0] = int64(20)
	c.Annotations["a"], c.Status.Machine.Held[0].Name = "2", "door"
	if o.Spec["list"].([]any)[0].(map[string]any)["n"] != int64(1) || o.Annotations["a"] != "1" || o.Status.Others["weights"].([]any)[0] != int64(10) || o.Status.Machine.Held[0].Name != "lock" {
		t.Errorf("a change of the copy changed the original: %+v", o)
	}
}

// Each way in and out of a status keeps fields that the type does not have: by JSON, and as data.
func TestOtherFieldsOfAStatus(t *testing.T) {
	want := Status{Phase: "Watching", ObservedGeneration: 3, Others: map[string]any{"weight": int64(20), "ratio": 0.5, "names": []any{"a"}, "by": map[string]any{"a": true}}}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := Status{Others: map[string]any{"old": true}}
	if err := utiljson.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by JSON (-want +got):\n%s", diff)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&Object{Status: want})
	if err != nil {
		t.Fatal(err)
	}
	back := &Object{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, back.Status); diff != "" {
		t.Errorf("as data (-want +got):\n%s", diff)
	}
}

// What a machine file may not define is what the type has.
func TestReserved(t *testing.T) {
	var names []string
	for field := range reflect.TypeFor[Status]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	if !slices.Equal(names, reserved) {
		t.Errorf("reserved are %q, and the fields are %q", reserved, names)
	}
}
