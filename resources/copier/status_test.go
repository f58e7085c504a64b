package copier

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A status that nobody but us has written in v3 follows v1, until a controller of v3 writes it.
func TestAStatusFollowsV1(t *testing.T) {
	const status = `{"status":{"conditions":[{"type":"Allocatable","status":"%s"}]}}`
	w := newWorld(t)
	kind := kindOf(t, "IPPool")
	for _, name := range []string{"copied", "written", "dropped"} {
		w.v1("IPPool", "metadata: {name: "+name+"}\nspec: {cidr: 10.0.0.0/8}")
		w.patchStatus(w.get(kind.V1GVK(), name), "calico", `{"status":{"old":"field","conditions":[{"type":"Allocatable","status":"True"}]}}`)
	}
	c := w.copier(interceptor.Funcs{}, WithEqualityCache(NewEqualityCache()))
	w.mustCopy(c)
	w.patchStatus(w.get(kind.V3GVK(), "written"), "calico", fmt.Sprintf(status, "Unknown"))
	for _, name := range []string{"copied", "written"} {
		w.patchStatus(w.get(kind.V1GVK(), name), "calico", fmt.Sprintf(status, "False"))
	}
	w.patchStatus(w.get(kind.V1GVK(), "dropped"), "calico", `{"status":{"old":null}}`)
	named := map[string]string{}
	for _, d := range w.mustVerify(c).Different {
		named[d.Name] = fmt.Sprint(d.Cause, " ", d.Fields)
	}
	if diff := cmp.Diff(map[string]string{
		"copied":  `Stale [status.conditions[0].status: "False" in v1, "True" in v3]`,
		"dropped": `Stale [status.old: (absent) in v1, "field" in v3]`,
	}, named); diff != "" {
		t.Errorf("what Verify says before they follow (-want +got):\n%s", diff)
	}
	for _, want := range []Counts{{Updated: 2, Kept: 1}, {Kept: 3}} {
		want.Total, want.Done = 3, 3
		if diff := cmp.Diff(want, w.mustCopy(c).Counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		w.wantVerified(c)
	}
	w.patchStatus(w.get(kind.V1GVK(), "dropped"), "calico", `{"status":null}`)
	w.mustCopy(c)
	w.wantVerified(c)
	got := map[string]any{}
	for _, name := range []string{"copied", "written", "dropped"} {
		got[name] = w.get(kind.V3GVK(), name).Object["status"]
	}
	condition := func(status string) []any { return []any{map[string]any{"type": "Allocatable", "status": status}} }
	want := map[string]any{
		"copied":  map[string]any{"old": "field", "conditions": condition("False")},
		"written": map[string]any{"old": "field", "conditions": condition("Unknown")},
		"dropped": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}
