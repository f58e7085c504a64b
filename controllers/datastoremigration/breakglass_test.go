package datastoremigration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/test/support/renamed"
)

// glassSide is a ClusterInformation, open or closed by somebody.
func glassSide(ready bool, by types.UID) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"datastoreReady": ready}}}
	if by != "" {
		u.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: string(by)})
	}
	return u
}

// glassCopy is a v3 side that a migration has created, closed.
func glassCopy(by types.UID) *unstructured.Unstructured {
	u := glassSide(false, by)
	u.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: string(by), migrationv1.AnnotationMigratedBy: string(by)})
	return u
}

func inGlassPhase(phase string) []migration {
	dm := migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
	dm.Status.Phase, dm.Status.Machine.Phase = phase, phase
	dm.Status.DatastoreLockedAt = &metav1.Time{Time: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	return []migration{dm}
}

// shownOnly is what a CRD leaves that prunes status.machine.
func shownOnly(all []migration) []migration {
	all[0].Status.Machine = v1alpha1.MachineStatus{}
	return all
}

// locksAs are locks of migrations as a machine of files has them.
func locksAs(file string, l Locks) Locks {
	for _, all := range []*[]migration{&l.Migrations, &l.Orphans} {
		var same []migration
		for i := range *all {
			same = append(same, *as(file, &(*all)[i]))
		}
		*all = same
	}
	return l
}

// wantDeeds asks under either file, and compares what is to be done, or what the error says of who holds the lock.
func wantDeeds(t *testing.T, why string, locks Locks, want []LockWrite, held string, ask func(*Locks) (UnlockDecision, error)) {
	t.Helper()
	for file, m := range files(t) {
		l := locksAs(file, locks)
		l.Machine = m
		got, err := ask(&l)
		if held != "" {
			if !errors.Is(err, ErrHeld) || !strings.Contains(renamed.Back(err.Error()), held) {
				t.Errorf("%s file: %s: %v, want one that says %q", file, why, err, held)
			}
			continue
		}
		if diff := cmp.Diff(want, got.Deeds); diff != "" || err != nil {
			t.Errorf("%s file: %s: %v (-want +got):\n%s", file, why, err, diff)
		}
	}
}

func TestUnlock(t *testing.T) {
	hand := handNote("kubernetes-admin", time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC))
	cases := map[string]struct {
		why   string
		locks Locks
		force bool
		want  []LockWrite
		held  string
	}{
		"open": {why: "a second call has nothing to do", locks: Locks{V1: glassSide(true, "")}},
		"closed by hand": {why: "that is its counterpart; a migration that waits for it does not mind",
			locks: Locks{V1: glassSide(false, hand), Migrations: inGlassPhase("Pending")}, want: []LockWrite{OpenV1}},
		"both closed by hand": {why: "no side stays behind", locks: Locks{V1: glassSide(false, hand), V3: glassSide(false, hand)}, want: []LockWrite{OpenV1, OpenV3}},
		"v3 closed by hand after a migration": {why: "v1 stays closed for good",
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, hand), Migrations: inGlassPhase("Complete")}, want: []LockWrite{OpenV3}},
		"a migration holds it": {why: "its manager releases what it has taken", locks: Locks{V1: glassSide(false, "u"), Fenced: true, Migrations: inGlassPhase("Migrating")},
			held: "to-v3 has closed v1 at 2026-11-21T10:00:00Z, and is in phase Migrating: abort it"},
		"a migration without a manager": {why: "in the order of docs/operate/break-glass.md", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Fenced: true, SavedAPIService: true, Migrations: inGlassPhase("Migrating")},
			want:  []LockWrite{DeleteMigration, OpenAPIService, RemoveWriteBlock, OpenV1}},
		"nothing is disabled yet": {why: "nothing is put back that was not taken", force: true,
			locks: Locks{V1: glassSide(false, "u"), Migrations: inGlassPhase("Migrating")}, want: []LockWrite{DeleteMigration, OpenV1}},
		"converged, v3 not opened": {why: "v1 must not be opened any more", locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Migrations: inGlassPhase("Converged")},
			held: "its manager opens v3"},
		"converged, v3 not opened, no manager": {why: "v3 is complete", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Fenced: true, Migrations: inGlassPhase("Converged")}, want: []LockWrite{OpenV3}},
		"converged": {why: "there is nothing to open, with force or without", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(true, ""), Fenced: true, Migrations: inGlassPhase("Converged")}},
		"a migration that is gone": {why: "nobody else releases what it held",
			locks: Locks{V1: glassSide(false, "gone"), V3: glassSide(false, "gone"), Fenced: true, SavedAPIService: true}, want: []LockWrite{DeleteV3Lock, OpenAPIService, RemoveWriteBlock, OpenV1}},
		"a migration that is gone, its state is not": {why: "the manager releases it",
			locks: Locks{V1: glassSide(false, "u"), Fenced: true, Orphans: inGlassPhase("Migrating")},
			held:  "to-v3 is gone, but its MachineState says that it has closed v1 at 2026-11-21T10:00:00Z, in phase Migrating: the manager is releasing it"},
		"the same without a manager": {why: "there is no object to delete", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Fenced: true, SavedAPIService: true, Orphans: inGlassPhase("Migrating")},
			want:  []LockWrite{DeleteV3Lock, OpenAPIService, RemoveWriteBlock, OpenV1}},
		"the same past the point of no return": {why: "v1 must not be opened any more", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Orphans: inGlassPhase("Converged")}, want: []LockWrite{OpenV3}},
		"a peer's CRD, and the states may not be read": {why: "the phase that the status shows is the last that is known", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Migrations: shownOnly(inGlassPhase("Converged"))}, want: []LockWrite{OpenV3}},
		"a migration that is gone, copied ahead": {why: "the lock of v3 lies behind the aggregated API server",
			locks: Locks{V1: glassSide(false, "gone"), Behind: glassSide(false, "gone"), Fenced: true}, want: []LockWrite{DeleteV3Lock, RemoveWriteBlock, OpenV1}},
		"a migration that is gone, past the point of no return": {why: "v3 is in use", locks: Locks{V1: glassSide(false, "gone"), V3: glassSide(true, "")}},
		"v1 is open, a migration that is gone has made v3": {why: "it went while it copied ahead where v3 was served from CRDs before: v3 is not complete",
			locks: Locks{V1: glassSide(true, ""), V3: glassCopy("gone")}, want: []LockWrite{DeleteV3Lock}},
		"v1 is open, a migration that is gone has closed v3": {why: "v3 was there before, and is no copy",
			locks: Locks{V1: glassSide(true, ""), V3: glassSide(false, "gone")}, held: "v1 is open, and v3 may not be complete"},
		"the same with force": {why: "a person knows that v3 is complete", force: true,
			locks: Locks{V1: glassSide(true, ""), V3: glassSide(false, "gone")}, want: []LockWrite{OpenV3}},
		"v1 is open, v3 is closed without a name": {why: "calicoctl leaves none, whichever side is in use",
			locks: Locks{V1: glassSide(true, ""), V3: glassSide(false, "")}, held: "v1 is open, and v3 may not be complete"},
		"v1 is open, a migration copies ahead": {why: "its manager opens v3 when it is complete",
			locks: Locks{V1: glassSide(true, ""), V3: glassCopy("u"), Migrations: inGlassPhase("Pending")}, held: "to-v3 has closed v3"},
		"there is no v1": {why: "v3 is all there is", locks: Locks{V3: glassSide(false, "gone")}, want: []LockWrite{OpenV3}},
		"a phase of another file": {why: "it is unknown whether v3 is in use already", force: true,
			locks: Locks{V1: glassSide(false, "u"), V3: glassSide(false, "u"), Migrations: inGlassPhase("Approving")}, held: "give the machine file that the manager runs with -f"},
		"closed without a name": {why: "calicoctl leaves none", locks: Locks{V1: glassSide(false, "")}, want: []LockWrite{OpenV1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			wantDeeds(t, c.why, c.locks, c.want, c.held, func(l *Locks) (UnlockDecision, error) { return l.Unlock(c.force) })
		})
	}
}

