package copier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
)

// refusing refuses and counts every write, except deletes, while full.
func refusing(w *world, full *bool, writes *int) interceptor.Funcs {
	refuse := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !*full {
			return nil
		}
		*writes++
		return apierrs.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded"))
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := refuse(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}
}

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
			problems, err := c.RemoveMigrationAnnotations(t.Context())
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

// A full store refuses each write in one way, and takes deletes.
func TestFreeStore(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d}\nspec: {nets: [192.0.2.0/24]}", i))
	}
	w.v1("IPPool", "metadata: {name: pool, finalizers: [theirs]}\nspec: {cidr: 10.0.0.0/8}")
	full, writes := false, 0
	c := w.copier(refusing(w, &full, &writes))
	w.mustCopy(c)
	full = true
	w.v1("GlobalNetworkSet", "metadata: {name: one-too-many}\nspec: {nets: [192.0.2.0/24]}")
	if _, err := c.Copy(t.Context(), nil); err == nil || writes != 1 {
		t.Errorf("a copy into a full store: %v after %d tries, want the answer to the first", err, writes)
	}
	deleted, err := c.FreeStore(t.Context())
	if err != nil || deleted != 5 || writes != 1 {
		t.Errorf("%d deleted, %v, %d writes: want all but the one with a finalizer, without a write", deleted, err, writes)
	}
	full = false
	if d, err := c.DeleteCopies(t.Context(), false); err != nil || d.Deleted != 1 || len(d.Remaining) > 0 {
		t.Errorf("and then: %+v, %v", d, err)
	}
}

// A CRD that goes takes its objects along, one after the other. They are not gone from v1 as by a person's
// hand: their copies are the last.
func TestCopiesOutliveTheirV1CRD(t *testing.T) {
	const crdName = "ipreservations.crd.projectcalico.org"
	for name, tc := range map[string]struct {
		why     string
		become  func(w *world, crd *apiextensionsv1.CustomResourceDefinition)
		says    string // by Copy, Verify and DeleteCopies
		deletes int64
		verify  bool // Verify has no error
	}{
		"as it was": {why: "somebody has deleted the object", deletes: 1, verify: true, become: func(*world, *apiextensionsv1.CustomResourceDefinition) {}},
		"absent": {why: "there is nothing left in v1", says: "crd " + crdName + " is gone", become: func(w *world, crd *apiextensionsv1.CustomResourceDefinition) {
			w.must(w.client.Delete(w.Context(), crd))
		}},
		"terminating": {why: "there will be nothing left in a moment", says: "crd " + crdName + " is being deleted", become: func(w *world, crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Finalizers = []string{"customresourcecleanup.apiextensions.k8s.io"}
			w.must(w.client.Update(w.Context(), crd))
			w.must(w.client.Delete(w.Context(), crd))
		}},
		"another": {why: "it was applied again, and its objects were not yet", says: "crd " + crdName + " is newer", verify: true, become: func(w *world, crd *apiextensionsv1.CustomResourceDefinition) {
			crd.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
			w.must(w.client.Update(w.Context(), crd))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kind := kindOf(t, "IPReservation")
			for _, object := range []string{"last", "other"} {
				w.v1("IPReservation", "metadata: {name: "+object+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
			}
			c := w.copier(interceptor.Funcs{})
			w.mustCopy(c)
			w.must(w.client.Delete(t.Context(), w.get(kind.V1GVK(), "last")))
			crd := &apiextensionsv1.CustomResourceDefinition{}
			w.must(w.client.Get(t.Context(), client.ObjectKey{Name: crdName}, crd))
			tc.become(w, crd)
			if _, err := c.Verify(t.Context()); (err == nil) != tc.verify {
				t.Errorf("Verify: %v: %s", err, tc.why)
			}
			result, err := c.Copy(t.Context(), nil)
			if says := fmt.Sprint(err); (err == nil) != (tc.says == "") || !strings.Contains(says, tc.says) {
				t.Errorf("Copy: %v, want %q: %s", err, tc.says, tc.why)
			}
			if left := w.get(kind.V3GVK(), "last"); (left == nil) != (tc.deletes == 1) || result.Deleted != tc.deletes {
				t.Errorf("%d deleted, want %d, left %v: %s", result.Deleted, tc.deletes, left, tc.why)
			}
			assertLastCopiesStay(t, c, tc.says != "")
		})
	}
}

// assertLastCopiesStay aborts: copies that are the last of their objects go only if a person says so.
func assertLastCopiesStay(t *testing.T, c *Copier, last bool) {
	t.Helper()
	if deletion, err := c.DeleteCopies(t.Context(), false); (err != nil) != last || last && deletion.Deleted > 0 {
		t.Errorf("DeleteCopies: %v, %d deleted", err, deletion.Deleted)
	}
	if deletion, err := c.DeleteCopies(t.Context(), true); err != nil || last && deletion.Deleted == 0 {
		t.Errorf("a person has said that they may go: %v, %d deleted", err, deletion.Deleted)
	}
}

// A kind that v1 never had, and of which there are no copies, is in nobody's way.
func TestNoCopiesNeedNoV1CRD(t *testing.T) {
	w := newWorld(t)
	w.must(w.client.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ipreservations.crd.projectcalico.org"}}))
	c := w.copier(interceptor.Funcs{})
	w.mustCopy(c)
	w.wantVerified(c)
}
