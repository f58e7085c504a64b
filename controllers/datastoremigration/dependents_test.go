package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

var tierOwner = metav1.OwnerReference{APIVersion: "projectcalico.org/v3", Kind: "Tier", Name: "t", UID: "1"}

// ownedBy is an object of somebody else that another one owns.
func ownedBy(owner metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings", OwnerReferences: []metav1.OwnerReference{owner}}}
}

// withDependents are the settings in a cluster that serves these kinds, too.
func withDependents(kinds ...string) Settings {
	served := &metav1.APIResourceList{GroupVersion: "v1"}
	for _, kind := range kinds {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}})
	}
	return Settings{Registry: resources.Default(), CalicoNamespace: "calico-system", Discovery: preferring{nothingServed(), []*metav1.APIResourceList{served}}}
}

// withoutCollector refuses the canary: there is no collector to wait for.
func withoutCollector(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, canary := obj.(*corev1.ConfigMap); canary {
				return apierrs.NewForbidden(corev1.Resource("configmaps"), obj.GetName(), nil)
			}
			return c.Create(ctx, obj, opts...)
		},
	})
}

// References come back to v1 objects when the garbage collector has done what it had in its queue for having missed the owners,
// and not before: it would delete the objects. Where it cannot be asked they come back all the same: v1 is unlocked after them.
func TestOwnersOfV1ComeBackAfterTheCollector(t *testing.T) {
	noPod := apierrs.NewInternalError(errors.New(`failed calling webhook "guard.shop": no endpoints available`))
	cases := map[string]struct {
		why            string
		eaten          bool  // the canary, as soon as it is there
		create, remove error // of the canary
	}{
		"it runs":               {why: "it has caught up", eaten: true},
		"it does not run":       {why: "the lock does not depend on it"},
		"no canary can be put":  {why: "the pod of a webhook may need an address, which it gets once v1 is open", create: noPod},
		"the canary cannot go":  {why: "the same of a webhook that is asked about deletions", remove: noPod},
		"the canary may not go": {why: "a policy that refuses it does not keep v1 locked", remove: apierrs.NewForbidden(corev1.Resource("configmaps"), canaryName, nil)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which it waits for nothing
				dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
				policy := ownedPolicy()
				var order []string
				cl := interceptor.NewClient(newFake().WithStatusSubresource(dm).WithObjects(dm, policy).Build(), interceptor.Funcs{
					Create: func(ctx context.Context, cl client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
						if obj.GetName() != canaryName {
							return cl.Create(ctx, obj, opts...)
						}
						order = append(order, "the collector is asked")
						if c.create != nil || c.eaten {
							return c.create
						}
						return cl.Create(ctx, obj, opts...)
					},
					Delete: func(ctx context.Context, cl client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
						if c.remove != nil {
							return c.remove
						}
						return cl.Delete(ctx, obj, opts...)
					},
					Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
						if obj.GetName() == policy.GetName() {
							order = append(order, "owners are written")
						}
						return cl.Patch(ctx, obj, patch, opts...)
					},
				})
				for _, action := range []string{"DetachV1Owners", "AttachV1Owners"} {
					if _, err := once(t, cl, dm, action, nil); err != nil {
						t.Errorf("%s: %v: %s", action, err, c.why)
					}
				}
				if diff := cmp.Diff([]string{"owners are written", "the collector is asked", "owners are written"}, slices.Compact(order)); diff != "" {
					t.Errorf("(-want +got): %s\n%s", c.why, diff)
				}
				must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
				if diff := cmp.Diff([]metav1.OwnerReference{tierOwner}, policy.GetOwnerReferences()); diff != "" {
					t.Errorf("owners afterwards (-want +got): %s\n%s", c.why, diff)
				}
			})
		})
	}
}