func TestLockByHand(t *testing.T) {
	cases := map[string]struct {
		why   string
		locks Locks
		want  []LockWrite
		held  string
	}{
		"v1 is in use":        {why: "v3 is a view of it", locks: Locks{V1: glassSide(true, "")}, want: []LockWrite{CloseV1}},
		"v3 is in use":        {why: "v1 is closed already", locks: Locks{V1: glassSide(false, "u"), V3: glassSide(true, ""), Migrations: inGlassPhase("Complete")}, want: []LockWrite{CloseV3}},
		"both are open":       {why: "one side open and one closed would contradict each other", locks: Locks{V1: glassSide(true, ""), V3: glassSide(true, "")}, want: []LockWrite{CloseV1, CloseV3}},
		"closed":              {why: "whoever did it: a second call changes nothing", locks: Locks{V1: glassSide(false, "x")}},
		"a migration is near": {why: "it would find its lock taken, or broken", locks: Locks{V1: glassSide(true, ""), Migrations: inGlassPhase("Pending")}, held: "to-v3 is in phase Pending"},
		"a migration failed":  {why: "it holds nothing", locks: Locks{V1: glassSide(true, ""), Migrations: inGlassPhase("Failed")}, want: []LockWrite{CloseV1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { wantDeeds(t, c.why, c.locks, c.want, c.held, (*Locks).Lock) })
	}
}
