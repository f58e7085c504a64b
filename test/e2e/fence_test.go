package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/loadgenerator"
	"github.com/phasegate/phasegate/test/support/setup"
)

const v1 = resources.V1Group + "/" + resources.V1Version

// guardedLabel is one that Calico's API server leaves where lists by label look.
const guardedLabel = "guarded.projectcalico.org/name"

// guarded is an object that an administrator writes; it is there before the migration.
func guarded(apiVersion, kind, name string) *unstructured.Unstructured {
	spec := map[string]any{"nets": []any{"192.0.2.0/24"}}
	if kind == "CalicoNodeStatus" {
		spec = map[string]any{"node": "guarded", "classes": []any{"Agent"}, "updatePeriodSeconds": int64(10)}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	obj.SetName(name)
	obj.SetLabels(map[string]string{guardedLabel: name})
	return obj
}

// writes are all that an administrator may try with v1. The victim is what is deleted: in an open datastore it
// was created by the first of them, so that nothing is left.
func (w *world) writes(victim string) []struct {
	name string
	try  func(context.Context) error
} {
	target := guarded(v1, "GlobalNetworkSet", "guarded")
	label := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"at":"%d"}}}`, time.Now().UnixNano()))
	return []struct {
		name string
		try  func(context.Context) error
	}{
		{"create", func(ctx context.Context) error {
			return w.Client.Create(ctx, guarded(v1, "GlobalNetworkSet", "guarded-new"))
		}},
		{"update", func(ctx context.Context) error {
			obj := target.DeepCopy()
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			return w.Client.Update(ctx, obj)
		}},
		{"patch", func(ctx context.Context) error { return w.Client.Patch(ctx, target.DeepCopy(), label) }},
		{"apply", func(ctx context.Context) error {
			return w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(target.DeepCopy()), client.ForceOwnership, client.FieldOwner("e2e"))
		}},
		{"status", func(ctx context.Context) error {
			return w.Client.Status().Patch(ctx, guarded(v1, "CalicoNodeStatus", "guarded"), client.RawPatch(types.MergePatchType, []byte(`{"status":{"agent":{"birdV4":{"version":"1"}}}}`)))
		}},
		{"patch through the aggregated API", func(ctx context.Context) error {
			return w.Client.Patch(ctx, guarded(v3, "GlobalNetworkSet", "guarded"), label)
		}},
		{"delete a collection", func(ctx context.Context) error {
			return w.Client.DeleteAllOf(ctx, target.DeepCopy(), client.MatchingLabels{guardedLabel: victim})
		}},
		{"delete", func(ctx context.Context) error {
			return client.IgnoreNotFound(w.Client.Delete(ctx, guarded(v1, "GlobalNetworkSet", victim)))
		}},
	}
}

func (w *world) assertV1Open(t *testing.T) {
	t.Helper()
	for _, write := range w.writes("guarded-new") {
		if err := write.try(t.Context()); err != nil {
			t.Errorf("v1 is open, and an administrator cannot %s: %v", write.name, err)
		}
	}
}

// assertClosed checks that a person is told who keeps him out, and the way out.
func (w *world) assertV1Closed(t *testing.T) {
	t.Helper()
	for _, write := range w.writes("guarded") {
		err := write.try(t.Context())
		if strings.HasSuffix(write.name, "aggregated API") {
			if err := refusedByTheServer(err); err != nil {
				t.Errorf("v1 is closed; %s: %v", write.name, err)
			}
		} else if !apierrs.IsForbidden(err) {
			t.Errorf("v1 is closed; %s is answered with %v", write.name, err)
			continue
		}
		for _, part := range []string{"DatastoreMigration " + setup.MigrationName, "break glass: delete ValidatingAdmissionPolicyBinding " + migrationv1.FenceName} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal of %s does not say %q: %v", write.name, part, err)
			}
		}
	}
}

// assertV3Closed checks that nobody writes what an abort would lose.
func (w *world) assertV3Closed(t *testing.T) {
	t.Helper()
	for name, err := range map[string]error{
		"create an object": w.Client.Create(t.Context(), guarded(v3, "GlobalNetworkSet", "early")),
		"change a copy":    w.Client.Patch(t.Context(), guarded(v3, "GlobalNetworkSet", "guarded"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"at":"once"}}}`))),
		"delete a copy":    w.Client.Delete(t.Context(), guarded(v3, "GlobalNetworkSet", "guarded")),
	} {
		if !apierrs.IsForbidden(err) || !strings.Contains(err.Error(), "DatastoreMigration "+setup.MigrationName) {
			t.Errorf("v3 is not open, and an abort would lose it; to %s is answered with %v", name, err)
		}
	}
}

