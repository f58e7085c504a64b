package datastoremigration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// decorate derives the migration's own fields from the machine's. It is a pure
// function of the machine and the object.
func decorate(m *fsm.Machine, dm *migration) {
	machine := &dm.Status.Machine
	phase := m.PhaseInfo(machine.Phase)
	// Past the point of no return v1 stays locked for good and is kept, not held:
	// nobody waits for it then.
	if !isLocked(m, dm) {
		dm.Status.DatastoreLockedAt, dm.Status.Lock = nil, nil
	}
	if phase.NoReturn || phase.Failing || phase.Terminal != "" || phase.Deletion {
		dm.Status.CopyAhead = nil // nobody asks any more what was copied ahead
	}
	if phase.Terminal == v1alpha1.PhaseSuccess && dm.Status.CompletedAt == nil && machine.EnteredAt != nil {
		dm.Status.CompletedAt = new(metav1.NewTime(machine.EnteredAt.Time))
	}
	if phase.Terminal == v1alpha1.PhaseSuccess && dm.Status.Progress != nil {
		dm.Status.Progress.NotCopied, dm.Status.Progress.OnlyInV3 = "", "" // to be looked into before; the counts stay
	}
	showLateWrites(dm)
	setCondition(dm, migrationv1.ConditionConflict, conflictCondition(dm))
	setCondition(dm, migrationv1.ConditionFailed, failedCondition(m, dm))
}

// showLateWrites shows them as the conflicts that they are. Before them there are none.
func showLateWrites(dm *migration) {
	if len(dm.Status.LateWrites) == 0 {
		return
	}
	dm.Status.Conflicts = dm.Status.LateWrites
	if dm.Status.Progress != nil {
		dm.Status.Progress.Conflicts = int32(len(dm.Status.LateWrites))
	}
}

func setCondition(dm *migration, conditionType string, c *metav1.Condition) {
	entered := dm.Status.Machine.EnteredAt
	if c == nil || entered == nil {
		meta.RemoveStatusCondition(dm.Conditions(), conditionType)
		return
	}
	c.Type, c.Status, c.ObservedGeneration = conditionType, metav1.ConditionTrue, dm.Status.ObservedGeneration
	c.LastTransitionTime = metav1.NewTime(entered.Time)
	meta.SetStatusCondition(dm.Conditions(), *c)
}

func conflictCondition(dm *migration) *metav1.Condition {
	if len(dm.Status.Conflicts) == 0 {
		return nil
	}
	c := &metav1.Condition{Reason: migrationv1.ReasonResourceMismatch}
	first := dm.Status.Conflicts[0]
	if len(dm.Status.LateWrites) > 0 {
		c.Reason = migrationv1.ReasonLateWrites
		c.Message = fmt.Sprintf("%s between v1 and v3, the first is %s: it was written in v1 after both sides were compared, and in v3 too. Write in v3 what is to be in force; status.conflicts lists both contents. The clean-up waits for the annotation %s",
			differ(len(dm.Status.Conflicts)), objectName(first.Kind, first.Namespace, first.Name), waiverFor(dm, waiveV1Changed))
		return c
	}
	c.Message = fmt.Sprintf("%s between v1 and v3, the first is %s: edit or delete one side; status.conflicts lists all, `kubectl phasegate conflicts` has the commands",
		differ(len(dm.Status.Conflicts)), objectName(first.Kind, first.Namespace, first.Name))
	if total := dm.Status.Progress; total != nil && int(total.Conflicts) > len(dm.Status.Conflicts) {
		c.Reason = migrationv1.ReasonConflictsOmitted
		c.Message = fmt.Sprintf("%s between v1 and v3: edit or delete one side; status.conflicts lists %d of them, `kubectl phasegate conflicts` lists all and has the commands",
			differ(int(total.Conflicts)), len(dm.Status.Conflicts))
	}
	return c
}

