package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

// feed is a GlobalNetworkSet of v1 that no fixture has.
func feed(name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nets": []any{"192.0.2.0/24"}}}}
	obj.SetAPIVersion(v1)
	obj.SetKind("GlobalNetworkSet")
	obj.SetName(name)
	return obj
}

// setNets changes a v1 object as its owner does.
func (w *world) setNets(t *testing.T, name, net string) {
	t.Helper()
	obj := w.get(t, v1, "GlobalNetworkSet", name)
	before := obj.DeepCopy()
	obj.Object["spec"] = map[string]any{"nets": []any{net}}
	if err := w.Client.Patch(t.Context(), obj, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) assertNothingLocked(t *testing.T, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	if !w.ready(t, v1) || dm.Status.Machine.IsHeld("v1Lock") {
		t.Errorf("v1 is locked: ready %t, held %v", w.ready(t, v1), dm.Status.Machine.HeldNames())
	}
}

// Objects are copied while the aggregated API server serves v3 and v1 is written; what changes until the
// lock is copied, too, and nothing of it is seen or left after an abort.
func TestCopiedAhead(t *testing.T) {
	w := pristine(t)
	w.create(t, v1Policy("ahead-twin", nil))
	t.Cleanup(func() {
		for _, name := range []string{"ahead-stays", "ahead-goes", "ahead-changes", "ahead-comes"} {
			_ = w.Client.Delete(context.Background(), feed(name)) // one is gone
		}
	})
	for _, name := range []string{"ahead-stays", "ahead-goes", "ahead-changes"} {
		w.do(t, w.Client.Create(t.Context(), feed(name)))
	}
	w.behind(t, func(ctx context.Context) error { return w.Client.Create(ctx, leftOver()) })
	w.manager(t, "--phases-dir", gated(t, inPhase("Migrating", func(t *testing.T, p *v1alpha1.Phase) {
		t.Helper()
		for i := range p.Steps {
			if p.Steps[i].Name == "CopyAhead" {
				p.Steps[i].Poll = "1s"
			}
		}
	})))
	w.start(t, setup.MigrationName, "ahead")
	dm := w.awaitGate(t, setup.MigrationName, "ahead")
	w.assertNothingLocked(t, dm)
	w.assertOnlyInV3(t, dm, "globalnetworksets.v3precopy.projectcalico.org")
	w.kubectl(t, "delete", "globalnetworksets.v3precopy.projectcalico.org", leftOver().GetName())
	if slices.Contains(w.stored(t), "globalnetworksets/"+leftOver().GetName()) {
		t.Error("what a person has deleted through the side door is still in the storage of v3")
	}
	assertAllCopiedAhead(t, dm)
	w.assertDoorIsUsed(t, "globalnetworksets/ahead-goes", "clusterinformations/default")

	w.do(t, w.Client.Delete(t.Context(), feed("ahead-goes")))
	w.do(t, w.Client.Create(t.Context(), feed("ahead-comes")))
	w.setNets(t, "ahead-changes", "198.51.100.0/24")
	want := w.content(t)
	// It would become what another one has become already.
	removeTwin := w.create(t, v1Policy("default.ahead-twin", map[string]string{resources.MetadataAnnotation: "{}"}))
	w.annotate(t, dm.Name, map[string]string{openGates: gatesBefore("verified")})
	dm = w.awaitMessage(t, dm.Name, `would both become "ahead-twin" in v3`)
	w.assertNothingLocked(t, dm)
	removeTwin()
	dm = w.awaitGate(t, dm.Name, "verified")
	assertSameContent(t, want, w.content(t))
	w.assertOwners(t)
	if p := dm.Status.Progress; p.Finished() != p.Total || int(p.Total) != len(want) {
		t.Errorf("progress %+v, want all of %d objects", p, len(want))
	}

	w.remove(t, dm.Name)
	w.awaitNoDoor(t)
}

func assertAllCopiedAhead(t *testing.T, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	ahead := dm.Status.CopyAhead
	if ahead == nil || ahead.State != migrationv1.CopyAheadOpen || ahead.Round < 1 || ahead.ExpectedLockSeconds < 1 {
		t.Errorf("status.copyAhead %+v", ahead)
	}
	if p := dm.Status.Progress; p == nil || p.Finished() != p.Total {
		t.Errorf("progress %+v: all is copied", dm.Status.Progress)
	}
}

// assertDoorIsUsed: every CRD has it, stores v3 all the same, and objects are in the storage of v3.
func (w *world) assertDoorIsUsed(t *testing.T, keys ...string) {
	t.Helper()
	stored := w.stored(t)
	for _, key := range keys {
		if !slices.Contains(stored, key) {
			t.Errorf("%s is not in the storage of v3", key)
		}
	}
	for name, said := range w.v3CRDs(t) {
		if !strings.Contains(said, "stored [v3],") || !strings.Contains(said, migrationv1.SideDoorVersion) {
			t.Errorf("CRD %s: %s", name, said)
		}
	}
}

func (w *world) awaitNoDoor(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the APIService of the side door gone", func() error {
		svc := &apiregistrationv1.APIService{}
		err := w.Client.Get(t.Context(), types.NamespacedName{Name: migrationv1.SideDoorVersion + "." + resources.V3Group}, svc)
		if apierrs.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
}

// Where the side door is not to be had, the status says so before the lock, and all is copied under it.
func TestSideDoorRefused(t *testing.T) {
	cases := map[string]struct {
		why, says string
		refuse    func(*testing.T, *world) (lift func())
	}{
		"no right": {why: "the chart leaves it away: copyAhead.enabled=false", says: "forbidden",
			refuse: func(t *testing.T, w *world) func() {
				w.revoke(t, "apiextensions.k8s.io", "customresourcedefinitions", "patch")
				return func() { w.restoreRights(t) }
			}},
		"a policy": {why: "somebody keeps CRDs as they are", says: "CRDs are frozen", refuse: func(t *testing.T, w *world) func() { return w.freezeCRDs(t) }},
		"shut again and again": {why: "the owner of a CRD puts it back at once", says: "again and again",
			refuse: func(t *testing.T, w *world) func() { return w.keepShut(t, "tiers.projectcalico.org") }},
	}
	w := pristine(t)
	want := w.content(t)
	w.manager(t, "--phases-dir", gated(t))
	for name, c := range cases {
		inTurn(t, name, func(t *testing.T) {
			lift := sync.OnceFunc(c.refuse(t, w))
			t.Cleanup(lift)
			w.start(t, setup.MigrationName, "begin")
			dm := w.awaitStatus(t, setup.MigrationName, "at the begin of Migrating", func(dm *migrationv1.DatastoreMigration) bool {
				return dm.Status.Message == gateMessage("begin")
			})
			w.assertNothingLocked(t, dm)
			if ahead := dm.Status.CopyAhead; ahead == nil || ahead.State != migrationv1.CopyAheadRefused || !strings.Contains(ahead.Message, c.says) {
				t.Errorf("status.copyAhead %+v, want Refused with %q: %s", ahead, c.says, c.why)
			}
			w.annotate(t, dm.Name, map[string]string{openGates: gatesBefore("verified")})
			w.awaitGate(t, dm.Name, "verified")
			assertSameContent(t, want, w.content(t))
			lift()
			w.remove(t, dm.Name)
			w.assertUntouched(t)
		})
	}
}

// A door that is refused once it was open is no way to find what v3 refuses: it is found before the lock all the same.
func TestSideDoorRefusedLate(t *testing.T) {
	const sets = "globalnetworksets.projectcalico.org"
	w := pristine(t)
	w.changeCRD(t, sets, func(spec map[string]any) {
		rootSchema(spec)["x-kubernetes-validations"] = []any{map[string]any{"rule": "self.metadata.name != 'blocklist-3'", "message": "blocklist-3 is not wanted"}}
	})
	t.Cleanup(func() { w.restoreCRDs(t) })
	w.manager(t, "--phases-dir", gated(t, inStep("Pending", "CopyResources", func(s *v1alpha1.Step) { s.Poll = "1s" })))
	w.start(t, setup.MigrationName, "compared")
	w.awaitGate(t, setup.MigrationName, "compared")
	lift := sync.OnceFunc(w.freezeCRDs(t))
	t.Cleanup(lift)
	if !w.shut(t.Context(), sets) {
		t.Fatal("the door could not be shut")
	}
	direct, err := dynamic.NewForConfig(w.Config) // it asks the API server, and not what it knows of it
	w.do(t, err)
	behind := schema.GroupVersionResource{Group: resources.V3Group, Version: migrationv1.SideDoorVersion, Resource: "globalnetworksets"}
	harness.Eventually(t, "the door shut", func() error {
		_, err := direct.Resource(behind).List(t.Context(), metav1.ListOptions{Limit: 1})
		if apierrs.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is open"), err)
	})
	w.goOn(t, "begin")
	dm := w.awaitMessage(t, setup.MigrationName, "Objects that cannot be copied: GlobalNetworkSet blocklist-3: ")
	w.assertNothingLocked(t, dm)
	if ahead := dm.Status.CopyAhead; ahead == nil || ahead.State != migrationv1.CopyAheadRefused || dm.Status.Phase != "Pending" {
		t.Errorf("phase %s, status.copyAhead %+v, want Refused", dm.Status.Phase, ahead)
	}
	lift()
	w.restoreCRDs(t)
	w.awaitGate(t, setup.MigrationName, "begin")
	w.remove(t, setup.MigrationName)
	w.assertUntouched(t)
}

// A CRD that its owner applies again in the middle is opened again.
func TestSideDoorShutOnce(t *testing.T) {
	w := pristine(t)
	w.manager(t, "--phases-dir", gated(t))
	w.start(t, setup.MigrationName, "compared")
	w.awaitGate(t, setup.MigrationName, "compared")
	w.shut(t.Context(), "globalnetworksets.projectcalico.org", "tiers.projectcalico.org")
	w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore("ahead")})
	dm := w.awaitGate(t, setup.MigrationName, "ahead")
	if ahead := dm.Status.CopyAhead; ahead == nil || ahead.State != migrationv1.CopyAheadOpen || ahead.Round < 1 {
		t.Errorf("status.copyAhead %+v", ahead)
	}
	w.shut(t.Context(), "globalnetworksets.projectcalico.org") // and the abort must reach the copies
	w.remove(t, setup.MigrationName)
	if diff := cmp.Diff([]string{}, w.stored(t), cmp.Transformer("sorted", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
		t.Errorf("what is left in v3 (-want +got):\n%s", diff)
	}
}

