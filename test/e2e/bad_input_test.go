package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	phasegatev1alpha1 "github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

func v1Set(name string, annotations map[string]string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"192.0.2.1/32"}}}}
	obj.SetAPIVersion(resources.V1Group + "/" + resources.V1Version)
	obj.SetKind("GlobalNetworkSet")
	obj.SetName(name)
	obj.SetAnnotations(annotations)
	return obj
}

func v1Policy(name string, annotations map[string]string) *unstructured.Unstructured {
	obj := v1Set(name, annotations)
	obj.SetKind("GlobalNetworkPolicy")
	obj.Object["spec"] = map[string]any{"tier": "default", "order": int64(5), "selector": "all()"}
	return obj
}

// create makes objects that are gone again when the returned function was called, or the test is over.
func (w *world) create(t *testing.T, objs ...*unstructured.Unstructured) (remove func()) {
	t.Helper()
	for _, obj := range objs {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	remove = func() {
		for _, obj := range objs {
			if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), obj)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(remove)
	return remove
}

// changeCRD installs a changed definition under the field manager of the original, so that restoreCRDs
// takes the change back.
func (w *world) changeCRD(t *testing.T, name string, change func(map[string]any)) {
	t.Helper()
	if err := crds.Install(t.Context(), w.Config, crds.Set{CRDs: []*unstructured.Unstructured{w.definition(t, name, change)}}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) definition(t *testing.T, name string, change func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	set, err := crds.Load(w.Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range set.CRDs {
		if crd.GetName() == name {
			change(crd.Object["spec"].(map[string]any))
			return crd
		}
	}
	t.Fatalf("there is no CRD %s", name)
	return nil
}

func rootSchema(spec map[string]any) map[string]any {
	version := spec["versions"].([]any)[0].(map[string]any)
	return version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
}

// What cannot be migrated is named before anything is locked, and nothing is changed. Once it is put right
// the same migration goes on. What is said of each state of a CRD: controllers/datastoremigration.TestUnusableCRD.
func TestBadInput(t *testing.T) {
	const sets, pools = "globalnetworksets.projectcalico.org", "ippools.projectcalico.org"
	restore := func(t *testing.T, w *world) func() {
		t.Cleanup(func() { w.restoreCRDs(t) })
		return func() { w.restoreCRDs(t) }
	}
	cases := map[string]struct {
		why   string
		spoil func(t *testing.T, w *world) (mend func())
		says  []string // kind, name, reason and remedy
		held  []string
	}{
		"unreadable metadata annotation": {why: "labels and owners are in it: guessing would lose them",
			spoil: func(t *testing.T, w *world) func() {
				return w.create(t, v1Set("garbled", map[string]string{resources.MetadataAnnotation: `{"labels":`}))
			}, says: []string{"GlobalNetworkSet garbled:", resources.MetadataAnnotation, ";"}},
		"two objects become one": {why: "one of the two would be lost",
			spoil: func(t *testing.T, w *world) func() {
				return w.create(t, v1Policy("twin", nil), v1Policy("default.twin", map[string]string{resources.MetadataAnnotation: "{}"}))
			}, says: []string{"GlobalNetworkPolicy ", `would both become "twin" in v3`, "delete or rename one of the two"}},
		"v3 refuses an object": {why: "its schema has a rule that v1 lacks: found while the others are copied ahead, not under the lock",
			spoil: func(t *testing.T, w *world) func() {
				w.changeCRD(t, sets, func(spec map[string]any) {
					rootSchema(spec)["x-kubernetes-validations"] = []any{map[string]any{
						"rule": "self.metadata.name != 'blocklist-3'", "message": "blocklist-3 is not wanted"}}
				})
				return restore(t, w)
			}, says: []string{"GlobalNetworkSet blocklist-3:", "blocklist-3 is not wanted", "change the v1 object"}, held: held("v3Copies")},
		"v3 CRD not Established": {why: "another CRD has its names: it is there, and serves nothing",
			spoil: func(t *testing.T, w *world) func() {
				w.dropCRD(t, pools)
				squatter := w.definition(t, pools, func(spec map[string]any) {
					spec["names"] = map[string]any{"kind": "Squatter", "listKind": "SquatterList", "plural": "squatters", "singular": "ippool"}
				})
				squatter.SetName("squatters.projectcalico.org")
				if err := crds.Install(t.Context(), w.Config, crds.Set{CRDs: []*unstructured.Unstructured{squatter}}); err != nil {
					t.Fatal(err)
				}
				if err := w.Client.Create(t.Context(), w.definition(t, pools, func(map[string]any) {})); err != nil {
					t.Fatal(err)
				}
				return func() {
					w.dropCRD(t, pools)
					w.dropCRD(t, squatter.GetName())
					w.restoreCRDs(t)
				}
			}, says: []string{"CRD " + pools, "is not Established", "kubectl describe crd"}},
		"v3 CRD that is being deleted": {why: "it takes what is copied into it along",
			spoil: func(t *testing.T, w *world) func() {
				release := w.holdCRD(t, pools)
				return func() {
					release()
					w.restoreCRDs(t)
				}
			}, says: []string{"CRD " + pools, "is being deleted", "apply it again"}},
		"somebody else's lock": {why: "whoever locked the datastore has a reason",
			spoil: func(t *testing.T, w *world) func() { return w.lockByHand(t) },
			says:  []string{"v1 ClusterInformation has datastoreReady=false", "find out who"}},
	}
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			mend := tc.spoil(t, w)
			spoiled := w.snapshot(t)
			w.start(t, setup.MigrationName, "begin")
			for _, part := range tc.says {
				dm := w.awaitMessage(t, setup.MigrationName, part)
				if dm.Status.Phase != "Pending" || !slices.Equal(dm.Status.Machine.HeldNames(), tc.held) {
					t.Fatalf("phase %s, held %v: %s", dm.Status.Phase, dm.Status.Machine.HeldNames(), tc.why)
				}
			}
			w.assertReadable(t, setup.MigrationName)
			if diff := cmp.Diff(spoiled, w.snapshot(t)); tc.held == nil && diff != "" {
				t.Errorf("something was changed (-before +after):\n%s", diff)
			}
			mend()
			w.annotate(t, setup.MigrationName, map[string]string{"e2e.phasegate.dev/look": "again"})
			w.awaitGate(t, setup.MigrationName, "begin")
			w.remove(t, setup.MigrationName)
			w.assertUntouched(t)
		})
	}
}

