package copier

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// notebook is where the workers of one Copy, or Plan, write down what becomes of the objects.
type notebook struct {
	tracker     *tracker
	conflicts   gathered[Conflict]
	altered     gathered[Conflict]
	rejected    gathered[resources.Problem]
	skipped     gathered[Skipped]
	onlyInV3    gathered[resources.Problem]
	terminating gathered[terminatingV1]
	// owners is where each v1 object is in v3.
	owners *ownerMap
	// unmanaged are equal but for owners in Calico, as far as these were known.
	unmanaged gathered[dependent]
	deferred  atomic.Int64
}

func newNotebook(kinds []*resources.Kind, totals []int64, report Report) *notebook {
	return &notebook{tracker: newTracker(kinds, totals, report), owners: newOwnerMap()}
}

func (n *notebook) reject(kind *resources.Kind, problem resources.Problem) {
	n.rejected.add(problem)
	n.tracker.rejected(kind, problem)
}

func (n *notebook) conflict(kind *resources.Kind, key client.ObjectKey, found finding) {
	n.conflicts.add(conflictOf(kind, key, found))
	n.tracker.done(kind, conflicted)
}

// done counts an object that is in v3. One that is not ours is listed: a person may not expect it there.
func (n *notebook) done(d dependent, count counter) {
	n.tracker.done(d.kind, count)
	if !d.live.ours {
		n.skipped.add(d.skipped())
	}
}

// leave counts an object that is being deleted in v1. Its copy, if there is one, is left for removeOrphans.
func (n *notebook) leave(kind *resources.Kind, v1 *unstructured.Unstructured) {
	n.terminating.add(terminatingV1{kind, v1})
	n.tracker.done(kind, terminating)
}

// landed notes where a v1 object is in v3, and whether it lacks owners in Calico there: one of them is
// not copied yet, or was not when the object was. Those of a copy of ours are RemapOwners' to set.
func (n *notebook) landed(v1 rawUID, d dependent) error {
	if err := n.owners.record(v1, d.kind, d.key.Name, &d.live); err != nil {
		return err
	}
	d.live.owners, _ = resources.SplitOwners(d.live.owners)
	want, unknown := n.owners.resolve(d.want)
	switch {
	case len(unknown) == 0 && len(resources.DiffOwners(want, d.live.owners)) == 0:
	case d.live.ours:
		n.deferred.Add(1)
	default:
		n.unmanaged.add(d)
	}
	return nil
}

// judgeUnmanaged finds the unmanaged objects with other owners than v1 has, now that all are known: nobody but a
// person sets them, and he is asked before anything is locked.
func (n *notebook) judgeUnmanaged() {
	for _, d := range n.unmanaged.all {
		want, _ := n.owners.resolve(d.want)
		if diffs := resources.DiffOwners(want, d.live.owners); len(diffs) > 0 {
			n.conflicts.add(conflictOf(d.kind, d.key, finding{CauseUnmanaged, diffs}))
			n.tracker.moved(d.kind, alreadyEqual, conflicted)
			n.skipped.remove(func(s Skipped) bool { return s == d.skipped() })
		}
	}
}

func (n *notebook) result() Result {
	return Result{Progress: n.tracker.snapshot(), Conflicts: n.conflicts.sorted(compareConflicts), Rejected: n.rejected.sorted(compareProblems),
		Skipped: n.skipped.sorted(compareSkipped), Altered: n.altered.sorted(compareConflicts), OnlyInV3: n.onlyInV3.sorted(compareProblems),
		Deferred: n.deferred.Load()}
}
