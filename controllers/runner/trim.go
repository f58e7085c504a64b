package runner

import (
	"fmt"
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// trim takes out of a copy of a status what its view leaves out, so that kubectl describe prints at most 60 lines. On a CRD of
// another project most of it has no place anyway, and what is left is shown as that project does.
func (p *pass[T]) trim(view T) {
	if p.shape != nil && !p.shape.machine {
		return // what is shown there is made of what would be left out
	}
	trimMachine(view.MachineStatus())
	if abridge := p.by.Program.Abridge; abridge != nil {
		abridge(view)
	}
}

// untrim restores to each condition the generation that an Abridge has left out. It is for a status as it was read.
func untrim[T Object[T]](obj T) {
	for i := range *obj.Conditions() {
		if c := &(*obj.Conditions())[i]; c.ObservedGeneration == 0 {
			c.ObservedGeneration = max(*obj.ObservedGeneration(), 0)
		}
	}
}

// trimMachine leaves what people need: where the machine stands, why, what is held, and the last transitions. Only
// the engine reads the rest, in the MachineState.
func trimMachine(st *v1alpha1.MachineStatus) {
	st.Name, st.Revision, st.PhaseRevision, st.EnteredAs = "", "", "", ""
	st.Generation, st.TriedGeneration = 0, 0
	st.EnteredAt, st.FirstEnteredAt, st.StepEnteredAt = nil, nil, nil // the last transition has the time
	st.Held = shownHeld(st.Held)
	if st.Loop != nil {
		st.Loop.Items = ""
	}
	if st.Streak != nil {
		st.Streak.CountedAt = nil
	}
	if len(st.Result) > maxShownResult {
		st.Result = ""
	}
	st.ShowHistory(v1alpha1.HistoryShown)
	for i := range st.Requests {
		st.Requests[i].Earlier = ""
	}
}

// A view has less room than a state.
const (
	maxShownResult = 16 << 10
	maxShownKeys   = 8
)

// shownHeld leaves the names; of an effect that is held for many keys, the first of these, and how many more there are.
func shownHeld(held v1alpha1.HeldEffects) (shown v1alpha1.HeldEffects) {
	keys := map[string]int{}
	for _, h := range held {
		effect, key := v1alpha1.CutKey(h.Name)
		if keys[effect]++; key == "" || keys[effect] <= maxShownKeys {
			shown = append(shown, v1alpha1.HeldEffect{Name: h.Name})
		}
	}
	for _, effect := range slices.Sorted(maps.Keys(keys)) {
		if more := keys[effect] - maxShownKeys; more > 0 {
			shown = append(shown, v1alpha1.HeldEffect{Name: v1alpha1.Keyed(effect, fmt.Sprintf("+%d", more))})
		}
	}
	return shown
}

// Abridged makes a status what its view shows on our CRDs: for tests of what people see.
func Abridged[T Object[T]](program *Program[T], obj T) {
	p := &pass[T]{by: &Reconciler[T]{Program: program}}
	p.trim(obj)
}
