package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/apply"
)

func TestWriteSinceTheReadIsAConflict(t *testing.T) {
	w := newWorld(t)
	stale := mustPut(w, deployment("workload"))
	w.edit(stale, "somebody", `{"metadata":{"labels":{"team":"a"}}}`)
	other := deployment("workload", func(d *appsv1.Deployment) { d.Namespace, d.Spec.Paused = w.namespace, true })
	if _, wrote, err := apply.Put(t.Context(), w.Applier, stale, true, other); !apierrors.IsConflict(err) || wrote {
		t.Errorf("wrote = %v, error = %v, want a conflict", wrote, err)
	}
	if err := w.admin.Delete(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if _, wrote, err := apply.Put(t.Context(), w.Applier, stale, true, other); !apierrors.IsConflict(err) || wrote {
		t.Errorf("after a deletion: wrote = %v, error = %v, want a conflict: it must not come back with the old content", wrote, err)
	}
}

// TestCreateRaceIsAConflict creates the object between the read and the put.
func TestCreateRaceIsAConflict(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"with another content":   {"file": "theirs"},
		"with the same content":  {"file": "ours"},
		"with nothing in common": {"other": "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "workload", Namespace: w.namespace}, Data: data}
			if err := w.admin.Create(t.Context(), theirs, client.FieldOwner("kubectl")); err != nil {
				t.Fatal(err)
			}
			ours := &corev1.ConfigMap{ObjectMeta: meta("workload"), Data: map[string]string{"file": "ours"}}
			ours.Namespace = w.namespace
			if _, wrote, err := apply.Put(t.Context(), w.Applier, nil, false, client.Object(ours)); !apierrors.IsConflict(err) || wrote {
				t.Errorf("wrote = %v, error = %v, want a conflict", wrote, err)
			}
			var now corev1.ConfigMap
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(theirs), &now); err != nil {
				t.Fatal(err)
			}
			type content struct {
				Data, Labels map[string]string
				Owners       int
			}
			if diff := cmp.Diff(content{Data: data}, content{now.Data, now.Labels, len(now.OwnerReferences)}); diff != "" {
				t.Errorf("their object (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCreateRaceOfOneManager is about two proxies of one server: the later one must
// see what the other made before it writes.
func TestCreateRaceOfOneManager(t *testing.T) {
	w := newWorld(t)
	first := mustPut(w, deployment("workload"))
	older := deployment("workload", func(d *appsv1.Deployment) { d.Namespace, d.Spec.Template.Spec.Containers[0].Image = w.namespace, "old" })
	if _, wrote, err := apply.Put(t.Context(), w.Applier, nil, false, older); !apierrors.IsConflict(err) || wrote {
		t.Errorf("wrote = %v, error = %v, want a conflict", wrote, err)
	}
	if now := mustPut(w, deployment("workload")); now.ResourceVersion != first.ResourceVersion {
		t.Error("the object was written")
	}
}
