package backend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestPending(t *testing.T) {
	// status is generation seen, pods, of the newest template, ready.
	status := func(seen int64, pods, updated, ready int32) appsv1.StatefulSetStatus {
		return appsv1.StatefulSetStatus{ObservedGeneration: seen, Replicas: pods, UpdatedReplicas: updated, ReadyReplicas: ready, AvailableReplicas: ready}
	}
	const (
		unseen  = "StatefulSet fetch has not been looked at yet by its controller"
		updated = "StatefulSet fetch: 0 of 1 pods are of the newest template"
	)
	for name, test := range map[string]struct {
		why      string
		replicas *int32
		deleted  bool
		status   appsv1.StatefulSetStatus
		want     string
	}{
		"just created":                       {"an empty status is no news", new(int32(1)), false, status(0, 0, 0, 0), unseen},
		"created, no count":                  {"the API server's default is 1", nil, false, status(3, 0, 0, 0), updated},
		"no pod yet":                         {"seen, nothing made", new(int32(1)), false, status(3, 0, 0, 0), updated},
		"pod starts":                         {"there, not ready", new(int32(1)), false, status(3, 1, 1, 0), "StatefulSet fetch: 0 of 1 pods are ready"},
		"ready":                              {"all there is to want", new(int32(1)), false, status(3, 1, 1, 1), ""},
		"ready, no count":                    {"as with 1", nil, false, status(3, 1, 1, 1), ""},
		"ready, status of before":            {"the ready pods are those of the old template", new(int32(1)), false, status(2, 1, 1, 1), unseen},
		"ready, status of later":             {"somebody changed it again: it was seen", new(int32(1)), false, status(4, 1, 1, 1), ""},
		"old pod ready":                      {"it is about to be replaced", new(int32(1)), false, status(3, 1, 0, 1), updated},
		"half replaced":                      {"the rest is still old", new(int32(2)), false, status(3, 2, 1, 2), "StatefulSet fetch: 1 of 2 pods are of the newest template"},
		"replaced, one not ready":            {"a session may be led to it", new(int32(2)), false, status(3, 2, 2, 1), "StatefulSet fetch: 1 of 2 pods are ready"},
		"scaling up":                         {"the third is not there", new(int32(3)), false, status(3, 2, 2, 2), "StatefulSet fetch: 2 of 3 pods are of the newest template"},
		"scaling down":                       {"a pod that goes still takes calls", new(int32(1)), false, status(3, 2, 2, 2), "StatefulSet fetch has 2 pods, wanted are 1"},
		"none wanted":                        {"there is nothing to wait for", new(int32(0)), false, status(3, 0, 0, 0), ""},
		"none wanted, unseen":                {"the old pods are not gone", new(int32(0)), false, status(2, 1, 1, 1), unseen},
		"none wanted, one goes":              {"it is not gone yet", new(int32(0)), false, status(3, 1, 1, 0), "StatefulSet fetch has 1 pods, wanted are 0"},
		"more ready than of newest template": {"the surplus is old", new(int32(2)), false, status(3, 3, 1, 3), "StatefulSet fetch: 1 of 2 pods are of the newest template"},
		"being deleted":                      {"its pods end, ready or not", new(int32(1)), true, status(3, 1, 1, 1), "StatefulSet fetch is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "fetch", Generation: 3}, Status: test.status}
			s.Spec.Replicas = test.replicas
			if test.deleted {
				s.DeletionTimestamp = &metav1.Time{}
			}
			if got := pending(s); got != test.want {
				t.Errorf("pending = %q, want %q: %s", got, test.want, test.why)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	named := func(service string, replicas *int32) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "fetch"}}
		s.Spec.ServiceName, s.Spec.Replicas = service, replicas
		return s
	}
	set := func(replicas *int32) *appsv1.StatefulSet { return named("mcp-fetch-headless", replicas) }
	for name, c := range map[string]struct {
		why   string
		there []client.Object
		want  []string
		err   bool
	}{
		"two":       {"by their numbers, which their names keep", []client.Object{set(new(int32(2)))}, []string{"fetch-0.mcp-fetch-headless:8080", "fetch-1.mcp-fetch-headless:8080"}, false},
		"no count":  {"the API server's default is 1", []client.Object{set(nil)}, []string{"fetch-0.mcp-fetch-headless:8080"}, false},
		"stopped":   {"there is none", []client.Object{set(new(int32(0)))}, []string{}, false},
		"not there": {"none is not known", nil, nil, true},
		"of ToolHive": {"there is no Service fetch, so its pods have no names: with one host, the Service mcp-fetch is called",
			[]client.Object{named("fetch", new(int32(2)))}, []string{"fetch-0.fetch:8080"}, false},
		"of ToolHive, stopped": {"there is none", []client.Object{named("fetch", new(int32(0)))}, []string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Hosts(t.Context(), fake.NewClientBuilder().WithObjects(c.there...).Build(), "tools", "fetch", 8080)
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.err {
				t.Errorf("%s: error %v (-want +got):\n%s", c.why, err, diff)
			}
		})
	}
}

// A proxy waits for its backend, and says what is missing where it has waited in vain.
func TestAwait(t *testing.T) {
	fetch := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "fetch", Generation: 1}}
	for name, c := range map[string]struct {
		why   string
		there []client.Object
		// comes: its pods are ready after some time.
		comes bool
		want  string
	}{
		"nothing":       {"a wait would be in vain", nil, false, `read StatefulSet tools/fetch: statefulsets.apps "fetch" not found`},
		"not looked at": {"the last thing that was missing", []client.Object{fetch}, false, "StatefulSet fetch has not been looked at yet by its controller"},
		"ready":         {"it serves", []client.Object{fetch}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				world := fake.NewClientBuilder().WithObjects(c.there...).Build()
				if c.comes {
					time.AfterFunc(30*time.Second, func() {
						live := fetch.DeepCopy()
						live.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
						if err := world.Status().Update(ctx, live); err != nil {
							t.Error(err)
						}
					})
				}
				got := ""
				if err := Await(ctx, world, "tools", "fetch"); err != nil {
					got = err.Error()
				}
				if got != c.want {
					t.Errorf("%s: got %q, want %q", c.why, got, c.want)
				}
			})
		})
	}
}
