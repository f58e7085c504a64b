package datastoremigration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/resources/inflight"
)

// copying copies, compares and verifies, and deletes the copies again. They bear the UID of the migration, and what is
// there already is compared: a copy that was cut short goes on where it was. People see status.progress and
// status.conflicts.
type copying struct {
	copiers

	door  *door
	lock  *v1Lock
	quota *etcdQuota
}

// plan also warns of what no copy can preserve. Where all is copied ahead, the API server
// validates it then, while nothing is locked.
func (s *copying) plan(ctx context.Context, sc *scope) (outputs, error) {
	plan, err := s.copier(sc.Object).Plan(inflight.WithLowPriority(ctx), sc.With.Bool("validate", true))
	if err != nil {
		return nil, err
	}
	if err := s.warnOfOverlaps(ctx, sc); err != nil {
		return nil, err
	}
	sc.Report(func(dm *migration) { showPlan(sc.Machine, dm, plan) })
	return outputs{"problems": examples(plan.Problems, showProblem), "objects": plan.Total}, nil
}

func showProblem(p resources.Problem) string { return p.Error() }

// copyResources copies everything. A conflict is an output, because a person
// can solve it; an object that the API server refuses ends the migration,
// because nothing here can.
func (s *copying) copyResources(ctx context.Context, sc *scope) (outputs, error) {
	if sc.With.Bool("ahead", false) {
		return s.copyAhead(ctx, sc)
	}
	return s.lock.whileLocked(s.copyLocked)(ctx, sc)
}

func (s *copying) copyLocked(ctx context.Context, sc *scope) (outputs, error) {
	sc.Report(func(dm *migration) { dm.Status.Verified = nil })
	result, err := s.copyOnce(ctx, sc, resources.V3Version, "Copying")
	if _, mayNot := errors.AsType[*copier.ForbiddenError](err); mayNot { // the copier has waited for the right: the lock does not
		return nil, fsm.Terminal("RightMissing", "%w: %s, then retry", err, check.GrantRights)
	}
	if err != nil {
		return nil, err
	}
	if len(result.Rejected) > 0 {
		return nil, fsm.Terminal("ObjectsRejected", "%d objects cannot be copied: %s", len(result.Rejected),
			strings.Join(examples(result.Rejected, showProblem), "; "))
	}
	return copied(result), nil
}

// copyOnce copies everything through a version of v3, and shows how far it is.
func (s *copying) copyOnce(ctx context.Context, sc *scope, version, verb string) (copier.Result, error) {
	if s.caches.isFull(sc.Object) {
		return copier.Result{}, storeFull("nothing is copied any more", errors.New("the copies had filled it"))
	}
	measure, began := s.metrics.copying(sc.Object), sc.Clock.Now()
	copying, done := s.quota.whileQuotaLasts(ctx, sc.Clock, !isLocked(sc.Machine, sc.Object))
	defer done()
	result, err := s.copierOver(sc.Object, version).Copy(copying, func(p copier.Progress) {
		measure(p)
		sc.Report(func(dm *migration) { showProgress(dm, p, sc.Clock.Since(began), verb) })
	})
	if err != nil {
		if full := s.quota.quotaExceeded(ctx, copying, sc, version, err); full != nil {
			err = full
		}
		return result, err
	}
	altered := judgeAltered(sc.Object, result.Altered)
	if result.Rejected = append(result.Rejected, altered...); len(altered) < len(result.Altered) {
		sc.Warn("ChecksWarn", "%s: waived: %s", copier.WaiveAltered, strings.Join(examples(result.Altered, showConflict), "; "))
	}
	sc.Report(func(dm *migration) {
		showProgress(dm, result.Progress, sc.Clock.Since(began), verb)
		setConflicts(dm, result.Conflicts)
		dm.Status.Progress.OwnersWithheld, dm.Status.Progress.NotCopied = int32(result.Deferred), notCopied(result.Skipped)
	})
	tellOnlyInV3(sc, result.OnlyInV3)
	if _, going := forPeople(result.Conflicts); len(going) > 0 {
		// Nobody but us can resolve these, and time does.
		err = fsm.Wait("%d objects are still being deleted, with their namespaces or as copies of an earlier try: %s", len(going),
			strings.Join(examples(going, showConflict), "; "))
	}
	return result, err
}

