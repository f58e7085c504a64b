package resources

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	inV1Group = V1Group + "/" + V1Version
	inV3Group = V3Group + "/" + V3Version
	inDoor    = V3Group + "/v3precopy"
)

func owner(manager string, op metav1.ManagedFieldsOperationType, apiVersion, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: apiVersion, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestHandedOver(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	const notes = `"f:migration.projectcalico.org/migrated-by":{}`
	old := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ofStatus := func(e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry { e.Subresource = "status"; return e }
	since := func(e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry { e.Time = &old; return e }
	entries := func(e ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return e }
	for name, tt := range map[string]struct{ have, inV1, want []metav1.ManagedFieldsEntry }{
		"who applied in v1 owns the same fields in v3, and we our notes": {
			have: entries(owner("us", update, inDoor, `{"f:metadata":{"f:annotations":{".":{},`+notes+`},"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:nets":{},"f:default":{}}}`)),
			inV1: entries(since(owner("flux", apply, inV1Group, `{"f:metadata":{"f:annotations":{"f:gone":{}},"f:labels":{"f:a":{}}},"f:spec":{"f:nets":{}}}`)),
				owner("us", update, inV1Group, `{"f:metadata":{"f:annotations":{"f:migration.projectcalico.org/barrier":{}}}}`)),
			want: entries(since(owner("flux", apply, inV3Group, `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:nets":{}}}`)),
				owner("us", update, inV3Group, `{"f:metadata":{"f:annotations":{".":{},`+notes+`}}}`)),
		},
		"two owners of one field share it, also one of the aggregated API": {
			have: entries(owner("us", update, inV3Group, `{"f:spec":{"f:nets":{},"f:order":{}}}`)),
			inV1: entries(owner("argo", apply, inV3Group, `{"f:spec":{"f:nets":{}}}`), owner("kubectl", update, inV1Group, `{"f:spec":{"f:nets":{}}}`)),
			want: entries(owner("argo", apply, inV3Group, `{"f:spec":{"f:nets":{}}}`), owner("kubectl", update, inV3Group, `{"f:spec":{"f:nets":{}}}`)),
		},
		"what was changed in v3 since belongs to who changed it": {
			have: entries(owner("us", update, inDoor, `{"f:spec":{"f:order":{}}}`), owner("bob", update, inV3Group, `{"f:spec":{"f:nets":{}}}`)),
			inV1: entries(owner("flux", apply, inV1Group, `{"f:spec":{"f:nets":{},"f:order":{}}}`)),
			want: entries(owner("flux", apply, inV3Group, `{"f:spec":{"f:order":{}}}`), owner("bob", update, inV3Group, `{"f:spec":{"f:nets":{}}}`)),
		},
		"status is a matter of its own": {
			have: entries(owner("us", update, inDoor, `{"f:spec":{"f:a":{}}}`), ofStatus(owner("us", update, inDoor, `{"f:status":{"f:ready":{}}}`))),
			inV1: entries(owner("kubectl", update, inV1Group, `{"f:spec":{"f:a":{}}}`), ofStatus(owner("node", update, inV1Group, `{"f:status":{"f:ready":{}}}`))),
			want: entries(owner("kubectl", update, inV3Group, `{"f:spec":{"f:a":{}}}`), ofStatus(owner("node", update, inV3Group, `{"f:status":{"f:ready":{}}}`))),
		},
		"an object that is no copy keeps its owners, in the version that stays": {
			have: entries(owner("bob", update, inDoor, `{"f:spec":{"f:a":{}}}`), owner("bob", update, inV3Group, `{"f:spec":{"f:b":{}}}`), owner("us", update, inDoor, `{"f:spec":{"f:c":{}}}`)),
			want: entries(owner("bob", update, inV3Group, `{"f:spec":{"f:a":{},"f:b":{}}}`), owner("us", update, inV3Group, `{"f:spec":{"f:c":{}}}`)),
		},
		"nobody owned anything: we go on": {
			have: entries(owner("us", update, inV3Group, `{"f:spec":{"f:a":{}}}`)),
			want: entries(owner("us", update, inV3Group, `{"f:spec":{"f:a":{}}}`)),
		},
		"what cannot be read in v1 is nobody's": {
			have: entries(owner("us", update, inV3Group, `{"f:spec":{"f:a":{}}}`)),
			inV1: entries(owner("old", update, inV1Group, `[`)),
			want: entries(owner("us", update, inV3Group, `{"f:spec":{"f:a":{}}}`)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed, err := HandedOver(tt.have, tt.inV1, "us")
			must(t, err)
			if diff := cmp.Diff(tt.want, got, cmp.Transformer("raw", func(f metav1.FieldsV1) string { return f.GetRawString() })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if same := cmp.Diff(tt.have, got) == ""; same == changed {
				t.Errorf("changed %t", changed)
			}
			if _, again, err := HandedOver(got, tt.inV1, "us"); again || err != nil {
				t.Errorf("a second call changes it again: %t, %v", again, err)
			}
		})
	}
}

// A client of the aggregated API sees the managedFields of the annotation, and those are his.
func TestV1FieldOwners(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{owner("calico-apiserver", metav1.ManagedFieldsOperationUpdate, inV1Group, `{"f:spec":{}}`)})
	for annotation, want := range map[string]string{
		``:  "calico-apiserver",
		`{`: "calico-apiserver",
		`{"managedFields":[{"manager":"flux","operation":"Apply","apiVersion":"projectcalico.org/v3","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]}`: "flux",
	} {
		obj.SetAnnotations(map[string]string{MetadataAnnotation: annotation})
		if got := V1FieldOwners(obj); len(got) != 1 || got[0].Manager != want {
			t.Errorf("with %q: %v, want %s", annotation, got, want)
		}
	}
}
