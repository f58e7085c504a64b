package copier_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/fixture"
)

func TestCopyAllKindsTwice(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	objs := slices.DeleteFunc(fixture.Demo(1, 120), func(obj *unstructured.Unstructured) bool {
		return obj.GetKind() == resources.Default().Lock().V1Kind()
	})
	if err := fixture.Create(t.Context(), live.Config, objs, 16); err != nil {
		t.Fatal(err)
	}
	total := int64(len(objs))

	var last copier.Progress
	first, err := s.copier.Copy(t.Context(), func(p copier.Progress) {
		if p.Total != total || p.Done < last.Done {
			t.Errorf("progress went from %d/%d to %d/%d", last.Done, last.Total, p.Done, p.Total)
		}
		last = p
	})
	if err != nil {
		t.Fatal(err)
	}
	// Protected tiers may be left over from another test; they are equal.
	s.wantCounts("first copy", first, copier.Counts{Created: total - first.AlreadyEqual, AlreadyEqual: min(first.AlreadyEqual, int64(len(builtin)))})
	if diff := cmp.Diff(first.Progress, last); diff != "" {
		t.Errorf("the last report is not the result (-result +report):\n%s", diff)
	}
	s.wantCounts("second copy", s.mustCopy(), copier.Counts{Kept: first.Created, AlreadyEqual: first.AlreadyEqual})
	s.wantVerified()
	deletion := s.mustDelete()
	if deletion.Deleted+int64(len(deletion.Kept)) != first.Created {
		t.Errorf("%+v, want %d deleted or kept", deletion, first.Created)
	}
	if n := s.count(v3("IPAMHandle")); n != 0 {
		t.Errorf("%d handles are left", n)
	}
}

func TestConflictsAreReportedAndOthersGoOn(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	for _, name := range []string{"equal", "theirs", "ours"} {
		s.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	theirs := s.v3("IPReservation", "metadata: {name: theirs}\nspec: {reservedCIDRs: [11.0.0.0/8]}")
	equal := s.v3("IPReservation", "metadata: {name: equal}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	want := []copier.Conflict{{Kind: "IPReservation", Name: "theirs", Cause: copier.CauseUnmanaged, Fields: []resources.FieldDiff{
		{Path: "spec.reservedCIDRs[0]", Want: `"10.0.0.0/8"`, Have: `"11.0.0.0/8"`},
	}}}

	first := s.mustCopy()
	s.wantCounts("copy", first, copier.Counts{Created: 1, AlreadyEqual: 1, Conflicts: 1})
	found, err := s.copier.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]copier.Conflict{want, want}, [][]copier.Conflict{first.Conflicts, found.Conflicts}); diff != "" {
		t.Errorf("conflicts of the copy and found again (-want +got):\n%s", diff)
	}
	s.patch(theirs, `{"spec":{"reservedCIDRs":["10.0.0.0/8"]}}`)
	s.wantVerified()
	s.mustDelete()
	for _, obj := range []*unstructured.Unstructured{theirs, equal} {
		if got := s.get(v3("IPReservation"), obj.GetName()); got.GetUID() != obj.GetUID() {
			t.Errorf("%s, which is not ours, is another object now", obj.GetName())
		}
	}
	if n := s.count(v3("IPReservation")); n != 2 {
		t.Errorf("%d objects are left, want the two that are not ours", n)
	}
}

func TestCopyFollowsV1(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	for _, name := range []string{"same", "changed", "gone"} {
		s.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	s.wantCounts("first copy", s.mustCopy(), copier.Counts{Created: 3})
	s.patch(s.get(v1("IPReservation"), "changed"), `{"spec":{"reservedCIDRs":["12.0.0.0/8"]},"metadata":{"labels":{"a":"b"}}}`)
	s.remove(s.get(v1("IPReservation"), "gone"))
	s.wantDifferent("changed")
	if extra := s.mustVerify().Extra; len(extra) != 1 || extra[0].Name != "gone" {
		t.Errorf("extra: %+v, want the one that is gone", extra)
	}
	s.wantCounts("second copy", s.mustCopy(), copier.Counts{Updated: 1, Kept: 1, Deleted: 1})
	s.wantVerified()
}

// neverStale fails the test when a create is sent that names a Calico owner other than a live v3 object.
func neverStale(t *testing.T) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		for _, ref := range obj.GetOwnerReferences() {
			target := &unstructured.Unstructured{}
			target.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
			if err := live.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, target); err != nil || target.GetUID() != ref.UID {
				t.Errorf("%s is created with the stale owner %+v (%v)", obj.GetName(), ref, err)
			}
		}
		return c.Create(ctx, obj, opts...)
	}}
}

