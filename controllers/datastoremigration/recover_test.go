package datastoremigration

import (
	"maps"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// A backup brings a migration back with another UID and without a status, and GitOps makes one anew from its
// manifest. What it finds in the cluster says whether there is anything to do.
func TestAMigrationAfterTheMigration(t *testing.T) {
	const earlier = "11111111-1111-1111-1111-111111111111"
	type side struct {
		ready                bool
		lockedBy, migratedBy string
	}
	info := func(gvk string, s *side) *unstructured.Unstructured {
		u := lockObject(s.ready)
		if gvk == "v3" {
			u.SetGroupVersionKind(resources.Default().Lock().V3GVK())
		}
		u.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: s.lockedBy, migrationv1.AnnotationMigratedBy: s.migratedBy})
		return u
	}
	closed := &side{lockedBy: earlier}
	ours := &side{ready: true, migratedBy: earlier}
	cases := map[string]struct {
		why        string
		finalizer  bool // it came from the backup
		v1, v3     *side
		v1CRDs     bool
		aggregated bool
		phase      string
	}{
		"migrated, v1 still there":              {why: "what is left is the clean-up", v1: closed, v3: ours, v1CRDs: true, phase: "Converged"},
		"migrated, with its finalizer":          {why: "as Velero brings it back", finalizer: true, v1: closed, v3: ours, v1CRDs: true, phase: "Converged"},
		"migrated and cleaned up":               {why: "GitOps keeps it in git", v3: &side{ready: true}, phase: "Complete"},
		"cleaned up, with its finalizer":        {why: "as Velero brings it back", finalizer: true, v3: &side{ready: true}, phase: "Complete"},
		"v3 is still closed":                    {why: "the earlier one did not get so far", v1: closed, v3: &side{lockedBy: earlier, migratedBy: earlier}, v1CRDs: true, phase: "Pending"},
		"v3 was open before":                    {why: "nobody can tell whether it is in use", v1: closed, v3: &side{ready: true}, v1CRDs: true, phase: "Pending"},
		"the APIService points to a server":     {why: "v3 shows v1", v1: closed, v3: ours, v1CRDs: true, aggregated: true, phase: "Pending"},
		"v1 is open":                            {why: "there is something to migrate", v1: &side{ready: true}, v3: ours, v1CRDs: true, phase: "Pending"},
		"neither v1 nor v3":                     {why: "there is no Calico", phase: "Rejected"},
		"no v1, and v3 points to a server":      {why: "that server has nothing to show", v3: &side{ready: true}, aggregated: true, phase: "Rejected"},
		"no v1, and v3 is closed by somebody":   {why: "it is not in use", v3: &side{}, phase: "Rejected"},
		"v1 is closed by a person, v3 is there": {why: "a person's lock is no migration", v1: &side{lockedBy: handPrefix + "jo"}, v3: ours, v1CRDs: true, phase: "Pending"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "22222222-2222-2222-2222-222222222222"}}
			dm.Spec.Type = migrationv1.APIServerToCRDs
			if c.finalizer {
				dm.Finalizers = []string{shippedMachine(t).Finalizer()}
			}
			svc := v3Service("")
			if c.aggregated {
				svc = v3Service("calico-api")
			}
			objs := []client.Object{dm, svc}
			if c.v1CRDs {
				objs = append(objs, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD}})
			}
			if c.v1 != nil {
				objs = append(objs, info("v1", c.v1))
			}
			if c.v3 != nil {
				objs = append(objs, info("v3", c.v3))
			}
			cl := newFake().WithStatusSubresource(dm).WithObjects(objs...).Build()
			r := newReconciler(t, cl)
			first := ""
			for range 3 { // created; the finalizer, if any; the first phase after Pending
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(dm)})
				must(t, err)
				must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(dm), dm))
				if first = dm.Status.Machine.Phase; first != "" && first != "Pending" {
					break
				}
			}
			if first != c.phase {
				t.Errorf("it is in phase %q (%s), want %s: %s", first, dm.Status.Message, c.phase, c.why)
			}
		})
	}
}

// What a migration has left that is gone is cleaned up by the one that took over.
func TestCleanUpAfterAnEarlierMigration(t *testing.T) {
	for name, c := range map[string]struct {
		why   string
		by    string
		other bool // the one that made them is still there
		stays bool
	}{
		"gone":        {why: "nobody else ever will", by: "earlier"},
		"still there": {why: "it cleans up itself", by: "earlier", other: true, stays: true},
		"by itself":   {why: "as always", by: "u"},
	} {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			bears := map[string]string{migrationv1.AnnotationMigratedBy: c.by, migrationv1.AnnotationLockedBy: c.by}
			v3 := lockObject(true)
			v3.SetGroupVersionKind(resources.Default().Lock().V3GVK())
			policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: migrationv1.FenceName}}
			noted := []client.Object{v3, policy}
			for _, obj := range noted {
				obj.SetAnnotations(maps.Clone(bears))
			}
			objs := append([]client.Object{dm}, noted...)
			if c.other {
				objs = append(objs, &migration{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: types.UID(c.by)}})
			}
			cl := newFake().WithStatusSubresource(dm).WithObjects(objs...).Build()
			for _, action := range []string{"RemoveWriteBlock", "RemoveMigrationAnnotations", "RemoveWriteBlock", "RemoveMigrationAnnotations"} {
				_, err := once(t, cl, dm, action, nil)
				must(t, err)
			}
			for _, obj := range noted {
				err := cl.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
				must(t, client.IgnoreNotFound(err))
				if left := err == nil && obj.GetAnnotations()[migrationv1.AnnotationMigratedBy] != ""; left != c.stays {
					t.Errorf("%s %s is left: %t: %s", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), left, c.why)
				}
			}
		})
	}
}
