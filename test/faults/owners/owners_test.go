package owners_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

const (
	// policies belong to a tier. They are more than the garbage collector gets through while a
	// migration is released; slow is how long the creation of each copy takes.
	policies = 500
	slow     = 50 * time.Millisecond
	tierName = "platform"
)

// rounds is how often a migration must lose nothing.
func rounds() int {
	if os.Getenv("FAULTS") == "all" {
		return 5
	}
	return 1
}

var (
	tierSpec   = map[string]any{"order": int64(50), "defaultAction": "Pass"}
	policySpec = map[string]any{"tier": tierName, "selector": "all()", "types": []any{"Ingress"}}
	slowly     = &faults.Rule{Times: faults.Always, Do: faults.Delay(slow), When: func(info *request.RequestInfo) bool {
		return info.Verb == "create" && info.APIGroup == resources.V3Group
	}}
)

// The garbage collector sees how v1 and v3 change places: whatever belongs to an object of Calico is
// still there afterwards. The parts without our steps prove that the collector is able to do harm.
func TestOwners(t *testing.T) {
	w := newWorld(t)
	w.asAtFirst() // it may have seen the v3 CRDs before the stand-in was there, and not yet what is served since
	w.furnish()
	w.part("without our steps an abort loses some", losing((*world).abortLoses))
	w.asAtFirst() // what the garbage collector has not lost yet it would take later
	w.furnish()
	before := w.everything()
	for round := range rounds() {
		way, edits := "ahead", []edit{}
		if round%2 == 1 {
			way, edits = "under the lock", []edit{underTheLock}
		}
		w.part(fmt.Sprintf("copied slowly %s, and aborted %d", way, round), func(w *world) {
			w.copiedAndAborted(before, edits...)
		})
	}
	if rounds() == 1 {
		return // the rest takes minutes
	}
	w.part("in the peer's order copies are lost", losing((*world).peerLoses))
	w.asAtFirst()
	w.furnish()
	w.part("to the new owners", (*world).converges)
}

// looksOn returns when the garbage collector sees what is served as v3 now, and has looked at everything
// that it had to look at before.
func (w *world) looksOn() {
	w.t.Helper()
	w.seenByCollector(w.v3("Tier", "canary", tierSpec, nobody("Tier")), w.v3("GlobalNetworkPolicy", tierName+".canary", policySpec, nobody("Tier")))
	w.settled()
}

func (w *world) part(name string, run func(*world)) {
	w.t.Helper()
	if !w.t.Run(name, func(t *testing.T) { run(w.in(t)) }) {
		w.t.Fatal("the cluster is not fit for the other parts")
	}
}

// furnish creates what is missing: a tier that owns policies, and outside Calico what a policy owns.
func (w *world) furnish() {
	w.t.Helper()
	tier := w.v3("Tier", tierName, tierSpec)
	w.ensure(tier)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range policies {
		group.Go(func() error { return w.ensured(w.v3("GlobalNetworkPolicy", policyName(i), policySpec, ownerOf(tier))) })
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
	if err := crds.Install(w.t.Context(), w.Config, crds.Set{CRDs: []*unstructured.Unstructured{widgets()}}); err != nil {
		w.t.Fatal(err)
	}
	owner := w.v3("GlobalNetworkPolicy", policyName(0), nil)
	w.read(owner)
	meta := metav1.ObjectMeta{Name: "owned", Namespace: metav1.NamespaceDefault, OwnerReferences: []metav1.OwnerReference{ownerOf(owner)}}
	widget := &unstructured.Unstructured{Object: map[string]any{}}
	widget.SetGroupVersionKind(widgetGVK)
	widget.SetName(meta.Name)
	widget.SetNamespace(meta.Namespace)
	widget.SetOwnerReferences(meta.OwnerReferences)
	w.ensure(&corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}, widget)
}

func policyName(i int) string { return fmt.Sprintf("%s.owned-%03d", tierName, i) }

func (w *world) ensure(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		if err := w.ensured(obj); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) read(obj client.Object) {
	w.t.Helper()
	if err := w.Client.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		w.t.Fatal(err)
	}
}

// ensured reads an object that is there.
func (w *world) ensured(obj client.Object) error {
	err := w.Client.Create(w.t.Context(), obj)
	if apierrs.IsAlreadyExists(err) {
		return w.Client.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
	}
	return err
}

var widgetGVK = schema.GroupVersionKind{Group: "third.example.com", Version: "v1", Kind: "Widget"}

func widgets() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + widgetGVK.Group},
		"spec": map[string]any{
			"group": widgetGVK.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
}

// everything maps each object of v1, and each that one of Calico's owns, to its metadata without what
// every write changes.
func (w *world) everything() map[string]any {
	w.t.Helper()
	all := map[string]any{}
	kinds := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"), widgetGVK}
	for _, kind := range w.Registry.Kinds() {
		kinds = append(kinds, kind.V1GVK())
	}
	for _, gvk := range kinds {
		for _, obj := range w.list(gvk) {
			if obj.GetName() == "owned" || strings.HasPrefix(gvk.Group, resources.V1Group) {
				meta := obj.Object["metadata"].(map[string]any)
				for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
					delete(meta, field)
				}
				all[gvk.Kind+" "+obj.GetName()] = meta
			}
		}
	}
	return all
}

