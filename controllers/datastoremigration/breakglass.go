package datastoremigration

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// ErrHeld is wrapped by the errors that say that a migration holds the lock, or would take
// it: nothing was written.
var ErrHeld = errors.New("nothing was written")

// Locks is what keeps Calico's datastore closed at a moment, seen from outside.
type Locks struct {
	// Machine is the one that drives the migrations: it says what their phases are.
	Machine *fsm.Machine
	// V1 and V3 are the ClusterInformations; nil where there is none. V3 is nil too while
	// the aggregated API server serves v3, which shows V1 then.
	V1, V3 *unstructured.Unstructured
	// Behind is the lock of v3 behind an aggregated API server, seen through the side door.
	Behind *unstructured.Unstructured
	// Fenced says that writes of v1 are refused while it is locked.
	Fenced bool
	// SavedAPIService says that an APIService is saved, which is to come back.
	SavedAPIService bool
	// Migrations are all that there are, as their states say.
	Migrations []migration
	// Orphans are migrations that are gone, and whose states are still there.
	Orphans []migration
	// Note says why Migrations are as their status says, and Orphans not known; empty if
	// the states could be read.
	Note string
}

// LockWrite is one write that opens or closes the datastore, in the order of the constants.
type LockWrite string

// The deeds.
const (
	DeleteMigration   LockWrite = "delete the migration, so that a manager which comes back releases the rest"
	OpenAPIService    LockWrite = "put the APIService of Calico's API server back"
	DeleteV3Lock      LockWrite = "delete the lock of v3, which is a copy"
	RemoveWriteBlock  LockWrite = "lift the fence around v1"
	OpenV1            LockWrite = "open v1: datastoreReady=true"
	OpenV3            LockWrite = "open v3: datastoreReady=true"
	CloseV1           LockWrite = "close v1: datastoreReady=false"
	CloseV3           LockWrite = "close v3: datastoreReady=false"
	handPrefix                  = "kubectl phasegate lock: "
	aheadOfTheManager           = "abort it, if a manager runs: kubectl phasegate abort %s"
)

// UnlockDecision is what is to be done, and why.
type UnlockDecision struct {
	// Says is the situation in a sentence.
	Says  string
	Deeds []LockWrite
}

// byHand tells whether a person closed a side, with `kubectl phasegate lock`.
func byHand(info *unstructured.Unstructured) bool {
	return info != nil && !isReady(info) && strings.HasPrefix(string(lockedBy(info)), handPrefix)
}

func closed(info *unstructured.Unstructured) bool { return info != nil && !isReady(info) }

// phase is what the machine says of the phase that a migration is in. Where nothing but its
// status can be read, it is that which the status shows.
func (l *Locks) phase(dm *migration) fsm.PhaseInfo {
	return l.Machine.PhaseInfo(cmp.Or(dm.Status.Machine.Phase, l.Machine.PhaseShown(dm.Status.Phase)))
}

// passed tells whether v3 is in use: then v1 is closed for good.
func (l *Locks) passed(dm *migration) bool {
	return dm.Status.CompletedAt != nil || l.phase(dm).NoReturn
}

// unknown is an error where a migration is in a phase of another machine file: what it has
// done cannot be told.
func (l *Locks) unknown(dm *migration) error {
	if dm == nil || dm.CurrentPhase() == "" || l.phase(dm).Known {
		return nil
	}
	return fmt.Errorf("%w: DatastoreMigration %s is in phase %s, which %s does not have: give the machine file that the manager runs with -f", ErrHeld, dm.Name, dm.CurrentPhase(), l.Machine.File())
}

func (l *Locks) migration(uid types.UID) *migration {
	return find(l.Migrations, uid)
}

// taker is the migration that has taken something, also one that is gone and whose state
// is still there.
func (l *Locks) taker(uid types.UID) *migration {
	if dm := l.migration(uid); dm != nil {
		return dm
	}
	return find(l.Orphans, uid)
}