// owned is the metadata of a v1 object with a hidden owner.
func owned(name, apiVersion, kind, owner string, uid types.UID) string {
	return fmt.Sprintf("metadata:\n  name: %s\n  annotations:\n    projectcalico.org/metadata: "+
		`'{"ownerReferences":[{"apiVersion":"%s","kind":"%s","name":"%s","uid":"%s"}]}'`+"\n", name, apiVersion, kind, owner, uid)
}

func TestOwners(t *testing.T) {
	s := newScene(t, neverStale(t))
	tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
	reversed, err := resources.ReverseUID(tier)
	if err != nil {
		t.Fatal(err)
	}
	const policySpec = "spec: {tier: security, selector: all()}"
	for i := range 20 {
		s.v1("GlobalNetworkPolicy", owned(fmt.Sprintf("security.p%d", i), "crd.projectcalico.org/v1", "Tier", "security", tier)+policySpec)
	}
	policy := s.v1("GlobalNetworkPolicy", owned("security.view", "projectcalico.org/v3", "Tier", "security", reversed)+policySpec)
	// Tiers are written before policies: this owner cannot be known yet.
	s.v1("Tier", owned("early", "projectcalico.org/v3", "GlobalNetworkPolicy", "security.view", policy)+"spec: {order: 6, defaultAction: Deny}")
	s.v1("GlobalNetworkSet", owned("orphan", "projectcalico.org/v3", "Tier", "nobody", "00000000-0000-4000-8000-000000000001")+"spec: {nets: [10.0.0.0/8]}")

	for _, when := range []string{"first copy", "second copy, as after a crash"} {
		if n := s.mustCopy().Deferred; n != 2 {
			t.Errorf("%s: %d objects without their owners, want early and orphan", when, n)
		}
	}
	s.wantDifferent("early")
	s.wantRemap(1, "orphan")
	s.wantRemap(0, "orphan")
	newPolicy := s.get(v3("GlobalNetworkPolicy"), "security.view")
	s.wantOwner(newPolicy, s.get(v3("Tier"), "security"))
	s.wantOwner(s.get(v3("Tier"), "early"), newPolicy)
	if n := s.count(v3("GlobalNetworkPolicy")); n != 21 {
		t.Errorf("%d policies in v3, want 21", n)
	}
	s.wantVerified()
}