// shut takes the extra version out of CRDs, as who applies them again does. It says whether there was one.
func (w *world) shut(ctx context.Context, names ...string) (found bool) {
	for _, name := range names {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.Client.Get(ctx, types.NamespacedName{Name: name}, crd); err != nil {
			continue
		}
		owner := "" // who has applied it before
		for _, entry := range crd.ManagedFields {
			if entry.Subresource == "" && entry.Manager != "phasegate-sidedoor" {
				owner = entry.Manager
			}
		}
		n := len(crd.Spec.Versions)
		crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == migrationv1.SideDoorVersion
		})
		found = len(crd.Spec.Versions) < n && w.Client.Update(ctx, crd, client.FieldOwner(owner)) == nil || found
	}
	return found
}

// keepShut does so at once whenever there is one, until it is told to stop.
func (w *world) keepShut(t *testing.T, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			w.shut(ctx, name)
			<-tick.C
		}
	})
	return func() { cancel(); done.Wait() }
}

// freezeCRDs lets an admission policy refuse every change of v3's CRDs.
func (w *world) freezeCRDs(t *testing.T) (lift func()) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "e2e-freeze"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{apiextensionsv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("!object.spec.versions.exists(v, v.name == %q)", migrationv1.SideDoorVersion), Message: "CRDs are frozen"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, obj := range []client.Object{policy, binding} {
		w.do(t, w.Client.Create(t.Context(), obj))
	}
	harness.Eventually(t, "the admission policy in force", func() error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := w.Client.Get(t.Context(), types.NamespacedName{Name: "tiers.projectcalico.org"}, crd); err != nil {
			return err
		}
		if len(crd.Spec.Versions) == 1 { // the door is not open
			door := crd.Spec.Versions[0].DeepCopy()
			door.Name, door.Storage = migrationv1.SideDoorVersion, false
			crd.Spec.Versions = append(crd.Spec.Versions, *door)
		}
		metav1.SetMetaDataAnnotation(&crd.ObjectMeta, "e2e.phasegate.dev/frozen", "?")
		if err := w.Client.Update(t.Context(), crd, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "CRDs are frozen") {
			return errors.Join(errors.New("a dry run was not refused"), err)
		}
		return nil
	})
	return func() {
		for _, obj := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), obj)); err != nil {
				t.Error(err)
			}
		}
	}
}

