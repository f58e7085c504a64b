package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// A whole migration as in the documents, from the first check to the removal of the v1 CRDs, with the
// rights of the chart, and without MutatingAdmissionPolicy, which Kubernetes before 1.36 does not serve.
// The parts build on each other.
func TestLifecycle(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(2, 1000), Cluster: harness.Options{NoPolicies: []string{harness.MutatingPolicies}}})
	foreign := w.installForeignCRD(t)
	typeless := w.typeless(t)
	plan, _, _ := w.typed(t, "kubectl phasegate plan -o wide")
	owned := w.applyInV1(t)
	before := w.content(t)
	w.revoke(t, "apiextensions.k8s.io", "customresourcedefinitions", "delete") // the right to clean up may come at the end
	w.assertHeedsOperator(t)
	w.manager(t)
	watched := w.watch(t, setup.MigrationName)

	if err := w.Migrate(t.Context(), setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	w.await(t, setup.MigrationName, "Converged")
	converged := time.Now()

	t.Run("converged", w.assertConverged)
	t.Run("content", func(t *testing.T) { assertSameContent(t, before, w.content(t)) })
	t.Run("admission", w.assertAdmitted)
	t.Run("warnings", func(t *testing.T) {
		if text := w.awaitEvent(t, "ChecksWarn"); !strings.Contains(text, "admission-policies: the API server does not serve MutatingAdmissionPolicy: ") {
			t.Errorf("what is worth knowing is told as %q", text)
		}
	})
	t.Run("awkward objects", w.assertAwkwardIPAM)
	t.Run("what v1 leaves out", func(t *testing.T) { w.assertTypes(t, typeless, plan) })
	t.Run("owners", w.assertOwners)
	t.Run("field owners", func(t *testing.T) { w.assertFieldOwners(t, owned) })

	t.Run("complete", func(t *testing.T) {
		if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
			t.Fatal(err)
		}
		w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "datastoremigration/"+setup.MigrationName)
		w.assertComplete(t, len(before))
	})
	t.Run("clean up", func(t *testing.T) {
		w.askRemoval(t, setup.MigrationName)
		w.awaitMessage(t, setup.MigrationName, fmt.Sprintf("%[1]d of %[1]d v1 CRDs may not be deleted by this account, so none is", len(w.Registry.All())))
		if left := w.v1CRDs(t); len(left) != len(w.Registry.All())+1 {
			t.Errorf("without the right to all, some are deleted; left are %q", left)
		}
		w.restoreRights(t)
		w.awaitGone(t, setup.MigrationName)
		w.assertV1Gone(t, foreign)
		assertSameContent(t, before, w.content(t))
		w.assertFieldOwners(t, owned)
	})
	t.Run("owners later", func(t *testing.T) {
		// The garbage collector would have had its time: it looks at an object within moments of its owner's absence.
		harness.Eventually(t, "10 s after Converged", func() error {
			if left := 10*time.Second - time.Since(converged); left > 0 {
				return fmt.Errorf("%s to go", left)
			}
			return nil
		})
		w.assertOwners(t)
	})
	for _, flaw := range watched() {
		t.Error(flaw)
	}
}

// assertHeedsOperator: the Tigera operator does not run Calico on v3 without MutatingAdmissionPolicy.
func (w *world) assertHeedsOperator(t *testing.T) {
	t.Helper()
	owners := func(json string) {
		w.kubectl(t, "patch", "daemonset", "calico-node", "-n", setup.CalicoNamespace, "--type=merge", "-p", `{"metadata":{"ownerReferences":`+json+`}}`)
	}
	owners(`[{"apiVersion":"operator.tigera.io/v1","kind":"Installation","name":"default","uid":"1b7e0d3f-9f0a-4a55-8d0e-3c5a3a0f6a11","controller":true}]`)
	w.said(t, "kubectl phasegate check --controllers datastoremigration", 1, "× tigera-operator: ", "the API server does not serve MutatingAdmissionPolicy: without it the operator refuses")
	owners("null")
}

