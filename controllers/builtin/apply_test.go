package builtin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/builtin"
)

// What a step applied is its own: other steps and objects neither remove it nor are removed by it.
func TestApplyOfSeveral(t *testing.T) {
	type applied struct {
		by, step string
		data     map[string]any
		// outcome is "conflict" where it is refused, and "forced" where it has leave to take the field over; or empty.
		outcome string
	}
	fields := func(pairs ...any) map[string]any {
		data := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			data[pairs[i].(string)] = pairs[i+1]
		}
		return data
	}
	cases := map[string]struct {
		why   string
		steps []applied
		want  map[string]string
	}{
		"two steps":       {"an effect is taken by the first, the second adds to it", []applied{{"plan", "Show", fields("a", "1"), ""}, {"plan", "More", fields("b", "1"), ""}}, map[string]string{"a": "1", "b": "1"}},
		"two objects":     {"each has its own line", []applied{{"plan", "Show", fields("a", "1"), ""}, {"other", "Show", fields("b", "1"), ""}}, map[string]string{"a": "1", "b": "1"}},
		"the next one":    {"what a revision leaves out goes", []applied{{"plan", "Show", fields("a", "1", "b", "1"), ""}, {"plan", "More", fields("c", "1"), ""}, {"plan", "Show", fields("b", "2"), ""}}, map[string]string{"b": "2", "c": "1"}},
		"the same field":  {"the last step of an object wins: the second may be what releases the first", []applied{{"plan", "Show", fields("a", "1"), ""}, {"plan", "Hide", fields("a", "0"), ""}}, map[string]string{"a": "0"}},
		"another's field": {"two objects that want different things must not change it to and fro", []applied{{"plan", "Show", fields("a", "1"), ""}, {"other", "Show", fields("a", "2"), "conflict"}}, map[string]string{"a": "1"}},
		"leave to take":   {"others' fields are taken over only with leave", []applied{{"plan", "Show", fields("a", "1"), ""}, {"other", "Show", fields("a", "2"), "forced"}}, map[string]string{"a": "2"}},
		"a long name":     {"field managers have 128 characters", []applied{{"plan", "Working/a-step-with-a-name-that-says-at-length-what-it-applies-and-why-it-is-applied", fields("a", "1"), ""}, {"plan", "Working/a-step-with-a-name-that-says-at-length-what-it-applies-and-why-it-is-useful", fields("b", "1"), ""}}, map[string]string{"a": "1", "b": "1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			world, p := plansFor(t)
			by := map[string]*plan{"plan": p, "other": another(t, world, p)}
			if err := world.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: somebodys(p.Namespace, "shared").ObjectMeta}); err != nil {
				t.Fatal(err)
			}
			for i, s := range c.steps {
				manifest := content("v1", "ConfigMap", "shared", map[string]any{"data": s.data})
				_, err := actAs(t, builtin.Options{Client: world}, s.step, "Apply", by[s.by], params{"manifest": manifest, "notOurs": "allow", "force": s.outcome == "forced"})
				if refused := s.outcome == "conflict"; (err != nil) != refused || refused && !strings.Contains(err.Error(), `conflict with "phasegate/Plan/`) {
					t.Errorf("apply %d: got %v, want a conflict that names who has the field: %t", i, err, refused)
				}
			}
			cm := &corev1.ConfigMap{}
			if err := world.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: "shared"}, cm); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, cm.Data); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// What is being deleted is waited for, whoever made it: then the name is free.
func TestApplyToWhatIsBeingDeleted(t *testing.T) {
	for _, notOurs := range []string{"refuse", "allow"} {
		t.Run(notOurs, func(t *testing.T) {
			world, p := plansFor(t)
			cm := somebodys(p.Namespace, "made")
			cm.Finalizers = []string{slowFinalizer}
			if err := world.Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			if err := world.Delete(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			with := params{"manifest": configMap("made", "key", "ours"), "notOurs": notOurs}
			if _, err := act(t, world, "Apply", p, with); reasonOf(err) != "waits" {
				t.Errorf("got %v, want to wait until it is gone", err)
			}
			if err := letGo(context.WithoutCancel(t.Context()), world, p); err != nil {
				t.Fatal(err)
			}
			if _, err := act(t, world, "Apply", p, with); err != nil {
				t.Error(err)
			}
		})
	}
}
