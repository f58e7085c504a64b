package invariants

import (
	"fmt"
	"slices"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// order is I6.
func (r Run) order() []string {
	legal := map[string]bool{}
	for _, edge := range r.Machine.Edges() {
		legal[edge.From+" → "+edge.To] = true
	}
	var flaws []string
	phase, done := "", int32(0)
	for _, dm := range r.Record.Statuses {
		now := dm.Status.Machine.Phase
		if way := phase + " → " + now; phase != "" && phase != now && !legal[way] {
			flaws = append(flaws, "the machine has no way "+way)
		}
		if giving := []string{"RollingBack", "Aborting", "Failed", "Pending"}; slices.Contains(giving, now) {
			done = 0
		}
		if p := dm.Status.Progress; p != nil {
			if sum := p.Migrated + p.Skipped; sum < done {
				flaws = append(flaws, fmt.Sprintf("progress went from %d to %d objects in %s", done, sum, now))
			} else {
				done = sum
			}
		}
		phase = now
	}
	return flaws
}

// ending is I7.
func (r Run) ending() []string {
	var flaws []string
	if r.Limit > 0 && r.Took > r.Limit {
		flaws = append(flaws, fmt.Sprintf("it took %s, more than %s", r.Took, r.Limit))
	}
	if len(r.Record.Statuses) == 0 {
		return append(flaws, "no migration was seen")
	}
	last := r.Record.Statuses[len(r.Record.Statuses)-1]
	if !r.endsWell(last.Status.Machine.Phase) {
		flaws = append(flaws, fmt.Sprintf("it ended in %s (deleted: %t), not %s: %s", last.Status.Machine.Phase, r.Record.Gone, r.End, last.Status.Message))
	}
	if held := last.Status.Machine.HeldNames(); r.End == GivenBack && !r.Record.Gone && len(held) > 0 {
		flaws = append(flaws, fmt.Sprintf("it still holds %v", held))
	}
	return flaws
}

func (r Run) endsWell(phase string) bool {
	there := !r.Record.Gone
	switch r.End {
	case AtGate:
		return there && phase == "Migrating"
	case Open:
		return there && (phase == "Converged" || phase == "Complete")
	case CleanedUp:
		return r.Record.Gone && passed(r.Record.Statuses, "CleaningUp")
	default:
		return there && phase == "Failed" || r.Record.Gone && !passed(r.Record.Statuses, "Converged")
	}
}

func passed(statuses []*migrationv1.DatastoreMigration, phase string) bool {
	return slices.ContainsFunc(statuses, func(dm *migrationv1.DatastoreMigration) bool { return dm.Status.Machine.Phase == phase })
}