func differ(n int) string {
	if n == 1 {
		return "1 object differs"
	}
	return fmt.Sprintf("%d objects differ", n)
}

// spreadConflicts shows a condition for each conflict, as Calico's own controller does, where
// the CRD lets a type of condition repeat and has no place for status.conflicts.
func spreadConflicts(dm *migration) {
	entered := dm.Status.Machine.EnteredAt
	if len(dm.Status.Conflicts) == 0 || entered == nil {
		return
	}
	meta.RemoveStatusCondition(dm.Conditions(), migrationv1.ConditionConflict)
	for _, c := range dm.Status.Conflicts {
		dm.Status.Conditions = append(dm.Status.Conditions, metav1.Condition{
			Type: migrationv1.ConditionConflict, Status: metav1.ConditionTrue, Reason: migrationv1.ReasonResourceMismatch,
			ObservedGeneration: dm.Status.ObservedGeneration, LastTransitionTime: metav1.NewTime(entered.Time),
			Message: c.Message(),
		})
	}
}

// failedCondition keeps the cause while a failure is rolled back and afterwards: what led
// from where all could still go well.
func failedCondition(m *fsm.Machine, dm *migration) *metav1.Condition {
	machine := &dm.Status.Machine
	if !m.PhaseInfo(machine.Phase).Failing {
		return nil
	}
	for _, t := range slices.Backward(machine.History) {
		if m.PhaseInfo(t.To).Failing && !m.PhaseInfo(t.From).Failing {
			return &metav1.Condition{Reason: migrationv1.ReasonMigrationError, Message: t.Reason + ": " + t.Message}
		}
	}
	return nil
}

// perSecond is at least 1, so that what divides by it never fails.
func perSecond(objects int64, took time.Duration) int32 {
	return int32(max(float64(objects)/max(took.Seconds(), 0.001), 1))
}

// progressOf translates the copier's counts into the peer's fields.
func progressOf(p copier.Progress) *migrationv1.Progress {
	out := &migrationv1.Progress{
		TotalTypes: int32(len(p.Kinds)), Total: int32(p.Total),
		Migrated: int32(p.Created + p.Updated + p.Kept), Skipped: int32(p.AlreadyEqual), Terminating: int32(p.Terminating), Conflicts: int32(p.Conflicts),
	}
	counts := make([]migrationv1.KindCount, len(p.Kinds))
	for i, k := range p.Kinds {
		counts[i] = migrationv1.KindCount{Kind: k.Kind, Done: k.Done, Total: k.Total, Conflicts: k.Conflicts}
		if k.Done >= k.Total {
			out.CompletedTypes++
		} else if out.CurrentType == "" {
			out.CurrentType = k.Kind
		}
		// Two lines of describe for each of 21 kinds would bury everything else. As long as
		// the list of conflicts has all, their kinds can be read there.
		inWork, inConflict := k.Done > 0 && k.Done < k.Total, k.Conflicts > 0 && p.Conflicts > migrationv1.MaxConflicts
		if inWork || inConflict {
			out.TypeDetails = append(out.TypeDetails, migrationv1.TypeProgress{
				Kind: k.Kind, Migrated: int32(k.Created + k.Updated + k.Kept), Skipped: int32(k.AlreadyEqual), Terminating: int32(k.Terminating), Conflicts: int32(k.Conflicts),
			})
		}
	}
	out.Kinds = migrationv1.JoinCounts(counts)
	out.TypeProgress = fmt.Sprintf("%d / %d", out.CompletedTypes, out.TotalTypes)
	countObjects(out)
	return out
}

// countObjects is for those who look at a list: what is in v3 as it should be, of all. A
// conflict is not, nor what is still to be looked at.
func countObjects(p *migrationv1.Progress) {
	p.Objects = fmt.Sprintf("%d/%d", p.Finished(), p.Total)
}

