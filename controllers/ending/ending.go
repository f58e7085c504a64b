// Package ending deletes migrations for people who want to know first what that does:
// an abort gives everything back, a clean-up takes v1 away.
//
// What a deletion does is the machine's business; here it is read from the status, told,
// and asked for in a way that cannot hit another state than the one that was told.
package ending

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

// Way is what a deletion comes to.
type Way string

// The ways to end.
const (
	// Abort gives everything back.
	Abort Way = "abort"
	// CleanUp deletes the v1 CRDs.
	CleanUp Way = "clean-up"
	// TooLate is between the point of no return and Complete: neither can be had.
	TooLate Way = "too late"
)

// ErrOther is wrapped by the errors that say that a deletion would be another way to end
// than the one that was asked for: nothing was deleted.
var ErrOther = errors.New("nothing was deleted")

// Of tells what a deletion comes to now. A deletion that has begun stays what it was.
func Of(dm *migrationv1.DatastoreMigration) Way {
	switch {
	case dm.Status.CompletedAt != nil:
		return CleanUp
	case strings.HasPrefix(dm.Status.Machine.OnDelete, "hold: "):
		return TooLate
	}
	return Abort
}

// Refusal is nil where a deletion is what is wanted, else an error that names what to do.
func Refusal(dm *migrationv1.DatastoreMigration, want Way) error {
	is := Of(dm)
	where := fmt.Sprintf("DatastoreMigration %s is in phase %s", dm.Name, cmp.Or(dm.Status.Phase, "(none yet)"))
	switch {
	case is == want:
		return nil
	case is == CleanUp:
		return fmt.Errorf("%w: %s: v3 is in use, and there is no way back; to delete the v1 CRDs, run: kubectl phasegate cleanup %s", ErrOther, where, dm.Name)
	case is == TooLate:
		return fmt.Errorf("%w: %s, past the point of no return: v3 is in use, and a deletion would go on to Complete and then delete the v1 CRDs at once; wait for Complete: kubectl phasegate status %s -w", ErrOther, where, dm.Name)
	}
	return fmt.Errorf("%w: %s: there is nothing to clean up before Complete; to give everything back, run: kubectl phasegate abort %s", ErrOther, where, dm.Name)
}

// Told says, line by line, what a deletion will do.
func Told(dm *migrationv1.DatastoreMigration, machine *fsm.Machine, bindings fsm.Bindings) []string {
	if Of(dm) == CleanUp {
		return []string{
			"every v1 object and CRD is kept in Secrets: kubectl get secrets -A -l " + migrationv1.LabelBackupOf + "=" + dm.Name,
			"then the v1 CRDs of crd.projectcalico.org are deleted, with all their objects, if they still hold what was verified",
			"then DatastoreMigration " + dm.Name + " goes; projectcalico.org/v3 is not touched",
		}
	}
	var lines []string
	for _, effect := range slices.Backward(dm.Status.Machine.HeldNames()) {
		lines = append(lines, fmt.Sprintf("%-10s %s", effect, releases(effect, machine, bindings)))
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing is held")
	}
	return append(lines, "then DatastoreMigration "+dm.Name+" goes; v1 is as it was")
}

// releases is the program's own sentence on what gives an effect back.
func releases(effect string, machine *fsm.Machine, bindings fsm.Bindings) string {
	for _, e := range machine.Definition().Spec.Effects {
		if e.Name == effect {
			return bindings.Actions[e.Release].Doc
		}
	}
	return "is given back"
}

// changes is how often the status may change under our hands: while it copies, the
// manager writes once a second.
const changes = 20

// Delete asks for the deletion of a migration if it still stands as it was judged. It may
// be called twice. A status that has changed since it was read is looked at again: one
// that would end otherwise by now is an ErrOther.
func Delete(ctx context.Context, c client.Client, dm *migrationv1.DatastoreMigration, want Way) error {
	for range changes {
		if dm.DeletionTimestamp != nil {
			return nil
		}
		err := c.Delete(ctx, object(dm), client.Preconditions{UID: &dm.UID, ResourceVersion: &dm.ResourceVersion})
		if !apierrs.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		now, err := read(ctx, c, dm.Name)
		if apierrs.IsNotFound(err) || err == nil && now.UID != dm.UID {
			return nil
		}
		if err == nil {
			err = Refusal(now, want)
		}
		if err != nil {
			return err
		}
		dm = now
	}
	return fmt.Errorf("delete DatastoreMigration %s: it changes all the time: try again", dm.Name)
}

// ErrStalled is wrapped by Wait's error where nothing moves before a person has acted.
var ErrStalled = errors.New("it is stalled")

// look is how often Wait looks.
const look = 500 * time.Millisecond

// Wait returns when the migration is gone. seen is told each state once. An error of ctx
// comes with what was waited for.
func Wait(ctx context.Context, c client.Client, dm *migrationv1.DatastoreMigration, seen func(*migrationv1.DatastoreMigration)) error {
	last := dm
	err := wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		now, err := read(ctx, c, dm.Name)
		switch {
		case apierrs.IsNotFound(err), err == nil && now.UID != dm.UID:
			return true, nil
		case apierrs.IsForbidden(err):
			return false, err
		case err != nil:
			return false, nil // the server may be away for a moment
		}
		if now.Status.Phase != last.Status.Phase || now.Status.Message != last.Status.Message {
			seen(now)
		}
		last = now
		if s := meta.FindStatusCondition(now.Status.Conditions, fsm.ConditionStalled); now.Status.Machine.OnDelete == goingOn && s != nil {
			return false, fmt.Errorf("%w: %s: %s: see docs/operate/troubleshooting.md", ErrStalled, s.Reason, s.Message)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("DatastoreMigration %s is in phase %s: %s: %w", dm.Name, last.Status.Phase, last.Status.Message, ctx.Err())
	}
	return err
}

// goingOn is what a machine says of a deletion in the phases that carry it out. Before
// them, Stalled is of the past.
const goingOn = "going on"

func object(dm *migrationv1.DatastoreMigration) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(migrationv1.GroupVersion.WithKind("DatastoreMigration"))
	u.SetName(dm.Name)
	return u
}

func read(ctx context.Context, c client.Client, name string) (*migrationv1.DatastoreMigration, error) {
	dm := &migrationv1.DatastoreMigration{}
	u := object(dm)
	if err := c.Get(ctx, types.NamespacedName{Name: name}, u); err != nil {
		return nil, fmt.Errorf("read DatastoreMigration %s: %w", name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, dm); err != nil {
		return nil, fmt.Errorf("read DatastoreMigration %s: %w: is this program of the version of the controller?", name, err)
	}
	return dm, nil
}