// judgeAltered rejects copies that hold something else than v1 does, unless a person wants them so.
func judgeAltered(dm *migration, altered []copier.Conflict) []resources.Problem {
	if isWaived(dm, copier.WaiveAltered) {
		return nil
	}
	var problems []resources.Problem
	for _, c := range altered {
		problems = append(problems, c.Problem(dm.UID))
	}
	return problems
}

func copied(result copier.Result) outputs {
	people, _ := forPeople(result.Conflicts)
	return conflictOutputs(people, outputs{"objects": result.Total, "ownersWithheld": result.Deferred, "rejected": examples(result.Rejected, showProblem)})
}

// forPeople separates what only a person can resolve from what copying again, or time, does.
func forPeople(conflicts []copier.Conflict) (people, others []copier.Conflict) {
	for _, c := range conflicts {
		if c.ForPerson() {
			people = append(people, c)
		} else {
			others = append(others, c)
		}
	}
	return people, others
}

func conflictOutputs(conflicts []copier.Conflict, more outputs) outputs {
	more["conflicts"] = len(conflicts)
	more["examples"] = examples(conflicts, showConflict)
	return more
}

func showConflict(c copier.Conflict) string {
	text := objectName(c.Kind, c.Namespace, c.Name)
	if c.Cause == copier.CauseEdited {
		text += ", changed after it was copied"
	}
	if len(c.Fields) > 0 {
		text += fmt.Sprintf(" (%s)", c.Fields[0])
	}
	return text
}

