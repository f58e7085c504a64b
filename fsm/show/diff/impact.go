package diff

import (
	"fmt"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Impact is what a new revision means for an object.
type Impact struct {
	Object string `json:"object"`
	Phase  string `json:"phase"`
	// To is where it goes on; empty when it is stranded.
	To string `json:"to,omitempty"`
	// Leaks are effects that it holds and that the new revision cannot release: neither by
	// the release on record, where the program has that action, nor by its own.
	Leaks []string `json:"leaks,omitempty"`
	Words string   `json:"words"`
}

// ImpactOf tells what happens to an object, named as it is shown, when the machine
// that drives it becomes the new revision.
func ImpactOf(m *fsm.Machine, object string, st *v1alpha1.MachineStatus) Impact {
	f, newer := Impact{Object: object, Phase: st.Phase}, m.Definition()
	adopted := m.Resumed(*st)
	switch p, known := byName(newer.Spec.Phases)[adopted.Phase]; {
	case st.Phase == "":
		f.To, f.Words = newer.Spec.Initial, "begins in "+newer.Spec.Initial
	case known:
		f.To, f.Words = p.Name, goesOn(p, st, &adopted)
	default:
		f.Words = "STRANDED: Stalled (UnknownPhase) until the phase is back or spec.upgrade.phaseMap names its successor"
	}
	for _, h := range st.Held {
		if m.Adopts(v1alpha1.MachineStatus{Held: []v1alpha1.HeldEffect{h}}) != nil {
			f.Leaks = append(f.Leaks, h.Name)
		}
	}
	if len(f.Leaks) > 0 {
		f.Words += fmt.Sprintf("; LEAK: it holds %s, which the new revision cannot release: `undo: held` stops there",
			strings.Join(f.Leaks, ", "))
	}
	return f
}

func goesOn(p v1alpha1.Phase, st, adopted *v1alpha1.MachineStatus) string {
	words := "goes on in " + p.Name
	if p.Name != st.Phase {
		words += " (spec.upgrade.phaseMap)"
	}
	switch {
	case st.Revision == adopted.Revision || st.PhaseRevision == adopted.PhaseRevision || len(p.Steps) == 0 || p.Terminal != "":
	case adopted.Step != "":
		words += fmt.Sprintf(", from its step %s (spec.upgrade.stepMap)", adopted.Step)
	case st.PhaseRevision == "":
		words += ", from its first step again (it is not stored what the steps did)"
	default:
		words += ", from its first step again (what the steps do has changed)"
	}
	if st.Deadline != nil && p.Timeout != nil {
		words += ", with the deadline that it has"
	}
	return words
}
