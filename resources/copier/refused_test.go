package copier

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// deniedByWebhook is what an API server answers for an admission webhook that gives a reason of its own.
func deniedByWebhook() error {
	return &apierrs.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Reason: metav1.StatusReasonMethodNotAllowed, Message: `admission webhook "h" denied the request: no`}}
}

// With v1 gone there is no way back: a note that may not be taken off stays, and nothing waits for it.
func TestForgetCopiesThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		answer error // to a write of b
		kept   []string
		fails  bool
	}{
		"by a webhook": {why: "nobody can wait until it changes", answer: deniedByWebhook(), kept: []string{"b"}},
		"for a right": {why: "whoever installs this program grants it", fails: true,
			answer: apierrs.NewForbidden(schema.GroupResource{Group: resources.V3Group, Resource: "ipreservations"}, "b", errors.New(`User "u" cannot patch resource "ipreservations" in API group "projectcalico.org" at the cluster scope`))},
		"not at all": {why: "there is nothing to tell"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kind := kindOf(t, "IPReservation")
			for _, name := range []string{"a", "b", "c"} {
				w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			}
			w.mustCopy(w.copier(interceptor.Funcs{}))
			c := w.copier(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if obj.GetName() == "b" && tc.answer != nil {
					return tc.answer
				}
				return c.Patch(ctx, obj, patch, opts...)
			}})
			problems, err := c.ForgetCopies(t.Context())
			if (err != nil) != tc.fails {
				t.Fatalf("error %v: %s", err, tc.why)
			}
			var kept, noted []string
			for _, p := range problems {
				kept = append(kept, p.Name)
			}
			if diff := cmp.Diff(tc.kept, kept); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			for _, name := range []string{"a", "b", "c"} {
				if w.get(kind.V3GVK(), name).GetAnnotations()[resources.MigratedByAnnotation] != "" {
					noted = append(noted, name)
				}
			}
			if diff := cmp.Diff(tc.kept, noted); diff != "" && !tc.fails {
				t.Errorf("what bears our mark (-want +got):\n%s", diff)
			}
		})
	}
}

// Rights by tier are asked for in each tier, whatever the number of its policies.
func TestTryWrites(t *testing.T) {
	w := newWorld(t)
	for _, tier := range []string{"default", "security"} {
		w.v1("Tier", "metadata: {name: "+tier+"}\nspec: {order: 1}")
		for _, name := range []string{"a", "b"} {
			w.v1("NetworkPolicy", "metadata: {namespace: ns, name: "+tier+"."+name+"}\nspec: {tier: "+tier+"}")
		}
	}
	for _, name := range []string{"a", "b"} {
		w.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	w.mustCopy(w.copier(interceptor.Funcs{}))
	deny := func(verb string, obj client.Object, dryRun []string) error {
		if cmp.Diff([]string{metav1.DryRunAll}, dryRun) != "" {
			t.Errorf("%s of %s is no dry run", verb, obj.GetName())
		}
		return deniedByWebhook()
	}
	c := w.copier(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch, opts ...client.PatchOption) error {
			return deny("patch", obj, (&client.PatchOptions{}).ApplyOptions(opts).DryRun)
		},
		Delete: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return deny("delete", obj, (&client.DeleteOptions{}).ApplyOptions(opts).DryRun)
		},
	})
	problems, err := c.TryWrites(t.Context())
	w.must(err)
	got := map[string]int{}
	for _, p := range problems {
		got[p.Kind+" "+p.Message]++
	}
	why := `is refused: admission webhook "h" denied the request: no`
	want := map[string]int{}
	for _, verb := range []string{"patch ", "delete "} {
		want["NetworkPolicy of tier default, "+verb+why] = 1
		want["NetworkPolicy of tier security, "+verb+why] = 1
		want["IPReservation "+verb+why] = 1
		want["Tier "+verb+why] = 1 // the built-in one may not be deleted anyway
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
