package mcpserver

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/apply"
)

func TestBackendScale(t *testing.T) {
	for name, test := range map[string]struct {
		why     string
		wanted  *int32
		stopped bool
		now     scale
		want    scale
	}{
		"running, unset":             {"an autoscaler's to choose", nil, false, scale{replicas: 4}, scale{replicas: 4}},
		"running, set":               {"the spec's", new(int32(2)), false, scale{replicas: 4}, scale{replicas: 2}},
		"running, none wanted":       {"a proxy without a backend is what the spec says", new(int32(0)), false, scale{replicas: 1}, scale{}},
		"stops":                      {"what was there is remembered", nil, true, scale{replicas: 4}, scale{before: "4"}},
		"is stopped":                 {"nothing to do", nil, true, scale{before: "4"}, scale{before: "4"}},
		"stopped, started by others": {"no proxy could use it", nil, true, scale{replicas: 2, before: "4"}, scale{before: "2"}},
		"starts":                     {"as many as before", nil, false, scale{before: "4"}, scale{replicas: 4}},
		"starts, set":                {"the spec is newer than what was there before", new(int32(2)), false, scale{before: "4"}, scale{replicas: 2}},
		"starts, others were first":  {"what somebody chose since is newer", nil, false, scale{replicas: 2, before: "4"}, scale{replicas: 2}},
		"starts, not a number":       {"somebody has edited it", nil, false, scale{before: "four"}, scale{replicas: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := backendScale(test.wanted, test.stopped, test.now)
			if got != test.want {
				t.Errorf("scale = %+v, want %+v: %s", got, test.want, test.why)
			}
			if again := backendScale(test.wanted, test.stopped, got); again != got {
				t.Errorf("at the next look it is %+v, want that it stays %+v", again, got)
			}
		})
	}
}

// backendOf is what a proxy has applied.
func backendOf(ctx context.Context, c client.Client, srv *server, replicas *int32) (*appsv1.StatefulSet, error) {
	a := apply.Applier{Client: c, Manager: v1beta1.BackendFieldManager, Owner: ownerReference(srv)}
	labels := v1beta1.BackendSelector(srv.Name)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: srv.Name, Namespace: srv.Namespace}, Spec: appsv1.StatefulSetSpec{
		Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: v1beta1.BackendContainer, Image: srv.Spec.Image}}}}}}
	return ensure(ctx, a, set)
}

// TestScaleToZeroAndBack takes no part of the backend but its number of pods. The peer's proxies have left a StatefulSet without an
// owner; it bears the server's labels, by which a restart and a deletion know it too.
func TestScaleToZeroAndBack(t *testing.T) {
	for whose, metadata := range map[string]string{
		"ours": `{}`, "the peer's": `{"ownerReferences":null,"labels":{"app":"fetch","` + v1beta1.LabelName + `":"fetch"}}`,
	} {
		w := newWorld(t, httpServer)
		set, err := backendOf(t.Context(), w.client, w.srv, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.edit(set, `{"metadata":`+metadata+`,"spec":{"replicas":3}}`) // an autoscaler
		for _, step := range []struct {
			what, spec string
			want       scale
			writes     int
		}{
			{"the least spec", `{"replicas":null}`, scale{replicas: 3}, 7},
			{"stopped", `{"replicas":0}`, scale{before: "3"}, 2},
			{"started", `{"replicas":2}`, scale{replicas: 3}, 2},
			{"more backends", `{"backendReplicas":5}`, scale{replicas: 5}, 2},
			{"any backends", `{"backendReplicas":null}`, scale{replicas: 5}, 1},
		} {
			w.edit(w.srv, `{"spec":`+step.spec+`}`)
			if writes := w.ensure(); writes != step.writes {
				t.Errorf("%s, %s: %d writes, want %d", whose, step.what, writes, step.writes)
			}
			if got := scaleOf(get(w, &appsv1.StatefulSet{}, "fetch")); got != step.want {
				t.Errorf("%s, %s: %+v, want %+v", whose, step.what, got, step.want)
			}
			if again := w.ensure(); again != 0 {
				t.Errorf("%s, %s: %d writes at the next look, want 0", whose, step.what, again)
			}
		}
		if whose != "ours" {
			continue
		}
		// A proxy that starts now applies what it did before, and reverts nothing.
		if set, err = backendOf(t.Context(), w.client, w.srv, nil); err != nil || scaleOf(set) != (scale{replicas: 5}) {
			t.Errorf("after a proxy's apply: %+v, %v, want 5 replicas", scaleOf(set), err)
		}
	}
}