// A migration whose finalizer was removed by hand leaves a lock of v3 behind the side door, where nobody sees it.
// The next migration takes it over.
func TestGoneBeforeTheLock(t *testing.T) {
	w := own(t, setup.Options{Objects: append(fixture.BuiltinTiers(), fixture.ClusterInformation(), feed("ahead"))})
	dir := gated(t)
	p := w.manager(t, "--phases-dir", dir)
	w.start(t, setup.MigrationName, "ahead")
	w.awaitGate(t, setup.MigrationName, "ahead")
	w.assertDoorIsUsed(t, "globalnetworksets/ahead", "clusterinformations/default")
	p.Kill()
	w.kubectl(t, "delete", "datastoremigration", setup.MigrationName, "--wait=false")
	w.kubectl(t, "patch", "datastoremigration", setup.MigrationName, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.awaitGone(t, setup.MigrationName)
	before := w.content(t)
	w.manager(t, "--phases-dir", dir)
	w.start(t, setup.MigrationName, nowhere)
	dm := w.await(t, setup.MigrationName, "Converged")
	if diff := cmp.Diff([]string{"Pending", "Migrating", "Converged"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	assertSameContent(t, before, w.content(t))
	harness.Eventually(t, "v3 open", func() error { return nilIf(w.ready(t, v3)) })
}