// assertV3Open checks that the fence around v3 is gone with the opening of v3.
func (w *world) assertV3Open(t *testing.T) {
	t.Helper()
	if err := w.Client.Create(t.Context(), guarded(v3, "GlobalNetworkSet", "on-time")); err != nil {
		t.Errorf("v3 is open, and a create is answered with %v", err)
	} else if err := w.Client.Delete(t.Context(), guarded(v3, "GlobalNetworkSet", "on-time")); err != nil {
		t.Errorf("v3 is open, and a delete is answered with %v", err)
	}
	want := []string{"ValidatingAdmissionPolicy " + migrationv1.FenceName, "ValidatingAdmissionPolicyBinding " + migrationv1.FenceName}
	if diff := cmp.Diff(want, w.fences(t)); diff != "" {
		t.Errorf("fences (-want +got):\n%s", diff)
	}
}

// goOn opens the gates up to another one.
func (w *world) goOn(t *testing.T, gate string) {
	t.Helper()
	w.annotate(t, setup.MigrationName, map[string]string{openGates: gatesBefore(gate)})
}

// lend creates objects for the duration of a test.
func (w *world) lend(t *testing.T, objs ...client.Object) {
	t.Helper()
	for _, obj := range objs {
		if err := w.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, obj := range slices.Backward(objs) {
			if err := client.IgnoreNotFound(w.Client.Delete(context.Background(), obj)); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
}

// The fence keeps everybody out from the lock to the end of an abort, and nobody before and after. What
// Kubernetes deletes by itself goes all the same.
func TestFence(t *testing.T) {
	w := pristine(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guarded", Namespace: "shop"}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}}
	inside := guarded(v1, "NetworkSet", "inside")
	inside.SetNamespace(ns.Name)
	w.lend(t, guarded(v1, "GlobalNetworkSet", "guarded"), guarded(v1, "CalicoNodeStatus", "guarded"), owner, ns, inside)
	owned := guarded(v1, "NetworkSet", "owned")
	owned.SetNamespace("shop")
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
	w.lend(t, owned)
	w.manager(t, "--phases-dir", gated(t))

	w.assertV1Open(t)
	w.start(t, setup.MigrationName, "fenced")
	dm := w.awaitGate(t, setup.MigrationName, "fenced")
	if dm.Status.Lock != nil {
		t.Errorf("nothing is locked, status.lock is %+v", dm.Status.Lock)
	}
	w.assertV1Open(t)
	w.assertWhileUnknown(t, admissionregistrationv1.Ignore, "v1 is open")
	open := w.lockByHand(t) // somebody else's lock is not enforced: the fence may stand for hours while objects are copied
	w.assertV1Open(t)
	open()

	w.goOn(t, "drained")
	dm = w.awaitGate(t, setup.MigrationName, "drained")
	if lock := dm.Status.Lock; lock == nil || lock.Mode != migrationv1.LockEnforced || lock.Deadline == nil || lock.Deadline.Sub(dm.Status.DatastoreLockedAt.Time) != 30*time.Minute {
		t.Errorf("status.lock is %+v; locked at %v", lock, dm.Status.DatastoreLockedAt)
	}
	w.assertV1Closed(t)
	w.assertWhileUnknown(t, admissionregistrationv1.Fail, "v1 is closed")
	w.assertGoes(t, ns, inside)
	w.assertGoes(t, owner, owned)

	w.goOn(t, "copied")
	w.awaitGate(t, setup.MigrationName, "copied")
	w.assertV3Closed(t)

	asked := time.Now()
	w.askRemoval(t, setup.MigrationName)
	patch := w.writes("")[2]
	harness.Eventually(t, "v1 to be open", func() error { return patch.try(t.Context()) })
	t.Logf("v1 is open %s after the deletion was asked for", time.Since(asked).Round(time.Millisecond))
	w.awaitGone(t, setup.MigrationName)
	w.assertV1Open(t)
}

// assertWhileUnknown checks what an API server does that does not know yet what the fence looks at.
func (w *world) assertWhileUnknown(t *testing.T, want admissionregistrationv1.FailurePolicyType, why string) {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if err := w.Client.Get(t.Context(), types.NamespacedName{Name: migrationv1.FenceName}, policy); err != nil {
		t.Fatal(err)
	}
	if got := *policy.Spec.FailurePolicy; got != want {
		t.Errorf("%s, and the fence has failurePolicy %s, want %s", why, got, want)
	}
}

// assertGoes deletes an object, and expects that Kubernetes deletes another one because of it.
func (w *world) assertGoes(t *testing.T, deleted, follows client.Object) {
	t.Helper()
	if err := w.Client.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	for _, obj := range []client.Object{follows, deleted} {
		if err := w.AwaitGone(t.Context(), obj, harness.Patience); err != nil {
			t.Errorf("behind the fence: %v", err)
		}
	}
}

// writing begins to write v1, 20 times a second. What it answers ends that, and judges it: the attempts, and
// the windows in which v1 was closed.
func (w *world) writing(t *testing.T) (log func() []loadgenerator.Attempt, end func() ([]loadgenerator.Attempt, []loadgenerator.Window)) {
	t.Helper()
	watcher, err := loadgenerator.Watch(t.Context(), w.Client)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := loadgenerator.Start(t.Context(), w.Config, 20)
	if err != nil {
		t.Fatal(err)
	}
	end = func() ([]loadgenerator.Attempt, []loadgenerator.Window) {
		attempts, windows := busy.Stop(), watcher.Stop()
		if breaches := loadgenerator.Breaches(attempts, windows); len(breaches) > 0 {
			t.Errorf("%d writes were accepted while v1 was closed (%v), the first is %+v", len(breaches), windows, breaches[0])
		}
		refused := 0
		for _, a := range attempts {
			if !a.Accepted {
				refused++
			}
		}
		t.Logf("%d writes were tried, %d were refused; v1 was closed in %v", len(attempts), refused, windows)
		if len(windows) != 1 || refused == 0 || !attempts[0].Accepted {
			t.Errorf("%d windows, %d refused: the writer was not there to be kept out", len(windows), refused)
		}
		return attempts, windows
	}
	t.Cleanup(func() {
		busy.Stop()
		watcher.Stop()
	})
	return busy.Log, end
}

// Somebody writes without a pause, from before the migration until after its abort.
func TestNobodyWritesBehindTheFence(t *testing.T) {
	w := pristine(t)
	w.lend(t, guarded(v1, "GlobalNetworkSet", loadgenerator.ObjectName))
	w.manager(t, "--phases-dir", gated(t))
	log, end := w.writing(t)
	w.start(t, setup.MigrationName, "verified")
	w.awaitGate(t, setup.MigrationName, "verified")
	w.remove(t, setup.MigrationName)
	gone := time.Now()
	harness.Eventually(t, "the writer to write again", func() error {
		last := log()
		if a := last[len(last)-1]; !a.Accepted || a.At.Before(gone) {
			return fmt.Errorf("the last attempt: %+v", a)
		}
		return nil
	})
	attempts, _ := end()
	if last := attempts[len(attempts)-1]; !last.Accepted {
		t.Errorf("after the abort: %+v", last)
	}
}

// assertKeptOut judges what writing began, once v3 is open: the last write that v1 took is in v3, and it takes
// no other.
func (w *world) assertKeptOut(t *testing.T, log func() []loadgenerator.Attempt, end func() ([]loadgenerator.Attempt, []loadgenerator.Window)) {
	t.Helper()
	until := len(log()) + 20
	harness.Eventually(t, "a second of writes to a datastore that was left", func() error {
		if n := len(log()); n < until {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	attempts, _ := end()
	last := ""
	for _, a := range attempts {
		if a.Accepted {
			last = fmt.Sprint(a.N)
		}
	}
	if got := w.get(t, v3, "GlobalNetworkSet", loadgenerator.ObjectName).GetLabels()[loadgenerator.Label]; got != last {
		t.Errorf("v3 has write %s, the last one that v1 took is %s", got, last)
	}
	w.assertClosedForGood(t)
	w.assertV3Open(t)
}

func (w *world) assertClosedForGood(t *testing.T) {
	t.Helper()
	err := w.Client.Create(t.Context(), guarded(v1, "GlobalNetworkSet", "late"))
	if !apierrs.IsForbidden(err) || !strings.Contains(err.Error(), "projectcalico.org/v3") {
		t.Errorf("v1 stays closed past the point of no return, and the refusal says where to write; a create is answered with %v", err)
	}
}