// Owners come back also where somebody has removed the note of which kinds have lost theirs.
func TestAttachWithoutTheNote(t *testing.T) {
	cases := map[string]struct {
		why   string
		owner metav1.OwnerReference
		lost  bool // the note
	}{
		"with the note":     {why: "it says where to look", owner: tierOwner},
		"without":           {why: "every kind is looked at", owner: tierOwner, lost: true},
		"nothing to detach": {why: "an owner of another kind is none of ours", owner: metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "2"}, lost: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			owned := ownedBy(c.owner)
			cl := allMayBeDone(withoutCollector(newFake().WithStatusSubresource(dm).WithObjects(dm, owned).Build()))
			actions := Program(cl, withDependents("ConfigMap")).Actions
			owners := func() []metav1.OwnerReference {
				t.Helper()
				must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(owned), owned))
				return owned.OwnerReferences
			}
			before := owners()
			_, err := runner.Once(t.Context(), cl, dm, actions[DetachAction], nil, clock.RealClock{})
			must(t, err)
			if detached := len(owners()) == 0; detached != (c.owner.Kind == "Tier") {
				t.Fatalf("detached: %t", detached)
			}
			if c.lost {
				must(t, client.IgnoreNotFound(cl.Delete(t.Context(), onceState(dm.UID, detachedKindsKey, ""))))
			}
			_, err = runner.Once(t.Context(), cl, dm, actions["AttachDependents"], nil, clock.RealClock{})
			must(t, err)
			if diff := cmp.Diff(before, owners()); diff != "" {
				t.Errorf("owners afterwards (-want +got): %s\n%s", c.why, diff)
			}
		})
	}
}

// What is on record is not forgotten because it cannot be read: its objects would lack their owners for good.
func TestAKindOnRecordThatIsNotServed(t *testing.T) {
	noMatch := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "ConfigMap"}}
	for name, c := range map[string]struct {
		why    string
		record string
		answer error // to lists of the version "v0"
		waived bool
		says   string // the first try
		left   string // on record after it
		back   bool   // the owner, after it
	}{
		"served":                    {why: "nothing is in the way", record: "v1/ConfigMap", back: true},
		"not served":                {why: "an API server has just started", record: "v0/Secret", answer: notServed(), says: "does not serve now, and stay off: v0/Secret", left: "v0/Secret"},
		"no match":                  {why: "its CRD is gone, or is not seen yet", record: "v0/Secret", answer: noMatch, says: "does not serve now, and stay off: v0/Secret", left: "v0/Secret"},
		"one of two":                {why: "the other one is attached", record: "v0/Secret,v1/ConfigMap", answer: noMatch, says: "does not serve now, and stay off: v0/Secret", left: "v0/Secret", back: true},
		"served in another version": {why: "the same objects are there", record: "v0/ConfigMap", answer: noMatch, back: true},
		"waived":                    {why: "a person has said that it is gone for good", record: "v0/Secret", answer: noMatch, waived: true, left: "v0/Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			if c.waived {
				dm.Annotations = map[string]string{migrationv1.AnnotationWaive: dependentsCheck + "@u"}
			}
			owned := ownedBy(tierOwner)
			noted := &copier.Meta{ObjectMeta: owned.ObjectMeta}
			must(t, resources.DetachOwners(noted, dm.UID))
			owned.ObjectMeta = noted.ObjectMeta
			cl := withoutCollector(interceptor.NewClient(newFake().WithStatusSubresource(dm).WithObjects(dm, owned, onceState(dm.UID, detachedKindsKey, c.record)).Build(), interceptor.Funcs{
				List: func(ctx context.Context, cl client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if list.GetObjectKind().GroupVersionKind().Version == "v0" {
						return c.answer
					}
					return cl.List(ctx, list, opts...)
				},
			}))
			attach := Program(cl, withDependents("ConfigMap")).Actions["AttachDependents"]
			_, err := runner.Once(t.Context(), cl, dm, attach, nil, clock.RealClock{})
			if (err != nil) != (c.says != "") || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("it says %v, want %q: %s", err, c.says, c.why)
			}
			state := onceState(dm.UID, "", "")
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(state), state))
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(owned), owned))
			if left := string(state.Status.Saved[detachedKindsKey]); left != c.left || len(owned.OwnerReferences) > 0 != c.back {
				t.Errorf("on record is %q, want %q; owners %v, want one: %t: %s", left, c.left, owned.OwnerReferences, c.back, c.why)
			}
		})
	}
}