func find(all []migration, uid types.UID) *migration {
	i := slices.IndexFunc(all, func(dm migration) bool { return dm.UID == uid })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Unlock decides how to open what is closed. It is an ErrHeld while a migration holds the
// lock, unless force says that no manager releases it; and where v3 may not be complete.
func (l *Locks) Unlock(force bool) (UnlockDecision, error) {
	if v := l.openHand(); len(v.Deeds) > 0 {
		return v, nil
	}
	switch v1Closed := closed(l.V1); {
	case !v1Closed && !closed(l.V3):
		return UnlockDecision{Says: "the datastore is open"}, nil
	case v1Closed && l.V3 != nil && isReady(l.V3):
		return UnlockDecision{Says: "v3 is open and in use; v1 is closed for good"}, nil
	case v1Closed:
		return l.openV1(force)
	}
	if by := lockedBy(l.V3); l.V1 != nil && l.taker(by) == nil {
		return l.besideV1(by, force)
	}
	return l.openV3(lockedBy(l.V3), force)
}

// besideV1 is for a v3 that is closed while v1 is open, by no migration that is known: as far
// as can be seen v1 is in use, and v3 may lack objects.
func (l *Locks) besideV1(by types.UID, force bool) (UnlockDecision, error) {
	switch {
	case by != "" && createdBy(l.V3) == by:
		return UnlockDecision{Says: fmt.Sprintf("v1 is open, and a DatastoreMigration that is gone, UID %s, has made the lock of v3", by), Deeds: []LockWrite{DeleteV3Lock}}, nil
	case !force:
		return UnlockDecision{}, fmt.Errorf("%w: v1 is open, and v3 may not be complete: Calico would take it for the truth. It was closed by %q, which is no migration that is known; if you know that v3 is complete, --force opens it (docs/operate/break-glass.md)", ErrHeld, by)
	}
	return l.openV3(by, force)
}

// openHand opens what was closed by hand, and nothing else.
func (l *Locks) openHand() (v UnlockDecision) {
	if byHand(l.V1) {
		v = UnlockDecision{Says: "v1 was closed by hand: " + string(lockedBy(l.V1)), Deeds: []LockWrite{OpenV1}}
	}
	if byHand(l.V3) {
		v = UnlockDecision{Says: "v3 was closed by hand: " + string(lockedBy(l.V3)), Deeds: append(v.Deeds, OpenV3)}
	}
	return v
}

// openV1 is for a v1 that is closed while v3 is not open.
func (l *Locks) openV1(force bool) (UnlockDecision, error) {
	holder := l.taker(lockedBy(l.V1))
	if err := l.unknown(holder); err != nil {
		return UnlockDecision{}, err
	}
	switch {
	case holder != nil && l.passed(holder):
		return l.openV3(holder.UID, force)
	case holder != nil && !force:
		return UnlockDecision{}, l.held(holder, "closed v1")
	case l.migration(lockedBy(l.V1)) != nil:
		return UnlockDecision{Says: fmt.Sprintf("DatastoreMigration %s has closed v1, and is in phase %s", holder.Name, holder.CurrentPhase()),
			Deeds: l.andOpenV1(DeleteMigration)}, nil
	case lockedBy(l.V1) == "":
		return UnlockDecision{Says: "v1 was closed without a note of who did it, and not by a migration of ours", Deeds: []LockWrite{OpenV1}}, nil
	}
	v := UnlockDecision{Says: fmt.Sprintf("v1 was closed by a DatastoreMigration that is gone, UID %s: nothing releases what it held", lockedBy(l.V1))}
	if l.v3ClosedBy(lockedBy(l.V1)) {
		v.Deeds = append(v.Deeds, DeleteV3Lock)
	}
	v.Deeds = l.andOpenV1(v.Deeds...)
	return v, nil
}

func (l *Locks) v3ClosedBy(uid types.UID) bool {
	return l.Behind != nil && lockedBy(l.Behind) == uid || l.V3 != nil && lockedBy(l.V3) == uid
}

// andOpenV1 is what comes after some deeds to open v1.
func (l *Locks) andOpenV1(first ...LockWrite) []LockWrite {
	if l.SavedAPIService {
		first = append(first, OpenAPIService)
	}
	if l.Fenced {
		first = append(first, RemoveWriteBlock)
	}
	return append(first, OpenV1)
}

// openV3 is for a v3 that is closed past the point of no return, or where there is no v1.
func (l *Locks) openV3(by types.UID, force bool) (UnlockDecision, error) {
	holder := l.taker(by)
	if err := l.unknown(holder); err != nil {
		return UnlockDecision{}, err
	}
	if holder != nil && !force {
		return UnlockDecision{}, l.held(holder, "closed v3")
	}
	if holder != nil && !l.passed(holder) {
		return UnlockDecision{}, fmt.Errorf("%w: v3 is closed by DatastoreMigration %s, in phase %s, and is not complete: Calico would take it for the truth; "+aheadOfTheManager,
			ErrHeld, holder.Name, holder.CurrentPhase(), holder.Name)
	}
	return UnlockDecision{Says: "v3 is in use, and closed", Deeds: []LockWrite{OpenV3}}, nil
}

// held says who, since when, and what is better than force.
func (l *Locks) held(by *migration, has string) error {
	since := ""
	if at := by.Status.DatastoreLockedAt; at != nil {
		since = " at " + at.UTC().Format(time.RFC3339)
	}
	if l.migration(by.UID) == nil {
		return fmt.Errorf("%w: DatastoreMigration %s is gone, but its MachineState says that it has %s%s, in phase %s: the manager is releasing it; if none can be brought to run, --force opens it (docs/operate/break-glass.md)",
			ErrHeld, by.Name, has, since, by.CurrentPhase())
	}
	if l.passed(by) {
		return fmt.Errorf("%w: DatastoreMigration %s %s%s and is past the point of no return, in phase %s: its manager opens v3; with --force, you do", ErrHeld, by.Name, has, since, by.CurrentPhase())
	}
	return fmt.Errorf("%w: DatastoreMigration %s has %s%s, and is in phase %s: "+aheadOfTheManager+"; if none can be brought to run, --force opens it (docs/operate/break-glass.md)",
		ErrHeld, by.Name, has, since, by.CurrentPhase(), by.Name)
}

// Lock decides what to close by hand: every side that is open. It is an ErrHeld while a
// migration is on its way, which closes by itself and would take this for a breach.
func (l *Locks) Lock() (UnlockDecision, error) {
	for i := range l.Migrations {
		dm := &l.Migrations[i]
		if !l.passed(dm) && l.phase(dm).Terminal != v1alpha1.PhaseFailure {
			return UnlockDecision{}, fmt.Errorf("%w: DatastoreMigration %s is in phase %s, and closes the datastore by itself when it is time; to stop it: kubectl phasegate abort %s", ErrHeld, dm.Name, dm.CurrentPhase(), dm.Name)
		}
	}
	v := UnlockDecision{Says: "Calico's components stop giving out addresses; writes of others are not refused: that is what a migration's fence does"}
	if l.V1 != nil && isReady(l.V1) {
		v.Deeds = append(v.Deeds, CloseV1)
	}
	if l.V3 != nil && isReady(l.V3) {
		v.Deeds = append(v.Deeds, CloseV3)
	}
	switch {
	case len(v.Deeds) > 0:
		return v, nil
	case l.V1 == nil && l.V3 == nil:
		return UnlockDecision{}, fmt.Errorf("there is no ClusterInformation %s in %s or %s, so nothing to close: is this a cluster with Calico?", clusterInformationName, resources.V1Group, resources.V3Group)
	}
	return UnlockDecision{Says: "the datastore is closed already"}, nil
}

// handNote is what a side bears that was closed by hand: never the UID of a migration.
func handNote(who string, at time.Time) types.UID {
	return types.UID(fmt.Sprintf("%s%s at %s", handPrefix, who, at.UTC().Format(time.RFC3339)))
}