// holdCRD deletes a CRD that cannot go before the function is called that it returns.
func (w *world) holdCRD(t *testing.T, name string) (release func()) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	finalizers := func(list string) {
		t.Helper()
		if err := w.Client.Patch(context.Background(), crd, client.RawPatch(types.JSONPatchType, []byte(list))); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`[{"op":"add","path":"/metadata/finalizers","value":["e2e.phasegate.dev/hold"]}]`)
	if err := w.Client.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	return func() {
		harness.Eventually(t, name+" to have lost its objects", func() error { // its other finalizer goes then
			if err := w.Client.Get(context.Background(), client.ObjectKeyFromObject(crd), crd); err != nil {
				return err
			}
			return nilIf(len(crd.Finalizers) == 1)
		})
		finalizers(`[{"op":"remove","path":"/metadata/finalizers"}]`)
		harness.Eventually(t, name+" to be gone", func() error {
			return nilIf(apierrs.IsNotFound(w.Client.Get(context.Background(), client.ObjectKeyFromObject(crd), crd)))
		})
	}
}

// lockByHand does what somebody else's maintenance would.
func (w *world) lockByHand(t *testing.T) (open func()) {
	t.Helper()
	set := func(ready bool) {
		t.Helper()
		info := &unstructured.Unstructured{}
		info.SetGroupVersionKind(w.Registry.Lock().V1GVK())
		info.SetName("default")
		patch := client.RawPatch("application/merge-patch+json", []byte(map[bool]string{
			true: `{"spec":{"datastoreReady":true}}`, false: `{"spec":{"datastoreReady":false}}`}[ready]))
		if err := w.Client.Patch(context.Background(), info, patch); err != nil {
			t.Fatal(err)
		}
	}
	set(false)
	return func() { set(true) }
}