func objectName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// detectConflicts compares both sides where both can be seen: v3 shows v1 itself while the
// aggregated API server serves it. Under the lock that server is not to: there would be no conflict any more.
func (s *copying) detectConflicts(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.lock.takeover.staysDisabled(ctx, sc); err != nil {
		return nil, err
	}
	var compared copier.Comparison
	blocked, err := s.door.overV3(ctx, sc, func(version string) (err error) {
		compared, err = s.copierOver(sc.Object, version).Compare(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if blocked == "" {
		sc.Report(func(dm *migration) { setConflicts(dm, compared.Conflicts) })
		tellOnlyInV3(sc, compared.OnlyInV3)
	}
	return conflictOutputs(compared.Conflicts, outputs{}), nil
}

func (s *copying) remapOwners(ctx context.Context, sc *scope) (outputs, error) {
	result, err := s.copier(sc.Object).RemapOwners(ctx)
	if err != nil {
		return nil, err
	}
	sc.Report(func(dm *migration) {
		if dm.Status.Progress != nil {
			dm.Status.Progress.OwnersWithheld = int32(len(result.Missing))
		}
	})
	if len(result.Missing) > 0 {
		sc.Warn("OwnersMissing", "%d references to Calico owners that do not exist were left out: %v", len(result.Missing),
			examples(result.Missing, showProblem))
	}
	return outputs{"ownersMissing": len(result.Missing)}, nil
}

// verify compares both sides. What it proves is on record as long as it is true: the
// clean-up deletes nothing else.
func (s *copying) verify(ctx context.Context, sc *scope) (outputs, error) {
	revision := uint64(0) // where others may write v1, it would prove nothing
	if isEnforced(sc.Object) {
		// Before anything is read: what lands meanwhile is newer, whether it is read or not.
		var err error
		if revision, err = s.copier(sc.Object).Revision(ctx); err != nil {
			return nil, err
		}
	}
	v, err := s.copier(sc.Object).Verify(ctx)
	if err != nil {
		return nil, err
	}
	// What was written through a lock that was open for a moment may be in what was read before.
	if err := s.lock.lockStands(ctx, sc); err != nil {
		return nil, err
	}
	people, _ := forPeople(v.Different)
	altered := judgeAltered(sc.Object, v.Altered)
	proved := verified(v, len(altered) == 0, revision, sc.Clock.Now())
	if proved != nil {
		s.caches.verified(sc.Object, proved.At, sc.Clock.Now())
	}
	sc.Report(func(dm *migration) {
		showVerified(dm, proved)
		if len(people) > 0 {
			setConflicts(dm, people)
		}
	})
	tellOnlyInV3(sc, v.OnlyInV3)
	list := examples(v.Different, showConflict)
	for _, problems := range [][]resources.Problem{v.Missing, v.Extra, altered} {
		list = append(list, examples(problems, showProblem)...)
	}
	return outputs{
		"conflicts": len(people),
		"different": len(v.Different) + len(v.Missing) + len(v.Extra) + len(altered),
		"examples":  list[:min(len(list), exampleLimit)],
		"verified":  v.Same(),
	}, nil
}

// showVerified ends what is told of the copying once nothing is left to copy.
func showVerified(dm *migration, found *migrationv1.Verified) {
	if dm.Status.Verified = found; found != nil && dm.Status.Progress != nil {
		dm.Status.Progress.ObjectsPerSecond = 0
	}
}

// verified is nil unless everything is equal, or was altered as a person wants it.
func verified(v copier.Verification, alteredToo bool, revision uint64, at time.Time) *migrationv1.Verified {
	if !v.Accepted(alteredToo) {
		return nil
	}
	return &migrationv1.Verified{At: metav1.NewTime(at), Revision: int64(revision), Digests: migrationv1.JoinDigests(v.Verified())}
}

// deleteCopies takes back what this migration created. Objects with finalizers
// of others take a moment: wait for them, so that nothing is left behind. What was copied
// under the lock is taken back under it; otherwise v1 is open by now.
func (s *copying) deleteCopies(ctx context.Context, sc *scope) (outputs, error) {
	if !isLocked(sc.Machine, sc.Object) {
		ctx = inflight.WithLowPriority(ctx)
	}
	var deletion copier.Deletion
	err := s.door.mustReachV3(ctx, sc, func(version string) (err error) {
		deletion, err = s.copierOver(sc.Object, version).DeleteCopies(ctx, isWaived(sc.Object, copier.WaiveLastCopies))
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(deletion.Kept) > 0 {
		sc.Warn("CopiesKept", "%d copies may not be deleted and stay: %v", len(deletion.Kept), examples(deletion.Kept, showProblem))
	}
	if n := len(deletion.Remaining); n > 0 {
		return nil, fsm.Wait("%d copies are still being deleted: %v", n, examples(deletion.Remaining, showProblem))
	}
	s.caches.setFull(sc.Object, false)
	sc.Report(func(dm *migration) {
		dm.Status.Progress, dm.Status.Conflicts, dm.Status.Verified = nil, nil, nil
	})
	return nil, nil
}

func setConflicts(dm *migration, conflicts []copier.Conflict) {
	dm.Status.Conflicts = shownConflicts(conflicts)
	if dm.Status.Progress == nil {
		dm.Status.Progress = &migrationv1.Progress{}
	}
	dm.Status.Progress.Conflicts = int32(len(conflicts))
}

// shownConflicts are as many as the status lists.
func shownConflicts(conflicts []copier.Conflict) (shown migrationv1.Conflicts) {
	for _, c := range conflicts[:min(len(conflicts), migrationv1.MaxConflicts)] {
		entry := migrationv1.Conflict{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
		for _, f := range c.Fields[:min(len(c.Fields), migrationv1.MaxConflictFields)] {
			entry.Fields = append(entry.Fields, v1alpha1.Shorten(f.String(), migrationv1.MaxConflictFieldLength))
		}
		shown = append(shown, entry)
	}
	return shown
}