func TestPlanNamesEveryProblemAndChangesNothing(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	s.v1("GlobalNetworkPolicy", "metadata: {name: foo}\nspec: {selector: all()}")
	s.v1("GlobalNetworkPolicy", "metadata: {name: default.foo, annotations: {projectcalico.org/metadata: '{}'}}\nspec: {tier: default, selector: all()}")
	s.v1("HostEndpoint", "metadata: {name: broken, annotations: {projectcalico.org/metadata: '{'}}\nspec: {node: n1, interfaceName: eth0}")
	s.v1("HostEndpoint", "metadata: {name: fine}\nspec: {node: n1, interfaceName: eth0}")
	plan, err := s.copier.Plan(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range plan.Problems {
		got = append(got, fmt.Sprintf("%s %s %s", p.Reason, p.Kind, p.Object()))
		if p.Reason == resources.ReasonNameCollision && !(strings.Contains(p.Message, `"default.foo"`) && p.Name == "foo") {
			t.Errorf("the collision does not name both: %s", p.Error())
		}
	}
	want := []string{"NameCollision GlobalNetworkPolicy foo", "UnreadableMetadata HostEndpoint broken"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if plan.Total != 4 || s.count(v3("HostEndpoint")) != 0 {
		t.Errorf("total %d, want 4; %d endpoints in v3, want none", plan.Total, s.count(v3("HostEndpoint")))
	}
}

func TestFailedListIsNeverAnEmptyOne(t *testing.T) {
	for name, fault := range map[string]error{
		"server error": apierrors.NewInternalError(fmt.Errorf("etcd")),
		"forbidden":    apierrors.NewForbidden(schema.GroupResource{Resource: "tiers"}, "", nil),
		"not served":   apierrors.NewNotFound(schema.GroupResource{Resource: "tiers"}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List") == "Tier" {
					return fault
				}
				return c.List(ctx, list, opts...)
			}})
			calls := map[string]func() error{
				"Plan":    func() error { _, err := s.copier.Plan(t.Context(), true); return err },
				"Copy":    func() error { _, err := s.copier.Copy(t.Context(), nil); return err },
				"Compare": func() error { _, err := s.copier.Compare(t.Context()); return err },
				"Verify":  func() error { _, err := s.copier.Verify(t.Context()); return err },
				"Remap":   func() error { _, err := s.copier.RemapOwners(t.Context()); return err },
				"Delete":  func() error { _, err := s.copier.DeleteCopies(t.Context(), false); return err },
			}
			for name, call := range calls {
				if err := call(); err == nil || !strings.Contains(err.Error(), "Tier") {
					t.Errorf("%s took a failed list for an empty one: %v", name, err)
				}
			}
		})
	}
}

func TestOneRejectedObjectDoesNotStopTheOthers(t *testing.T) {
	s := newScene(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if obj.GetName() == "bad" {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "NetworkSet"}, "bad", nil)
		}
		return c.Create(ctx, obj, opts...)
	}})
	for _, name := range []string{"bad", "good", "better"} {
		s.v1("GlobalNetworkSet", "metadata: {name: "+name+"}\nspec: {nets: [10.0.0.0/8]}")
	}
	result := s.mustCopy()
	if result.Created != 2 || len(result.Rejected) != 1 || result.Rejected[0].Name != "bad" || result.Rejected[0].Reason != resources.ReasonRejected {
		t.Errorf("%+v, rejected %+v", result.Counts, result.Rejected)
	}
	if v := s.mustVerify(); len(v.Missing) != 1 || v.Missing[0].Name != "bad" {
		t.Errorf("verify: %+v", v)
	}
}

// TestLostAnswers: every create takes effect, and the first answer to each is lost.
func TestLostAnswers(t *testing.T) {
	var seen sync.Map
	s := newScene(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, obj.DeepCopyObject().(client.Object), opts...)
		if _, again := seen.LoadOrStore(obj.GetName(), true); !again {
			return syscall.ECONNRESET
		}
		return err
	}})
	for i := range 10 {
		s.v1("IPAMHandle", fmt.Sprintf("metadata: {name: h%d}\nspec: {handleID: h%d, block: {10.0.0.0/26: 1}, deleted: false}", i, i))
	}
	if result := s.mustCopy(); result.Kept != 10 || result.Done != 10 {
		t.Errorf("%+v, want that all ten are found", result.Counts)
	}
	if v := s.mustVerify(); !v.OK() {
		t.Errorf("verify: %+v", v)
	}
}

func noRightToCreate() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "projectcalico.org", Resource: "ipamhandles"}, "",
		fmt.Errorf("User %q cannot create resource %q in API group %q at the cluster scope", "u", "ipamhandles", "projectcalico.org"))
}

// An API server that was started a moment ago knows neither RBAC nor tokens yet: its answer is no refusal of the object.
func TestARightToWriteIsWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		fault error
	}{
		"a right":     {why: "it is known in a moment", fault: noRightToCreate()},
		"credentials": {why: "they are, too", fault: apierrors.NewUnauthorized("no")},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := newScene(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if asked++; asked == 1 {
					return tc.fault
				}
				return c.Create(ctx, obj, opts...)
			}})
			s.v1("IPAMHandle", "metadata: {name: h}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}")
			if result := s.mustCopy(); result.Created != 1 || len(result.Rejected) > 0 {
				t.Errorf("%+v, want that the object is created: %s", result, tc.why)
			}
		})
	}
}