// assertConverged checks what a migration says, and what is locked, while it waits for components.
func (w *world) assertConverged(t *testing.T) {
	t.Helper()
	dm := w.awaitMessage(t, setup.MigrationName, "calico-node")
	assertAtRest(t, dm, "Reconciling")
	if diff := cmp.Diff([]string(nil), dm.Status.Machine.HeldNames()); diff != "" {
		t.Errorf("v3 is open, the rest is kept on purpose (-want +got):\n%s", diff)
	}
	w.assertReadable(t, setup.MigrationName)
	if v1, v3 := w.ready(t, w.Registry.Lock().V1GVK().GroupVersion().String()), w.ready(t, w.Registry.Lock().V3GVK().GroupVersion().String()); v1 || !v3 {
		t.Errorf("datastoreReady is %t in v1 and %t in v3: v1 stays locked, v3 is open", v1, v3)
	}
}

// assertComplete checks what a migration that is through says of itself.
func (w *world) assertComplete(t *testing.T, migrated int) {
	t.Helper()
	dm := w.await(t, setup.MigrationName, "Complete")
	assertAtRest(t, dm, "Ready")
	if diff := cmp.Diff([]string{"Pending", "Migrating", "Converged", "Complete"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if dm.Status.StartedAt == nil || dm.Status.CompletedAt == nil || dm.Status.CompletedAt.Before(dm.Status.StartedAt) {
		t.Errorf("started at %v, completed at %v", dm.Status.StartedAt, dm.Status.CompletedAt)
	}
	if p := dm.Status.Progress; p == nil || int(p.Migrated) != migrated || p.Skipped != 0 || p.TypeProgress != "21 / 21" {
		t.Errorf("progress %+v, want %d objects of 21 types", p, migrated)
	}
	text := w.assertReadable(t, setup.MigrationName)
	for _, part := range []string{"Converged", "ReadyToCutOver", "RolledOut"} {
		if !strings.Contains(text, part) {
			t.Errorf("describe does not tell of %s:\n%s", part, text)
		}
	}
	w.assertToldAll(t, dm)
}

// installForeignCRD adds a kind to Calico's old group that the registry does not list.
func (w *world) installForeignCRD(t *testing.T) string {
	t.Helper()
	set := crds.Generate(w.Registry)
	crd := set.CRDs[0].DeepCopy()
	name := "widgets." + resources.V1Group
	crd.SetName(name)
	names := map[string]any{"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"}
	if err := unstructured.SetNestedMap(crd.Object, names, "spec", "names"); err != nil {
		t.Fatal(err)
	}
	if err := crds.Install(t.Context(), w.Config, crds.Set{CRDs: []*unstructured.Unstructured{crd}}); err != nil {
		t.Fatal(err)
	}
	return name
}

// ready reads the lock of one side.
func (w *world) ready(t *testing.T, groupVersion string) bool {
	t.Helper()
	info := w.get(t, groupVersion, "ClusterInformation", "default")
	ready, _, _ := unstructured.NestedBool(info.Object, "spec", "datastoreReady")
	return ready
}

func (w *world) get(t *testing.T, groupVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(groupVersion)
	obj.SetKind(kind)
	if err := w.Client.Get(t.Context(), types.NamespacedName{Name: name}, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

const v3 = resources.V3Group + "/" + resources.V3Version

// assertAwkwardIPAM looks at the fields that other migrators are known to lose.
func (w *world) assertAwkwardIPAM(t *testing.T) {
	for _, id := range []string{"vxlan-tunnel-addr-Node-1", "k8s-pod-network.ABCDEF0123456789"} {
		handle := w.get(t, v3, "IPAMHandle", strings.ToLower(id))
		if got, _, _ := unstructured.NestedString(handle.Object, "spec", "handleID"); got != id {
			t.Errorf("handleID is %q, want %q: upper case is part of it", got, id)
		}
	}
	block := w.get(t, v3, "IPAMBlock", "fd00-10-64---122")
	strict, _, _ := unstructured.NestedBool(block.Object, "spec", "strictAffinity")
	attributes, _, _ := unstructured.NestedSlice(block.Object, "spec", "attributes")
	var released any
	if len(attributes) > 1 {
		released = attributes[1].(map[string]any)["releasedAt"]
	}
	if !strict || released != "2026-06-01T12:00:00Z" {
		t.Errorf("strictAffinity is %t, releasedAt %v: both must arrive", strict, released)
	}
}

// assertOwners checks that the policies owned by a Tier are owned by its copy.
func (w *world) assertOwners(t *testing.T) {
	owned := map[string]string{"platform.owned-raw": "platform"} // by policy
	for i := range fixture.OwnedPolicies {
		owned[fmt.Sprintf("%s.owned-%02d", fixture.OwnerTier, i)] = fixture.OwnerTier
	}
	for name, owner := range owned {
		tier := w.get(t, v3, "Tier", owner)
		want := metav1.OwnerReference{APIVersion: v3, Kind: "Tier", Name: tier.GetName(), UID: tier.GetUID()}
		policy := w.get(t, v3, "GlobalNetworkPolicy", name)
		if diff := cmp.Diff([]metav1.OwnerReference{want}, policy.GetOwnerReferences()); diff != "" {
			t.Errorf("owners of %s (-want +got):\n%s", policy.GetName(), diff)
		}
	}
}

// assertToldAll checks that each transition has its Event.
func (w *world) assertToldAll(t *testing.T, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	harness.Eventually(t, "an Event for each transition", func() error {
		events := &corev1.EventList{}
		if err := w.Client.List(context.Background(), events); err != nil {
			return err
		}
		told := sets.New[string]()
		for _, e := range events.Items {
			if e.InvolvedObject.UID == dm.UID {
				told.Insert(e.Reason)
			}
		}
		for _, h := range dm.Status.Machine.History {
			if !told.Has(h.Reason) {
				return fmt.Errorf("none for %s (%s → %s), there are %v", h.Reason, h.From, h.To, sets.List(told))
			}
		}
		return nil
	})
}

// assertV1Gone checks that the v1 CRDs of the registry are gone, and no other.
func (w *world) assertV1Gone(t *testing.T, foreign string) {
	t.Helper()
	if diff := cmp.Diff([]string{foreign}, w.v1CRDs(t)); diff != "" {
		t.Errorf("CRDs of %s (-want +got): only those that were migrated go\n%s", resources.V1Group, diff)
	}
}

func (w *world) v1CRDs(t *testing.T) (names []string) {
	t.Helper()
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := w.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, crd := range list.Items {
		if crd.Spec.Group == resources.V1Group {
			names = append(names, crd.Name)
		}
	}
	return names
}

// watch collects what is wrong with any version of a migration that a watcher sees, until called.
func (w *world) watch(t *testing.T, name string) func() []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := w.Client.Watch(ctx, &migrationv1.DatastoreMigrationList{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var found []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		migrated := int32(0)
		for event := range stream.ResultChan() {
			dm, ok := event.Object.(*migrationv1.DatastoreMigration)
			if !ok || dm.Name != name {
				continue
			}
			for _, flaw := range flaws(dm) {
				found = append(found, fmt.Sprintf("seen in phase %s: %s", dm.Status.Phase, flaw))
			}
			if p := dm.Status.Progress; p != nil {
				if p.Migrated < migrated {
					found = append(found, fmt.Sprintf("progress went back from %d to %d", migrated, p.Migrated))
				}
				migrated = p.Migrated
			}
		}
	}()
	return func() []string {
		cancel()
		stream.Stop()
		select {
		case <-done:
		case <-time.After(harness.Patience):
			return []string{errors.New("the watch does not end").Error()}
		}
		return slices.Compact(found)
	}
}