// notCopied names what is skipped. What is being deleted comes first: a person may not know of it.
func notCopied(all []copier.Skipped) string {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b copier.Skipped) int { return strings.Compare(string(b.Why), string(a.Why)) })
	return named(sorted, showSkipped)
}

// tellOnlyInV3 names what is in force as soon as v3 is open though this migration has not made it, and warns of it
// when it has changed.
func tellOnlyInV3(sc *scope, found []resources.Problem) {
	changed := false
	sc.Report(func(dm *migration) {
		if dm.Status.Progress == nil {
			dm.Status.Progress = &migrationv1.Progress{}
		}
		shown := &dm.Status.Progress.OnlyInV3
		now := named(found, func(p resources.Problem) string { return objectName(p.Kind, p.Namespace, p.Name) })
		changed, *shown = now != *shown, now
	})
	if changed && len(found) > 0 {
		sc.Warn("OnlyInV3", "%d objects are in v3 only: %s", len(found), strings.Join(examples(found, showProblem), "; "))
	}
}

// named is a line that names as many as fit.
func named[E any](all []E, show func(E) string) string {
	return strings.Join(some(all, migrationv1.MaxNamed, namedLength, show), "; ")
}

// namedLength is how many characters of an object such a line has.
const namedLength = 480

func showSkipped(s copier.Skipped) string {
	why := "in v3 already, with the same content"
	if s.Why == copier.SkippedTerminating {
		why = "being deleted in v1"
	}
	return objectName(s.Kind, s.Namespace, s.Name) + ": " + why
}

// showPlan tells what there is to do. What was copied ahead is not forgotten when a plan is
// made again.
func showPlan(m *fsm.Machine, dm *migration, plan copier.Plan) {
	shown := dm.Status.Progress
	if shown == nil || !m.Holds(&dm.Status.Machine, CopyAction) {
		dm.Status.Progress = plannedProgress(plan)
		dm.Status.Progress.NotCopied = notCopied(plan.Skipped)
		return
	}
	shown.Total, shown.Conflicts = int32(plan.Total), 0
	countObjects(shown)
}

// plannedProgress is that of a copy that has not begun.
func plannedProgress(plan copier.Plan) *migrationv1.Progress {
	kinds := make([]copier.KindProgress, len(plan.Kinds))
	for i, k := range plan.Kinds {
		kinds[i] = copier.KindProgress{Kind: k.Kind, Counts: copier.Counts{Total: k.Total}}
	}
	return progressOf(copier.Progress{Counts: copier.Counts{Total: plan.Total}, Kinds: kinds})
}

// showProgress never goes back while a copy runs: one that runs again, after a round
// ahead, a conflict or a crash, looks at what is done already, which the message tells.
func showProgress(dm *migration, p copier.Progress, took time.Duration, verb string) {
	next, shown := progressOf(p), dm.Status.Progress
	next.ObjectsPerSecond = perSecond(p.Done, took)
	if shown != nil {
		next.OwnersWithheld, next.NotCopied, next.OnlyInV3 = shown.OwnersWithheld, shown.NotCopied, shown.OnlyInV3
	}
	if shown != nil && p.Done < p.Total && shown.Finished() > next.Finished() {
		next.Migrated, next.Skipped, next.Terminating = shown.Migrated, shown.Skipped, shown.Terminating
		next.CompletedTypes, next.TypeProgress, next.Kinds = shown.CompletedTypes, shown.TypeProgress, shown.Kinds
		next.Total = max(next.Total, shown.Finished())
		countObjects(next)
		verb += " again"
	}
	dm.Status.Progress = next
	dm.Status.Message = fmt.Sprintf("%s: %d of %d objects, %s types", verb, p.Done, p.Total, next.TypeProgress)
	if p.Problem != nil {
		dm.Status.Message += fmt.Sprintf("; %d cannot be copied, the first: %s", p.Rejected, v1alpha1.Shorten(p.Problem.Error(), exampleLength))
	}
}
