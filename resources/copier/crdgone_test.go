package copier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

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