func (w *world) list(gvk schema.GroupVersionKind) []unstructured.Unstructured {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	if err := w.Client.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) v3Policies() []unstructured.Unstructured {
	kind, _ := w.Registry.Kind("GlobalNetworkPolicy")
	return w.list(kind.V3GVK())
}

// migrateToGate starts a migration that stops at the gate.
func (w *world) migrateToGate(edits ...edit) {
	w.t.Helper()
	w.migrate(edits...)
	w.awaitStep("gate")
}

// migrate starts a migration, which copies slowly.
func (w *world) migrate(edits ...edit) {
	w.t.Helper()
	w.asAtFirst()
	w.run(w.machine(edits...), slowly)
	if err := w.Migrate(w.t.Context(), migrationName); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) copiedAndAborted(before map[string]any, edits ...edit) {
	w.keepEndingWatches()
	w.migrateToGate(append(edits, gateAfter("Verify"))...)
	w.looksOn()
	w.assertOwned(w.v3Policies())
	w.abort()
	w.settled()
	if diff := cmp.Diff(before, w.everything()); diff != "" {
		w.t.Errorf("not as it was (-before +after):\n%.4000s", diff)
	}
}

// assertOwned looks whether all policies are there, and belong to the one tier that is.
func (w *world) assertOwned(all []unstructured.Unstructured) {
	w.t.Helper()
	tier := w.v3("Tier", tierName, nil)
	w.read(tier)
	if len(all) != policies {
		w.t.Errorf("%d of %d policies are there", len(all), policies)
	}
	for i := range all {
		if diff := cmp.Diff([]metav1.OwnerReference{ownerOf(tier)}, all[i].GetOwnerReferences()); diff != "" {
			w.t.Errorf("owners of %s (-want +got):\n%s", all[i].GetName(), diff)
		}
	}
}

// losing repeats what is to lose policies, and returns how many are left, until it has lost some: the collector
// has to look in the right moment, and on a busy machine it comes late.
func losing(run func(*world) int) func(*world) {
	const tries = 5
	return func(w *world) {
		for range tries {
			left := run(w)
			w.t.Logf("%d of %d policies are left", left, policies)
			if left < policies {
				return
			}
		}
		w.t.Error("nothing was lost: the other parts prove nothing")
	}
}

// abortLoses does not copy ahead: a collector that finds a copy under each name looks for nothing. It sees the
// tier go while it knows its policies: of what goes at the same time, none is looked for.
func (w *world) abortLoses() int {
	w.migrateToGate(underTheLock, gateAfter("AwaitV3Served"), without("DetachV1Owners", "DetachDependents"))
	looked := w.asked("get", "globalnetworkpolicies")
	w.server.EndWatches("Tier")
	w.eventually("the garbage collector to look for policies", func() bool { return w.asked("get", "globalnetworkpolicies") > looked })
	w.abort()
	w.settled()
	return len(w.v3Policies())
}

// peerLoses copies as Calico's own controller does: with the references as they were, in the order of
// kinds, to be put right when all kinds are copied.
func (w *world) peerLoses() int {
	tier := w.v3("Tier", tierName, nil)
	w.read(tier) // as users see it
	old := ownerOf(tier)
	w.migrateToGate(underTheLock, gateAfter("AwaitV3Served"))
	w.server.EndWatches()
	w.looksOn()
	copied := w.v3("Tier", tierName, tierSpec)
	w.create(copied)
	var group errgroup.Group
	group.SetLimit(10)
	for i := range policies {
		group.Go(func() error {
			<-time.After(slow)
			return w.Client.Create(w.t.Context(), w.v3("GlobalNetworkPolicy", policyName(i), policySpec, old))
		})
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
	w.settled()
	all := w.v3Policies()
	for i := range all {
		if err := client.IgnoreNotFound(w.Client.Delete(w.t.Context(), &all[i])); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.Client.Delete(w.t.Context(), copied); err != nil {
		w.t.Fatal(err)
	}
	w.abort()
	return len(all)
}

func (w *world) converges() {
	w.keepEndingWatches()
	w.migrate()
	dm, err := w.AwaitPhase(w.t.Context(), migrationName, "Converged", harness.Patience)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("converged: %s", dm.Status.Message)
	w.eventually("the dependents to be attached", func() bool {
		dm, err := w.Migration(w.t.Context(), migrationName)
		return err == nil && dm.Status.Machine.Step == "ObserveRollout"
	})
	w.settled()
	all := w.v3Policies()
	w.assertOwned(all)
	owner := ownerOf(&all[0])
	for _, gvk := range []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"), widgetGVK} {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(gvk)
		if err := w.Client.Get(w.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "owned"}, obj); err != nil {
			w.t.Fatal(err)
		}
		if diff := cmp.Diff([]metav1.OwnerReference{owner}, obj.GetOwnerReferences()); diff != "" {
			w.t.Errorf("owners of the %s (-want +got):\n%s", gvk.Kind, diff)
		}
		if len(obj.GetAnnotations()) > 0 {
			w.t.Errorf("the %s still has annotations: %v", gvk.Kind, obj.GetAnnotations())
		}
	}
}