// A right that is missing is named before the lock: not only for the way there, also for the way back. TestStory in
// test/install takes each right of the chart away.
func TestMissingRights(t *testing.T) {
	cases := map[string]struct {
		why, group, resource string
		verbs                []string
		says                 string
	}{
		"put back":       {"only an abort needs it", "apiregistration.k8s.io", "apiservices", []string{"create"}, "may not create apiservices.apiregistration.k8s.io"},
		"watch rollouts": {"Converged would hang", "apps", "daemonsets", []string{"get"}, "may not get daemonsets.apps calico-node in namespace calico-system"},
	}
	w := pristine(t)
	dir := gated(t)
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			account := "poor-" + strings.ReplaceAll(name, " ", "-")
			if err := w.Grant(t.Context(), account, w.without(t, managerRules(t), tc.group, tc.resource, tc.verbs...)); err != nil {
				t.Fatal(err)
			}
			w.managerAs(t, account, "--phases-dir", dir)
			w.start(t, setup.MigrationName, "begin")
			dm := w.awaitMessage(t, setup.MigrationName, tc.says)
			if dm.Status.Phase != "Pending" || len(dm.Status.Machine.HeldNames()) > 0 || !strings.Contains(dm.Status.Message, "grant it") {
				t.Errorf("phase %s, held %v, %q: %s", dm.Status.Phase, dm.Status.Machine.HeldNames(), dm.Status.Message, tc.why)
			}
			if err := w.Grant(t.Context(), account, managerRules(t)); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the machine to go on", func() error {
				now := time.Now().Truncate(4 * time.Second) // each time, what is under way begins anew
				w.annotate(t, setup.MigrationName, map[string]string{"e2e.phasegate.dev/look": now.String()})
				return nilIf(w.read(t, setup.MigrationName).Status.Phase == "Migrating")
			})
			w.remove(t, setup.MigrationName)
		})
	}
}

// The API server itself refuses a migration that makes no sense.
func TestRefusedSpecs(t *testing.T) {
	w := pristine(t)
	cases := map[string]struct{ why, kind, says string }{
		"unknown type": {"there is one way only", "CRDsToAPIServer", "APIServerToCRDs"},
		"no type":      {"nothing is assumed", "", "spec.type"},
	}
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
			dm.Spec.Type = migrationv1.MigrationType(tc.kind)
			err := w.Client.Create(t.Context(), dm)
			if !apierrs.IsInvalid(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want a refusal that says %q: %s", err, tc.says, tc.why)
			}
		})
	}
}

// A status that this program's machine does not know stays as it is, lock included, until somebody decides.
func TestUnknownPhase(t *testing.T) {
	w := pristine(t)
	dir := gated(t)
	p := w.manager(t, "--phases-dir", dir)
	w.start(t, setup.MigrationName, "locked")
	before := w.awaitGate(t, setup.MigrationName, "locked")
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	w.setPhase(t, "Nowhere")
	p = w.manager(t, "--phases-dir", dir)
	dm := w.awaitMessage(t, setup.MigrationName, "Nowhere")
	assertAtRest(t, dm, "Stalled")
	for _, part := range []string{`phase "Nowhere"`, "restore the phase", "phaseMap"} {
		if !strings.Contains(dm.Status.Message, part) {
			t.Errorf("the message does not say %q: %s", part, dm.Status.Message)
		}
	}
	w.askRemoval(t, setup.MigrationName)
	dm = w.awaitStatus(t, setup.MigrationName, "seen after the deletion", func(dm *migrationv1.DatastoreMigration) bool {
		return dm.Status.ObservedGeneration == dm.Generation && dm.DeletionTimestamp != nil
	})
	if diff := cmp.Diff(before.Status.Machine.HeldNames(), dm.Status.Machine.HeldNames()); diff != "" || len(dm.Finalizers) == 0 {
		t.Errorf("something moved: finalizers %v, held (-before +after):\n%s", dm.Finalizers, diff)
	}
	if err := p.Stop(harness.Patience); err != nil {
		t.Fatal(err)
	}
	w.setPhase(t, "Migrating")
	w.manager(t, "--phases-dir", dir)
	w.awaitGone(t, setup.MigrationName)
}

func (w *world) setPhase(t *testing.T, phase string) {
	t.Helper()
	state := &phasegatev1alpha1.MachineState{}
	state.Name = phasegatev1alpha1.MachineStateName(datastoremigration.MachineName, w.read(t, setup.MigrationName).UID)
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(state), state); err != nil {
		t.Fatal(err)
	}
	before := state.DeepCopy()
	state.Status.Phase = phase
	state.Status.History[len(state.Status.History)-1].To = phase
	if err := w.Client.Patch(t.Context(), state, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
