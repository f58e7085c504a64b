package copier

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/resources"
)

// landed notes where a v1 object is in v3, and whether it lacks owners in Calico there: one of them is
// not copied yet, or was not when the object was. Those of a copy of ours are RemapOwners' to set.
func (r *run) landed(v1 types.UID, d dependent) error {
	if err := r.owners.record(v1, d.kind, d.key.Name, d.live.uid); err != nil {
		return err
	}
	d.live.owners, _ = resources.SplitOwners(d.live.owners)
	want, unknown := r.owners.resolve(d.want)
	if len(unknown) == 0 && len(resources.DiffOwners(want, d.live.owners)) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.live.ours {
		r.deferred++
	} else {
		r.adopted = append(r.adopted, d)
	}
	return nil
}

// judgeAdopted finds the adopted objects with other owners than v1 has, now that all are known: nobody but a
// person sets them, and he is asked before anything is locked.
func (r *run) judgeAdopted() {
	for _, d := range r.adopted {
		want, _ := r.owners.resolve(d.want)
		if diffs := resources.DiffOwners(want, d.live.owners); len(diffs) > 0 {
			r.conflicts = append(r.conflicts, Conflict{Kind: d.kind.Name(), Namespace: d.key.Namespace, Name: d.key.Name, Cause: CauseUnmanaged, Fields: diffs})
			r.tracker.moved(d.kind, alreadyEqual, conflicted)
			skip := Skipped{Kind: d.kind.Name(), Namespace: d.key.Namespace, Name: d.key.Name, Why: SkippedEqual}
			r.skipped = slices.DeleteFunc(r.skipped, func(s Skipped) bool { return s == skip })
		}
	}
}
