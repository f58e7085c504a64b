package generic

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Two objects never share memory: the runner compares what was with what is.
func TestDeepCopy(t *testing.T) {
	o := &Object{Spec: map[string]any{"list": []any{map[string]any{"n": int64(1)}}}}
	o.Annotations = map[string]string{"a": "1"}
	o.Status.Machine.Held = v1alpha1.Held("lock")
	c := o.DeepCopyObject().(*Object)
	if diff := cmp.Diff(o, c); diff != "" {
		t.Fatalf("the copy differs (-original +copy):\n%s", diff)
	}
	c.Spec["list"].([]any)[0].(map[string]any)["n"] = int64(2)
	c.Annotations["a"], c.Status.Machine.Held[0].Name = "2", "door"
	if o.Spec["list"].([]any)[0].(map[string]any)["n"] != int64(1) || o.Annotations["a"] != "1" || o.Status.Machine.Held[0].Name != "lock" {
		t.Errorf("a change of the copy changed the original: %+v", o)
	}
}
