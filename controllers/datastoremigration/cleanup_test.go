package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// v3PoolCRD is as Calico's, of some time.
func v3PoolCRD(created time.Time) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ippools.projectcalico.org", CreationTimestamp: metav1.NewTime(created)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v3", Served: true, Storage: true}}},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}},
	}
}

// Nothing is deleted that may be the only one of its kind.
func TestCleanUpLosesNothing(t *testing.T) {
	verifiedAt := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	before, after := verifiedAt.Add(-time.Hour), verifiedAt.Add(time.Hour)
	cases := map[string]struct {
		why     string
		written []client.Object // to v1, after the verification
		waive   string
		v3      []client.Object
		digests func(verified string) string // what the status says, of what was verified
		says    string                       // empty: the CRD goes
	}{
		"as verified":      {why: "v3 has it", v3: []client.Object{v3PoolCRD(before)}},
		"one more":         {why: "v3 does not have it", written: []client.Object{pool("late", "")}, v3: []client.Object{v3PoolCRD(before)}, says: "IPPool, 2 objects of which 1 were verified. Bring what is missing to v3, then set the annotation migration.projectcalico.org/waive=v1-changed@u"},
		"waived":           {why: "a person has looked", written: []client.Object{pool("late", "")}, waive: "v1-changed@u", v3: []client.Object{v3PoolCRD(before)}},
		"something waived": {why: "that is another matter", written: []client.Object{pool("late", "")}, waive: "v1-kinds@u", v3: []client.Object{v3PoolCRD(before)}, says: "2 objects of which 1 were verified"},
		"other content":    {why: "the number says nothing", v3: []client.Object{v3PoolCRD(before)}, digests: func(v string) string { return v[:len(v)-1] + "x" }, says: "IPPool, 1 objects, of which some have changed"},
		"never verified":   {why: "another controller made this migration", v3: []client.Object{v3PoolCRD(before)}, digests: func(string) string { return "" }, says: "1 objects of which 0 were verified"},
		"garbled":          {why: "what cannot be read proves nothing", v3: []client.Object{v3PoolCRD(before)}, digests: func(string) string { return "all of it" }, says: `"all" is not KIND=OBJECTS:DIGEST`},
		"v3 is gone":       {why: "v1 is all that there is", waive: "v1-changed@u", says: "CRD ippools.projectcalico.org is not installed"},
		"v3 was made anew": {why: "its objects went with the old one", waive: "v1-changed@u", v3: []client.Object{v3PoolCRD(after)}, says: "CRD ippools.projectcalico.org was created anew after the migration"},
		"v3 is not served": {why: "nobody knows what is in it", v3: []client.Object{&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ippools.projectcalico.org"}}},
			says: "CRD ippools.projectcalico.org has scope"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", Annotations: map[string]string{migrationv1.AnnotationWaive: c.waive}}}
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd"}}
			cl := allMayBeDone(newFake().WithStatusSubresource(dm).WithObjects(append(c.v3, dm, crd, pool("early", ""))...).Build())
			held, err := copier.New(resources.Default(), cl, "").V1Digests(t.Context(), nil)
			must(t, err)
			digests := migrationv1.JoinDigests([]migrationv1.VerifiedKind{held["IPPool"].VerifiedKind})
			if c.digests != nil {
				digests = c.digests(digests)
			}
			if digests != "" {
				dm.Status.Verified = &migrationv1.Verified{At: metav1.NewTime(verifiedAt), Digests: digests}
			}
			for _, obj := range c.written {
				must(t, cl.Create(t.Context(), obj))
			}
			_, err = once(t, cl, dm, CleanUpAction, nil)
			gone := apierrs.IsNotFound(cl.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
			if said := fmt.Sprint(err); gone != (c.says == "") || c.says != "" && !strings.Contains(said, c.says) {
				t.Errorf("gone: %t, said %q, want %q: %s", gone, said, c.says, c.why)
			}
		})
	}
}

// A CRD that does not go, because an object of it has a finalizer, is waited for by the
// machine, whose timeout can raise Stalled then, and not inside of the action. kube-apiserver, which may have failed and wait
// for minutes before it tries again, is made to look each time: by a change of the CRD that is another one each time.
func TestACRDThatDoesNotGo(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd", Finalizers: []string{"customresourcecleanup.apiextensions.k8s.io"}}}
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
	cl := allMayBeDone(newFake().WithStatusSubresource(dm).WithObjects(dm, crd).Build())
	nudged := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			_, err := once(t, cl, dm, CleanUpAction, nil)
			if !isWait(err) || !strings.Contains(err.Error(), poolCRD) || !strings.Contains(err.Error(), "finalizers") {
				t.Errorf("it says %v, want that it waits, for what, and what to do", err)
			}
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
			nudged[crd.Annotations[migrationv1.AnnotationNudgedAt]] = true
		}
	})
	if len(nudged) != 2 || nudged[""] {
		t.Errorf("the CRD was nudged at %v, want two times", nudged)
	}
}