// By default nobody may list everything. Then what may be listed is protected, the rest is not asked for and named, and
// a person decides whether that matters.
func TestDependentsWithoutTheRightToLookEverywhere(t *testing.T) {
	failure := "failure: this account may not list *.* (needed by DetachDependents): what belongs to an object of Calico is not looked for in these, and the garbage collector may delete it during a migration: secrets"
	cases := map[string]struct {
		why  string
		may  []string // list, as "resource.group"
		want []string
	}{
		"everything":   {why: "dependents.enabled", may: []string{"*.*"}},
		"one of them":  {why: "extraRules", may: []string{"configmaps"}, want: []string{failure}},
		"each by name": {why: "as good as everything", may: []string{"configmaps", "secrets"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			owned := ownedBy(tierOwner)
			cl := mayList(t, c.may, newFake().WithStatusSubresource(dm).WithObjects(dm, owned).Build())
			settings := withDependents("ConfigMap", "Secret")
			wantFindings(t, c.why, newEffects(cl, settings).dependents.canBeProtected(), c.want)
			detach := func() error {
				_, err := runner.Once(t.Context(), cl, dm, Program(cl, settings).Actions[DetachAction], nil, clock.RealClock{})
				return err
			}
			if err := detach(); (err != nil) != (len(c.want) > 0) {
				t.Errorf("%s: nobody has decided, and it came to %v", c.why, err)
			}
			dm.Annotations = map[string]string{migrationv1.AnnotationWaive: dependentsCheck + "@u"}
			must(t, detach())
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(owned), owned))
			if len(owned.OwnerReferences) > 0 {
				t.Error("what may be looked at is not protected")
			}
		})
	}
}

// What admission lets nobody detach is found before anything is locked: a right to patch is not enough where a plugin
// asks for the right to delete, too.
func TestWhatMayNotBeDetached(t *testing.T) {
	forbidden := func(name string) error {
		return apierrs.NewForbidden(corev1.Resource("things"), name, errors.New("cannot set an ownerRef on a resource you can't delete"))
	}
	cases := map[string]struct {
		why           string
		answer        error // to dry runs
		outside, ofV1 []string
	}{
		"nothing refuses": {why: "all is well"},
		"a plugin":        {why: "OpenShift has it on", answer: forbidden("x"), outside: []string{refusedDetach("ConfigMap shop/settings", forbidden("x"))}, ofV1: []string{refusedDetach("GlobalNetworkPolicy /t.p", forbidden("x"))}},
		"no dry run":      {why: "the webhook may well let the write pass", answer: apierrs.NewBadRequest(`admission webhook "a.b" does not support dry run`)},
		"a busy server":   {why: "that passes", answer: apierrs.NewInternalError(errors.New("etcdserver: too many requests"))},
		"it has changed":  {why: "the step reads it again", answer: apierrs.NewConflict(corev1.Resource("things"), "x", nil)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			second := ownedBy(tierOwner)
			second.Name = "settings-too" // of a kind one is tried
			cl := allMayBeDone(interceptor.NewClient(newFake().WithObjects(ownedBy(tierOwner), second, ownedPolicy()).Build(), interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, opts ...client.PatchOption) error {
					if !slices.Contains(opts, client.PatchOption(client.DryRunAll)) {
						t.Error("a check changes something")
					}
					return c.answer
				},
			}))
			e := newEffects(cl, withDependents("ConfigMap"))
			wantFindings(t, c.why, e.dependents.canBeProtected(), c.outside)
			wantFindings(t, c.why, check.Check{Run: func(ctx context.Context) ([]check.Finding, error) {
				owned, err := e.owners.copier(&migration{}).OwnedV1(ctx)
				return e.owners.tryDetach(ctx, owned), err
			}}, c.ofV1)
		})
	}
}

// ownedPolicy is a v1 object with an owner in Calico.
func ownedPolicy() *unstructured.Unstructured {
	policy := &unstructured.Unstructured{}
	policy.SetAPIVersion(resources.V1Group + "/" + resources.V1Version)
	policy.SetKind("GlobalNetworkPolicy")
	policy.SetName("t.p")
	policy.SetOwnerReferences([]metav1.OwnerReference{tierOwner})
	return policy
}

func refusedDetach(what string, why error) string {
	return "failure: " + what + " cannot be detached from its owner in Calico, a dry run was refused: " + why.Error()
}

// mayList answers questions about rights to list, "resource.group" each, and fails the test where something else is listed.
func mayList(t *testing.T, may []string, c client.WithWatch) client.WithWatch {
	t.Helper()
	allowed := func(group, resource string) bool {
		name := strings.TrimSuffix(resource+"."+group, ".")
		return slices.Contains(may, name) || slices.Contains(may, "*.*")
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authorizationv1.SelfSubjectAccessReview); ok {
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = asked.Verb == "patch" || allowed(asked.Group, asked.Resource)
				return nil
			}
			return c.Create(ctx, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "SecretList" && !allowed("", "secrets") {
				t.Error("secrets are listed without the right to, which is in every audit log")
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// preferring is discovery that knows some kinds; the fake one of client-go prefers none.
type preferring struct {
	*discoveryfake.FakeDiscovery
	lists []*metav1.APIResourceList
}

func (p preferring) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return p.lists, nil
}
