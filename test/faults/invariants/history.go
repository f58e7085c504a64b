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
	phase := last.Status.Machine.Phase
	at := fmt.Sprintf("it ended in %s (deleted: %t): %s", phase, r.Record.Gone, last.Status.Message)
	well := map[End]bool{
		AtGate:    !r.Record.Gone && phase == "Migrating",
		Open:      !r.Record.Gone && slices.Contains([]string{"Converged", "Complete"}, phase),
		CleanedUp: r.Record.Gone && passed(r.Record.Statuses, "CleaningUp"),
		GivenBack: (r.Record.Gone && !passed(r.Record.Statuses, "Converged")) || phase == "Failed",
	}
	if !well[r.End] {
		flaws = append(flaws, at)
	}
	if r.End != GivenBack {
		return flaws
	}
	if held := last.Status.Machine.Held; !r.Record.Gone && len(held) > 0 {
		flaws = append(flaws, fmt.Sprintf("it still holds %v", held))
	}
	return flaws
}

func passed(statuses []*migrationv1.DatastoreMigration, phase string) bool {
	return slices.ContainsFunc(statuses, func(dm *migrationv1.DatastoreMigration) bool { return dm.Status.Machine.Phase == phase })
}