// The right to change CRDs is not worth waiting for.
func TestACRDThatMayNotBeNudged(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: poolCRD, UID: "crd", ResourceVersion: "7"}}
	for err, want := range map[error]bool{
		apierrs.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, poolCRD, errors.New("no")): true,
		apierrs.NewNotFound(schema.GroupResource{}, poolCRD):                                                         true,
		apierrs.NewConflict(schema.GroupResource{}, poolCRD, errors.New("changed")):                                  true,
		apierrs.NewInternalError(errors.New("down")):                                                                 false,
	} {
		cl := interceptor.NewClient(newFake().Build(), interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return err
			},
		})
		s := &cleanUp{copiers: copiers{cluster: cluster{client: cl}}}
		got := s.nudge(t.Context(), &scope{Clock: clock.RealClock{}}, crd.DeepCopy())
		if (got == nil) != want {
			t.Errorf("the API server says %v, it says %v", err, got)
		}
	}
}

// Objects that have gone since, with their namespaces say, are explained, and keep no clean-up: of each that is left it
// is known whether it was written since. A clean-up that was interrupted goes on: what is going was judged when it was
// whole.
func TestUnverifiedIsAboutWhatIsWhole(t *testing.T) {
	const name = "NetworkSet"
	sets, _ := resources.Default().Kind(name)
	for about, c := range map[string]struct {
		why            string
		unproved, now  int64
		since          []string
		unknown        bool // the lock was cooperative, or an older version has verified
		going          bool // its CRD is being deleted
		changed, fewer []string
	}{
		"gone with a namespace":  {why: "the two that are left are as they were", now: 2, fewer: []string{"NetworkSet, 2 of 3"}},
		"and one was written":    {why: "that one may be nowhere else", now: 2, since: []string{"shop/late"}, changed: []string{"NetworkSet, 2 objects of which 3 were verified (written since: shop/late)"}},
		"one for another":        {why: "the number says nothing", now: 3, since: []string{"shop/late"}, changed: []string{"NetworkSet, 3 objects, of which some have changed (written since: shop/late)"}},
		"nobody knows":           {why: "what is not proved is not deleted", now: 2, unknown: true, changed: []string{"NetworkSet, 2 objects of which 3 were verified"}},
		"one was altered":        {why: "it may be among those that are left", unproved: 1, now: 2, changed: []string{"NetworkSet, 2 objects of which 3 were verified"}},
		"altered, all are there": {why: "a waiver is no proof", unproved: 1, now: 4, changed: []string{"NetworkSet, 4 objects of which 3 were verified"}},
		"another, though no one": {why: "a digest that does not fit is no proof", now: 3, changed: []string{"NetworkSet, 3 objects, of which some have changed"}},
		"half deleted":           {why: "the clean-up has begun", now: 2, unknown: true, going: true},
		"all deleted":            {why: "nothing is left to lose", unknown: true},
	} {
		t.Run(about, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if c.going {
				crd.DeletionTimestamp = at(0)
			}
			known := migrationv1.VerifiedKind{Kind: name, Objects: 3, Digest: "of three", Unproved: c.unproved}
			held := copier.V1Kind{VerifiedKind: migrationv1.VerifiedKind{Kind: name, Objects: c.now, Digest: "of those"}, Since: c.since}
			changed, fewer := unverified([]kindCRD{{sets, crd}}, map[string]copier.V1Kind{name: held}, map[string]migrationv1.VerifiedKind{name: known}, !c.unknown)
			if diff := cmp.Diff([][]string{c.changed, c.fewer}, [][]string{changed, fewer}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
