package simulation

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// truth is what the deeds have come to in the cluster, whatever was said about them
// and whatever is on record.
type truth struct {
	m *fsm.Machine
	// taken and given count how often each effect came and went.
	taken, given map[string]int
	// converged: the point of no return is on record, with what it keeps.
	converged bool
	kept      []string
}

func newTruth(m *fsm.Machine) *truth {
	return &truth{m: m, taken: map[string]int{}, given: map[string]int{}}
}

func (w *truth) inPlace(effect string) bool { return w.taken[effect] > w.given[effect] }

// left are the effects that are in place and that nobody keeps.
func (w *truth) left() []string {
	var names []string
	for _, e := range w.m.Definition().Spec.Effects {
		if w.inPlace(e.Name) && !slices.Contains(w.kept, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// act is the deed of an action, done or not; the answer is what is wrong about it.
func (w *truth) act(name string, cmd fsm.Decision, stored *v1alpha1.MachineStatus, done bool) string {
	for _, e := range w.m.Definition().Spec.Effects {
		switch {
		case name == e.Acquire && done && !w.inPlace(e.Name):
			w.taken[e.Name]++
		case name == e.Release:
			return w.release(e, cmd.Effect != "", stored, done)
		}
	}
	return ""
}

func (w *truth) release(e v1alpha1.Effect, undoing bool, stored *v1alpha1.MachineStatus, done bool) string {
	if slices.Contains(w.kept, e.Name) {
		return fmt.Sprintf("%s is called past the point of no return, which keeps %s", e.Release, e.Name)
	}
	if done && w.inPlace(e.Name) {
		w.given[e.Name]++
	}
	if undoing {
		return w.undo(e.Name, stored)
	}
	return ""
}

// undo is in order when nothing is gone that was there when the effect was taken: a
// release must not meet a world that is restored further than it knows.
func (w *truth) undo(effect string, stored *v1alpha1.MachineStatus) string {
	if n := len(stored.Held); n == 0 || stored.Held[n-1].Name != effect {
		return fmt.Sprintf("%s is released, but the stored ledger is %v", effect, stored.HeldNames())
	}
	for _, before := range stored.HeldNames()[:len(stored.Held)-1] {
		if !w.inPlace(before) {
			return fmt.Sprintf("%s is released after %s is gone, which was taken before it", effect, before)
		}
	}
	return ""
}

// enter follows the stored phase.
func (w *truth) enter(phase string) {
	for _, p := range w.m.Definition().Spec.Phases {
		if p.Name == phase && p.PointOfNoReturn {
			w.converged, w.kept = true, p.Keeps
		}
	}
}

// ledger says what is in place and neither on record nor kept.
func (w *truth) ledger(held []string) string {
	for _, name := range w.left() {
		if !slices.Contains(held, name) {
			return fmt.Sprintf("%s is in place, but not in the stored ledger %v", name, held)
		}
	}
	return ""
}
