// Package deletion deletes migrations for people who want to know first what that does:
// an abort releases everything, a clean-up takes v1 away.
//
// What a deletion does is the machine's business; here it is read from the machine and the
// state, told, and asked for on condition that the object is as it was read. The state was
// read after it.
package deletion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// DeleteMode is what a deletion comes to.
type DeleteMode string

// The ways to end.
const (
	// Abort releases everything.
	Abort DeleteMode = "abort"
	// CleanUp deletes the v1 CRDs.
	CleanUp DeleteMode = "clean-up"
	// TooLate is between the point of no return and Complete: neither can be had.
	TooLate DeleteMode = "too late"
	// Unknown is in a phase that the machine file at hand does not have.
	Unknown DeleteMode = "unknown"
)

// ErrOther is wrapped by the errors that say that a deletion would be another way to end
// than the one that was asked for: nothing was deleted.
var ErrOther = errors.New("nothing was deleted")

// Of tells what a deletion comes to now. A deletion that has begun stays what it was.
func Of(dm *migrationv1.DatastoreMigration, m *fsm.Machine) DeleteMode {
	does, known := onDelete(dm, m)
	switch {
	case dm.Status.CompletedAt != nil:
		return CleanUp
	case !known && (does == nil || does.Mode == v1alpha1.DeletionBlocked):
		return Unknown
	case does.Mode == v1alpha1.DeletionHold:
		return TooLate
	}
	return Abort
}

// onDelete is what the machine says of a deletion. The status says it only where its CRD
// keeps it, and is asked only about a phase that the machine at hand does not have.
func onDelete(dm *migrationv1.DatastoreMigration, m *fsm.Machine) (does *v1alpha1.DeletionStatus, known bool) {
	st := dm.Status.Machine
	st.Phase = cmp.Or(st.Phase, m.PhaseShown(dm.Status.Phase))
	if does, known = m.OnDelete(st); known {
		return does, true
	}
	return dm.Status.Machine.OnDelete, false
}

// Refusal is nil where a deletion is what is wanted, else an error that names what to do.
func Refusal(dm *migrationv1.DatastoreMigration, m *fsm.Machine, want DeleteMode) error {
	is := Of(dm, m)
	where := fmt.Sprintf("DatastoreMigration %s is in phase %s", dm.Name, cmp.Or(dm.CurrentPhase(), "(none yet)"))
	switch {
	case is == want:
		return nil
	case is == CleanUp:
		return fmt.Errorf("%w: %s: v3 is in use, and no rollback is possible; to delete the v1 CRDs, run: kubectl phasegate cleanup %s", ErrOther, where, dm.Name)
	case is == Unknown:
		return fmt.Errorf("%w: %s, which %s does not have: what a deletion does there is unknown; give the machine file that the manager runs with -f", ErrOther, where, m.File())
	case is == TooLate:
		return fmt.Errorf("%w: %s, past the point of no return: v3 is in use, and a deletion would go on to Complete and then delete the v1 CRDs at once; wait for Complete: kubectl phasegate status %s -w", ErrOther, where, dm.Name)
	}
	return fmt.Errorf("%w: %s: there is nothing to clean up before Complete; to roll back, run: kubectl phasegate abort %s", ErrOther, where, dm.Name)
}

// Consequences says, line by line, what a deletion will do.
func Consequences(dm *migrationv1.DatastoreMigration, machine *fsm.Machine) []string {
	if Of(dm, machine) == CleanUp {
		return []string{
			"every v1 object and CRD is kept in Secrets: kubectl get secrets -A -l " + migrationv1.LabelBackupOf + "=" + dm.Name,
			"then the v1 CRDs of crd.projectcalico.org are deleted, with all their objects, if they still hold what was verified",
			"then DatastoreMigration " + dm.Name + " goes; projectcalico.org/v3 is not touched",
		}
	}
	var lines []string
	for _, effect := range slices.Backward(statusview.HeldBy(machine, dm.Status.Machine.Held)) {
		lines = append(lines, fmt.Sprintf("%-10s %s", effect.Effect, cmp.Or(effect.Release, "is released")))
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing is held")
	}
	return append(lines, "then DatastoreMigration "+dm.Name+" goes; v1 is as it was")
}

// changes is how often the status may change under our hands: while it copies, the
// manager writes once a second.
const changes = 20

// Delete asks for the deletion of a migration if it still stands as it was judged. It may
// be called twice. A status that has changed since it was read is looked at again: one
// that would end otherwise by now is an ErrOther.
func Delete(ctx context.Context, c client.Client, dm *migrationv1.DatastoreMigration, m *fsm.Machine, want DeleteMode) error {
	for range changes {
		if dm.DeletionTimestamp != nil {
			return nil
		}
		err := c.Delete(ctx, object(dm), client.Preconditions{UID: &dm.UID, ResourceVersion: &dm.ResourceVersion})
		if apierrors.ObjectNotFound(err) {
			return nil
		}
		if !apierrs.IsConflict(err) {
			return err
		}
		now, err := read(ctx, c, m, dm.Name)
		if apierrors.ObjectNotFound(err) || err == nil && now.UID != dm.UID {
			return nil
		}
		if err == nil {
			err = Refusal(now, m, want)
		}
		if err != nil {
			return err
		}
		dm = now
	}
	return fmt.Errorf("delete DatastoreMigration %s: the object kept changing: retry", dm.Name)
}

// ErrStalled is wrapped by Wait's error where nothing moves before a person has acted.
var ErrStalled = errors.New("it is stalled")

const look = 500 * time.Millisecond

// Wait returns when the migration is gone. seen is told each state once. An error of ctx
// comes with what was waited for.
func Wait(ctx context.Context, c client.Client, dm *migrationv1.DatastoreMigration, m *fsm.Machine, seen func(*migrationv1.DatastoreMigration)) error {
	last := dm
	err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		now, err := read(ctx, c, m, dm.Name)
		switch {
		case apierrors.ObjectNotFound(err), err == nil && now.UID != dm.UID:
			return true, nil
		case apierrs.IsForbidden(err):
			return false, err
		case err != nil:
			return false, nil // the server may be away for a moment, or does not serve the kind yet
		}
		if now.CurrentPhase() != last.CurrentPhase() || now.Status.Message != last.Status.Message {
			seen(now)
		}
		last = now
		// Before the phases that carry a deletion out, Stalled is of the past.
		does, _ := onDelete(last, m)
		if s := meta.FindStatusCondition(last.Status.Conditions, fsm.ConditionStalled); s != nil && does != nil && does.Mode == v1alpha1.DeletionInProgress {
			return false, fmt.Errorf("%w: %s: %s: see docs/operate/troubleshooting.md", ErrStalled, s.Reason, s.Message)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("DatastoreMigration %s is in phase %s: %s: %w", dm.Name, last.CurrentPhase(), last.Status.Message, ctx.Err())
	}
	return err
}

// read reads the migration, and its state after it. So a deletion on condition of the
// resourceVersion is judged by a state that is not older than the object.
func read(ctx context.Context, c client.Client, m *fsm.Machine, name string) (*migrationv1.DatastoreMigration, error) {
	o, err := live.Get(ctx, c, m, types.NamespacedName{Name: name})
	if err != nil {
		return nil, err
	}
	dm, err := o.Migration()
	if err == nil {
		dm.Status.Message = o.MessageIn(m)
	}
	return dm, err
}

func object(dm *migrationv1.DatastoreMigration) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(migrationv1.GroupVersion.WithKind("DatastoreMigration"))
	u.SetName(dm.Name)
	return u
}
