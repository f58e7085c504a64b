package invariants

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// order is I6.
func (r Run) order() []string {
	legal := map[string]bool{}
	for _, edge := range r.Machine.Edges() {
		legal[edge.From+" → "+edge.To] = true
	}
	var flaws []string
	phases := map[types.UID]string{}
	for _, state := range r.Record.States {
		of, now := state.Spec.Object.UID, state.Status.Phase
		if way := phases[of] + " → " + now; phases[of] != "" && phases[of] != now && !legal[way] {
			flaws = append(flaws, "the machine has no way "+way)
		}
		phases[of] = now
	}
	done := int32(0)
	for _, dm := range r.Record.Statuses {
		now := dm.Status.Machine.Phase
		if giving := []string{"RollingBack", "Aborting", "Failed", "Pending"}; slices.Contains(giving, now) {
			done = 0
		}
		if p := dm.Status.Progress; p != nil {
			if sum := p.Finished(); sum < done {
				flaws = append(flaws, fmt.Sprintf("progress went from %d to %d objects in %s", done, sum, now))
			} else {
				done = sum
			}
		}
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
	if len(r.Record.States) == 0 {
		return append(flaws, "nothing was stored of the migration")
	}
	shown := r.Record.Statuses[len(r.Record.Statuses)-1]
	last := r.Record.States[len(r.Record.States)-1]
	if !r.endsWell(last.Status.Phase) {
		flaws = append(flaws, fmt.Sprintf("it ended in %s (deleted: %t), not %s: %s", last.Status.Phase, r.Record.Gone, r.End, shown.Status.Message))
	}
	if held := last.Status.HeldNames(); r.End == GivenBack && !r.Record.Gone && len(held) > 0 {
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
		return r.Record.Gone && passed(r.Record.States, "CleaningUp")
	default:
		return there && phase == "Failed" || r.Record.Gone && !passed(r.Record.States, "Converged")
	}
}

func passed(states []*v1alpha1.MachineState, phase string) bool {
	return slices.ContainsFunc(states, func(state *v1alpha1.MachineState) bool { return state.Status.Phase == phase })
}
