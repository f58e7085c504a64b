package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

const waiting = "WaitingForConflictResolution"

// fastConflicts looks again soon after a conflict was resolved.
var fastConflicts = inPhase(waiting, func(_ *testing.T, p *v1alpha1.Phase) { p.Poll = "1s" })

func live(t *testing.T, w *world) *unstructured.Unstructured {
	t.Helper()
	return w.get(t, v3, "GlobalNetworkSet", contested().GetName())
}

// removeV3 and editV3 are the two ways to say which side is right.
func removeV3(t *testing.T, w *world) {
	if err := w.Client.Delete(t.Context(), contested()); err != nil {
		t.Fatal(err)
	}
}

func editV3(t *testing.T, w *world) {
	obj := live(t, w)
	obj.Object["spec"] = map[string]any{"nets": []any{"203.0.113.0/32", "198.51.100.0/32", "2001:db8::/64"}}
	obj.SetLabels(map[string]string{"threat-feed": "feed-0"})
	if err := w.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// assertNamesConflict checks that a person is told what is in the way and what to do.
func conflictText(t *testing.T, dm *migrationv1.DatastoreMigration) string {
	t.Helper()
	var found []string
	for _, c := range dm.Status.Conflicts {
		found = append(found, c.Kind+" "+c.Name+": "+strings.Join(c.Fields, "\n"))
	}
	if onPeersCRDs { // which has a condition for each
		for _, c := range dm.Status.Conditions {
			if c.Type == migrationv1.ConditionConflict {
				found = append(found, c.Message)
			}
		}
	}
	if len(found) != 1 || dm.Status.Progress.Conflicts != 1 {
		t.Fatalf("the status has conflicts %q, %d by its count, want exactly one", found, dm.Status.Progress.Conflicts)
	}
	return found[0]
}

func assertNamesConflict(t *testing.T, w *world, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	text := conflictText(t, dm)
	for _, part := range []string{"GlobalNetworkSet blocklist-0", "spec.nets", "threat-feed"} {
		if !strings.Contains(text, part) {
			t.Errorf("the status does not name %s:\n%s", part, text)
		}
	}
	for _, part := range []string{"GlobalNetworkSet blocklist-0", "1 conflict"} {
		if !strings.Contains(dm.Status.Message, part) {
			t.Errorf("the message does not say %q: %s", part, dm.Status.Message)
		}
	}
	assertAtRest(t, dm, ofPeers("Reconciling"))
	w.assertReadable(t, dm.Name)
}

func TestConflictUnderTheLock(t *testing.T) {
	cases := map[string]struct {
		why     string
		resolve func(*testing.T, *world)
		left    []string // what is in the storage of v3 after an abort
	}{
		"the v3 side is deleted": {why: "v1 is right, and is copied", resolve: removeV3},
		"the v3 side is edited": {why: "now both are equal: it is adopted, and stays somebody else's object after an abort",
			resolve: editV3, left: []string{"globalnetworksets/blocklist-0"}},
	}
	w := pristine(t)
	manager := w.managerMeasured(t, "--phases-dir", gated(t, fastConflicts, underTheLock))
	for name, tc := range cases {
		inTurn(t, name, func(t *testing.T) {
			w.obstruct(t)
			before, counted := w.content(t), manager.scrape(t)
			end := w.besideOperator(t)
			w.start(t, setup.MigrationName, "verified")
			dm := w.await(t, setup.MigrationName, waiting)
			dm = w.awaitMessage(t, dm.Name, "Datastore is locked: ")
			assertNamesConflict(t, w, dm)
			assertShowsConflict(t, manager.scrape(t), dm)
			tc.resolve(t, w)
			dm = w.awaitGate(t, setup.MigrationName, "verified")
			if diff := cmp.Diff([]string{"Pending", "Migrating", waiting, "Migrating"}, path(dm)); diff != "" {
				t.Errorf("the way it came (-want +got):\n%s", diff)
			}
			if len(dm.Status.Conflicts) != 0 {
				t.Errorf("resolved conflicts are still in status: %+v", dm.Status.Conflicts)
			}
			assertCounted(t, counted, manager.scrape(t), dm)
			assertSameContent(t, before, w.content(t))
			w.remove(t, setup.MigrationName)
			end()
			left := w.stored(t)
			if diff := cmp.Diff(tc.left, left, cmp.Transformer("sorted", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
				t.Errorf("what is left in v3, %s (-want +got):\n%s", tc.why, diff)
			}
			if len(tc.left) > 0 {
				w.clear(t)
			}
			w.assertUntouched(t)
		})
	}
}

// besideOperator runs a stand-in for the Tigera operator until the answer is called, or the test ends.
func (w *world) besideOperator(t *testing.T) (end func()) {
	t.Helper()
	operator := &fixture.Operator{Client: w.Client, Namespace: setup.CalicoNamespace, Name: fakeapiserver.APIServiceName, APIService: w.liveAPIService(t)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- operator.Follow(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		w.do(t, <-ended)
	})
	t.Cleanup(end)
	return end
}

// leftOver is an object of v3 that v1 does not have.
func leftOver() *unstructured.Unstructured {
	obj := feed("left-over")
	obj.SetAPIVersion(v3)
	return obj
}

// assertOnlyInV3 checks that the one that was left over is named before v3 opens, with what deletes it.
func (w *world) assertOnlyInV3(t *testing.T, dm *migrationv1.DatastoreMigration, plural string) {
	t.Helper()
	if shown := dm.Status.Progress.OnlyInV3; !onPeersCRDs && shown != "GlobalNetworkSet left-over" { // theirs do not keep it
		t.Errorf("the status names %q as in v3 only", shown)
	}
	want := "1 objects are in v3 only: GlobalNetworkSet left-over: is in v3 only, and in force as soon as v3 is open: no migration has made it; " +
		"delete it, unless v3 is to have it: kubectl delete " + plural + " left-over"
	if told := w.awaitEvent(t, "OnlyInV3"); !strings.Contains(told, want) {
		t.Errorf("the Event says %q, want %q", told, want)
	}
}

// Where nothing shadows the v3 CRDs a conflict is seen before anything is locked.
func TestConflictSeenAhead(t *testing.T) {
	w := own(t, setup.Options{Objects: fixture.Demo(3, objects), NoStandIn: true})
	for _, obj := range []*unstructured.Unstructured{contested(), leftOver()} {
		w.do(t, w.Client.Create(t.Context(), obj))
	}
	// What nobody has migrated is in force as soon as v3 is open: it is named before.
	w.said(t, "kubectl phasegate plan", 1, "‼ GlobalNetworkSet left-over is in v3 only, and in force as soon as v3 is open", "kubectl delete globalnetworksets.v3.projectcalico.org left-over")
	w.manager(t, "--phases-dir", gated(t, fastConflicts))
	w.start(t, "any-name-will-do", nowhere)
	dm := w.await(t, "any-name-will-do", waiting)
	dm = w.awaitMessage(t, dm.Name, "resolve 1 conflict, edit or delete one side: GlobalNetworkSet blocklist-0")
	assertNamesConflict(t, w, dm)
	w.assertOnlyInV3(t, dm, "globalnetworksets.v3.projectcalico.org")
	if !slices.Equal(dm.Status.Machine.HeldNames(), held("v3Copies")) || !w.ready(t, w.Registry.Lock().V1GVK().GroupVersion().String()) {
		t.Errorf("something is locked before the conflict is solved: %v", dm.Status.Machine.HeldNames())
	}
	removeV3(t, w)
	dm = w.await(t, dm.Name, "Converged")
	if diff := cmp.Diff([]string{"Pending", waiting, "Pending", "Migrating", "Converged"}, path(dm)); diff != "" {
		t.Errorf("the way it came (-want +got): validated again, then straight on\n%s", diff)
	}

	t.Run("deletion is held", func(t *testing.T) {
		w.askRemoval(t, dm.Name)
		dm := w.awaitMessage(t, dm.Name, "cannot be rolled back")
		if dm.Status.Phase != "Converged" {
			t.Errorf("phase %s: v3 is open, there is no way back", dm.Status.Phase)
		}
		w.kubectl(t, "describe", "datastoremigration", dm.Name)
		if err := fixture.SwitchComponents(t.Context(), w.Client, setup.CalicoNamespace); err != nil {
			t.Fatal(err)
		}
		w.awaitGone(t, dm.Name)
		info := &unstructured.Unstructured{}
		info.SetGroupVersionKind(w.Registry.Lock().V1GVK())
		if err := w.Client.Get(t.Context(), types.NamespacedName{Name: "default"}, info); !apierrs.IsNotFound(err) {
			t.Errorf("the v1 CRDs are not gone: %v", err)
		}
	})
}