// What is not the object's fault is an error of the copy, and no object is rejected for it.
func TestServersFaultIsAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		fault error
	}{
		"a server that stays away":   {why: "nothing has answered", fault: syscall.ECONNREFUSED},
		"a right that is missing":    {why: "every object would get the same answer", fault: noRightToCreate()},
		"a server that knows nobody": {why: "one that was started a moment ago cannot verify tokens yet", fault: apierrors.NewUnauthorized("no")},
		"a certificate of another": {why: "what has answered is no API server of ours",
			fault: &url.Error{Op: "Post", URL: "https://x", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}},
		"an answer that is no HTTP": {why: "what has answered is no API server", fault: &url.Error{Op: "Post", URL: "https://x", Err: errors.New("malformed HTTP response")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return tc.fault }})
			s.v1("IPAMHandle", "metadata: {name: h}\nspec: {handleID: h, block: {10.0.0.0/26: 1}, deleted: false}")
			result, err := s.copier.Copy(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), "IPAMHandle /h") || len(result.Rejected) > 0 {
				t.Errorf("rejected %v, error %v, want an error that names the object: %s", result.Rejected, err, tc.why)
			}
		})
	}
}

func TestFinalizersNeverHoldACopy(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	s.v1("IPPool", `metadata: {name: pool, annotations: {projectcalico.org/metadata: '{"finalizers":["projectcalico.org/ippool-finalizer"]}'}}
spec: {cidr: 10.0.0.0/8, blockSize: 26, nodeSelector: all(), vxlanMode: Never, ipipMode: Never}`)
	leaving := s.v1("IPPool", `metadata: {name: leaving, finalizers: [test/hold]}
spec: {cidr: 11.0.0.0/8, blockSize: 26, nodeSelector: all(), vxlanMode: Never, ipipMode: Never}`)
	s.remove(s.get(v1("IPPool"), "leaving"))
	if result := s.mustCopy(); result.Created != 1 || result.Terminating != 1 {
		t.Errorf("%+v, want the pool created and %s left behind", result.Counts, leaving)
	}
	if f := s.get(v3("IPPool"), "pool").GetFinalizers(); len(f) != 1 {
		t.Errorf("finalizers of the copy: %q, want those of v1", f)
	}
	deletion, err := s.copier.DeleteCopies(t.Context(), false)
	if err != nil || deletion.Deleted != 1 || len(deletion.Remaining) != 0 {
		t.Errorf("%+v, %v; want it deleted although nobody removes the finalizer", deletion, err)
	}
	if f := s.get(v1("IPPool"), "pool").GetAnnotations()[resources.MetadataAnnotation]; !strings.Contains(f, "ippool-finalizer") {
		t.Errorf("the v1 object was changed: %s", f)
	}
}

func TestAbsentV1CRDMeansNoObjects(t *testing.T) {
	registry, err := resources.LoadRegistry("test", []byte(`
apiVersion: phasegate.dev/v1alpha1
kind: KindRegistry
metadata: {name: test}
spec:
  kinds:
  - {kind: ClusterInformation, plural: clusterinformations, scope: Cluster, lock: true}
  - {kind: IPReservation, plural: ipreservations, scope: Cluster, v1: {kind: Absent, plural: absents}}
`))
	if err != nil {
		t.Fatal(err)
	}
	newScene(t, interceptor.Funcs{})
	c := copier.New(registry, live.Client, owner)
	plan, err := c.Plan(t.Context(), true)
	if err != nil || plan.Total != 0 {
		t.Errorf("plan: %+v, %v; want no objects and no error", plan, err)
	}
	if result, err := c.Copy(t.Context(), nil); err != nil || result.Done != 0 {
		t.Errorf("copy: %+v, %v; want no objects and no error", result, err)
	}
}
