package copier_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/harness"
)

// findings are what a Copy, or a Verify, says of an object: its cause and the fields.
func findings(conflicts []copier.Conflict) map[string]string {
	out := map[string]string{}
	for _, c := range conflicts {
		text := string(c.Cause)
		for _, f := range c.Fields {
			text += " " + f.Path
		}
		out[c.Name] = text
	}
	return out
}

func (s *scene) wantFindings(when string, got []copier.Conflict, want map[string]string) {
	s.Helper()
	if diff := cmp.Diff(want, findings(got)); diff != "" {
		s.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// What somebody has changed after it was copied is his; what v1 has changed is copied again.
func TestAnEditedCopyIsAConflict(t *testing.T) {
	const nets = "spec: {nets: [10.0.0.0/8, 11.0.0.0/8]}"
	cases := map[string]struct {
		why      string
		v3, v1   string // merge patches, "" for none
		want     string // what Verify says; "" for nothing
		repaired bool   // a Copy makes both sides equal again
	}{
		"spec":               {why: "another writer owns the field", v3: `{"spec":{"nets":["10.0.0.0/8","12.0.0.0/8"]}}`, want: "Edited spec.nets[1]"},
		"label added":        {why: "labels select policy", v3: `{"metadata":{"labels":{"new":"label"}}}`, want: "Edited metadata.labels.new"},
		"label changed":      {why: "labels select policy", v3: `{"metadata":{"labels":{"team":"red"}}}`, want: "Edited metadata.labels.team"},
		"label removed":      {why: "nobody owns what is gone; v1 had it when it was copied", v3: `{"metadata":{"labels":{"team":null}}}`, want: "Edited metadata.labels.team"},
		"annotation removed": {why: "the same", v3: `{"metadata":{"annotations":{"note":null}}}`, want: "Edited metadata.annotations.note"},
		"finalizer added":    {why: "a finalizer is a promise", v3: `{"metadata":{"finalizers":["test/a","test/b"]}}`, want: "Edited metadata.finalizers"},
		"finalizer removed":  {why: "the copy still owns the list", v3: `{"metadata":{"finalizers":null}}`, want: "Edited metadata.finalizers"},
		"v1 changed":         {why: "an old copy is nobody's", v1: `{"spec":{"nets":["12.0.0.0/8"]},"metadata":{"labels":{"more":"labels","team":null}}}`, want: "Stale metadata.labels.more metadata.labels.team spec.nets", repaired: true},
		"both, same field": {why: "whose change is right, a person must say", v1: `{"metadata":{"labels":{"team":"green"}}}`,
			v3: `{"metadata":{"labels":{"team":"red"}}}`, want: "Edited metadata.labels.team"},
		"both, and the edit agrees": {why: "what he wrote is what v1 says by now; the rest is copied", v1: `{"metadata":{"labels":{"team":"green"}},"spec":{"nets":["12.0.0.0/8"]}}`,
			v3: `{"metadata":{"labels":{"team":"green"}}}`, want: "Stale spec.nets", repaired: true},
		"edited into equality": {why: "equal is equal, whoever wrote it", v1: `{"metadata":{"labels":{"team":"green"}}}`, v3: `{"metadata":{"labels":{"team":"green"}}}`, repaired: true},
	}
	s := newScene(t, interceptor.Funcs{})
	name := func(text string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(text) }
	for text := range cases {
		s.v1("GlobalNetworkSet", "metadata: {name: "+name(text)+", labels: {team: blue}, annotations: {note: old}, finalizers: [test/a]}\n"+nets)
	}
	s.v1("GlobalNetworkSet", "metadata: {name: untouched}\n"+nets)
	s.mustCopy()
	found, conflicts := map[string]string{}, map[string]string{}
	for text, tc := range cases {
		s.patchIf(v1("GlobalNetworkSet"), name(text), tc.v1)
		s.patchIf(v3("GlobalNetworkSet"), name(text), tc.v3)
		if tc.want != "" {
			found[name(text)] = tc.want
		}
		if !tc.repaired {
			conflicts[name(text)] = tc.want
		}
	}
	s.wantFindings("before", s.mustVerify().Different, found)
	for _, when := range []string{"a copy", "another copy"} {
		s.wantFindings(when, s.mustCopy().Conflicts, conflicts)
		s.wantFindings("verified after "+when, s.mustVerify().Different, conflicts)
	}
	compared, err := s.copier.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.wantFindings("for people", compared.Conflicts, conflicts)
	for name := range conflicts { // the person lets v1 be right
		s.patch(s.get(v3("GlobalNetworkSet"), name), `{"metadata":{"finalizers":null}}`)
		s.remove(s.get(v3("GlobalNetworkSet"), name))
	}
	s.mustCopy()
	s.wantVerified()
}

func (s *scene) patchIf(gvk schema.GroupVersionKind, name, change string) {
	s.Helper()
	if change != "" {
		s.patch(s.get(gvk, name), change)
	}
}

// An owner that somebody took away is not one that we have withheld.
func TestEditedOwners(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	tier := s.v1("Tier", "metadata: {name: security}\nspec: {order: 5, defaultAction: Deny}")
	policy := s.v1("GlobalNetworkPolicy", owned("security.p", "crd.projectcalico.org/v1", "Tier", "security", tier)+"spec: {tier: security, selector: all()}")
	s.v1("Tier", owned("early", "projectcalico.org/v3", "GlobalNetworkPolicy", "security.p", policy)+"spec: {order: 6, defaultAction: Deny}")
	s.mustCopy()
	s.wantRemap(1)
	s.wantVerified()
	s.patch(s.get(v3("GlobalNetworkPolicy"), "security.p"), `{"metadata":{"ownerReferences":null}}`)
	s.patch(s.get(v3("Tier"), "early"), `{"metadata":{"ownerReferences":null}}`)
	s.mustCopy()
	s.wantRemap(0)
	s.wantFindings("owners that are gone", s.mustVerify().Different, map[string]string{
		"security.p": "Edited metadata.ownerReferences", "early": "Edited metadata.ownerReferences"})
}

// admitted are the labels of a v3 object that is created with one label, as a dry run shows them.
func admitted(ctx context.Context) (map[string]string, error) {
	probe := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	probe.SetGroupVersionKind(v3("GlobalNetworkSet"))
	probe.SetName("probe")
	probe.SetLabels(map[string]string{"team": "blue"})
	err := live.Client.Create(ctx, probe, client.DryRunAll)
	return probe.GetLabels(), err
}

// labelling is an admission policy of somebody who labels, or unlabels, every v3 object, until the test
// ends: until then it is no more.
func labelling(t *testing.T, operations, expression string) {
	t.Helper()
	t.Cleanup(func() { // after the policy is deleted, which the API server notices within a second
		ctx := context.WithoutCancel(t.Context())
		if err := harness.Await(ctx, "the policy to be gone", 30*time.Second, func(ctx context.Context) error {
			labels, err := admitted(ctx)
			if err == nil && !maps.Equal(labels, map[string]string{"team": "blue"}) {
				err = fmt.Errorf("labelled %v", labels)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	for _, text := range []string{`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: test-labels}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [projectcalico.org], apiVersions: ["*"], resources: ["*"], operations: [` + operations + `]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '` + expression + `'}}]`, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: test-labels}
spec: {policyName: test-labels}`} {
		s := &scene{T: t}
		obj := s.create(text)
		t.Cleanup(func() {
			if err := live.Client.Delete(context.WithoutCancel(t.Context()), obj); err != nil {
				t.Error(err)
			}
		})
	}
}

// Admission that changes every copy must not keep a migration from converging.
func TestWhatAdmissionChangesIsNoConflict(t *testing.T) {
	cases := map[string]struct{ why, operations string }{
		"always":      {why: "a repair would be changed in the same way", operations: "CREATE, UPDATE"},
		"on creation": {why: "our own write brought the label, and another one of ours takes it away", operations: "CREATE"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, interceptor.Funcs{})
			labelling(t, tc.operations, `Object{metadata: Object.metadata{labels: {"audited": "yes"}}}`)
			harness.Eventually(t, "the policy at work", func() error {
				labels, err := admitted(t.Context())
				if err == nil && labels["audited"] != "yes" {
					err = errors.New("not labelled")
				}
				return err
			})
			for i := range 5 {
				s.v1("GlobalNetworkSet", fmt.Sprintf("metadata: {name: set-%d, labels: {team: blue}}\nspec: {nets: [10.0.0.0/8]}", i))
			}
			s.wantCounts("copy", s.mustCopy(), copier.Counts{Created: 5})
			if got := s.get(v3("GlobalNetworkSet"), "set-0").GetLabels()["audited"]; got != "yes" {
				t.Fatalf("the policy does nothing, the label is %q", got)
			}
			again := s.mustCopy() // as after a crash
			if len(again.Conflicts) != 0 || again.Kept+again.Updated != 5 {
				t.Errorf("%+v, conflicts %v: want none, %s", again.Counts, again.Conflicts, tc.why)
			}
			s.wantVerified()
			s.patch(s.get(v3("GlobalNetworkSet"), "set-1"), `{"spec":{"nets":["12.0.0.0/8"]}}`)
			s.wantFindings("somebody else's change is still found", s.mustVerify().Different, map[string]string{"set-1": "Edited spec.nets[0]"})
		})
	}
}

// statusOf has one condition, as Calico writes it for a pool.
func statusOf(obj *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if len(conditions) == 0 {
		return ""
	}
	return conditions[0].(map[string]any)["status"].(string)
}

const (
	poolSpec    = "spec: {cidr: 10.0.0.0/8, blockSize: 26, nodeSelector: all(), vxlanMode: Never, ipipMode: Never}"
	allocatable = `{"status":{"conditions":[{"type":"Allocatable","status":"%s","reason":"r","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
)

func (s *scene) setStatus(obj *unstructured.Unstructured, status string) {
	s.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, allocatable, status))
	if err := live.Client.Status().Patch(s.Context(), obj, patch); err != nil {
		s.Fatal(err)
	}
}

// A status goes with the object; one that a controller has written in v3 by then stays.
func TestStatusIsCopiedOnce(t *testing.T) {
	var lost sync.Once
	down := map[string]bool{"crash": true}
	s := newScene(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
		if down[obj.GetName()] {
			return syscall.ECONNREFUSED
		}
		err := c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		lost.Do(func() { err = syscall.ECONNRESET }) // it has landed, and nobody learns of it
		return err
	}})
	for _, name := range []string{"with", "moved", "crash"} {
		s.v1("IPPool", "metadata: {name: "+name+"}\n"+poolSpec)
		s.setStatus(s.get(v1("IPPool"), name), "True")
	}
	s.v1("IPPool", "metadata: {name: without}\n"+poolSpec)
	if _, err := s.copier.Copy(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "IPPool /crash") {
		t.Fatalf("a status that is not written is no success: %v", err)
	}
	down = nil
	s.mustCopy()
	s.setStatus(s.get(v3("IPPool"), "moved"), "False")
	s.mustCopy()
	s.wantVerified()
	got := map[string]string{}
	for _, name := range []string{"with", "moved", "crash", "without"} {
		got[name] = statusOf(s.get(v3("IPPool"), name))
	}
	if diff := cmp.Diff(map[string]string{"with": "True", "moved": "False", "crash": "True", "without": ""}, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	lone := s.get(v3("IPPool"), "with")
	if err := live.Client.Status().Patch(t.Context(), lone, client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	s.wantFindings("a status is missing", s.mustVerify().Different, map[string]string{"with": "Stale status"})
	s.mustCopy()
	s.wantVerified()
}

// Who was first in v1 is first in v3, whatever the names say.
func TestPoolsAreCreatedInOrder(t *testing.T) {
	var mu sync.Mutex
	var order []string
	s := newScene(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			mu.Lock()
			order = append(order, obj.GetName())
			mu.Unlock()
			return c.Create(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			mu.Lock()
			order = append(order, obj.GetName()+" "+sub)
			mu.Unlock()
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	for name, created := range map[string]string{"c-first": "2020-01-01T00:00:00Z", "b-second": "2021-01-01T00:00:00Z", "a-third": "2022-01-01T00:00:00Z", "d-third": "2022-01-01T00:00:00Z"} {
		s.v1("IPPool", "metadata: {name: "+name+`, annotations: {projectcalico.org/metadata: '{"creationTimestamp":"`+created+"\"}'}}\n"+poolSpec)
		s.setStatus(s.get(v1("IPPool"), name), "True")
	}
	s.mustCopy()
	want := []string{"c-first", "c-first status", "b-second", "b-second status", "a-third", "a-third status", "d-third", "d-third status"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// What was verified is what v1 holds, until v1 changes; v3 and its CRDs have no say in it.
func TestDigestsFollowV1(t *testing.T) {
	s := newScene(t, interceptor.Funcs{})
	for _, name := range []string{"a", "b"} {
		s.v1("IPReservation", "metadata: {name: "+name+"}\nspec: {reservedCIDRs: [10.0.0.0/8]}")
	}
	s.v1("IPPool", "metadata: {name: pool}\n"+poolSpec)
	s.mustCopy()
	agree := func() {
		t.Helper()
		now, err := s.copier.V1Digests(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, was := range s.mustVerify().Verified() {
			if diff := cmp.Diff(copier.V1Kind{VerifiedKind: was, Listed: was.Objects}, now[was.Kind]); diff != "" {
				t.Errorf("Verify and V1Digests disagree (-Verify +V1Digests):\n%s", diff)
			}
		}
	}
	before := s.mustVerify().Verified()
	agree()
	s.setStatus(s.get(v1("IPPool"), "pool"), "False") // moves on by itself
	s.patch(s.get(v3("IPReservation"), "a"), `{"spec":{"reservedCIDRs":["11.0.0.0/8"]}}`)
	s.patch(s.get(v1("IPReservation"), "b"), `{"metadata":{"annotations":{"x":"y"}}}`)
	var changed []string
	for i, after := range s.mustVerify().Verified() {
		if after != before[i] {
			changed = append(changed, fmt.Sprintf("%s %d %v", after.Kind, after.Objects, after.Digest != before[i].Digest))
		}
	}
	if diff := cmp.Diff([]string{"IPReservation 2 true"}, changed); diff != "" {
		t.Errorf("digests that changed (-want +got):\n%s", diff)
	}
	agree()
}
