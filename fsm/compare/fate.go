package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Fate is what a new revision means for an object.
type Fate struct {
	Object string `json:"object"`
	Phase  string `json:"phase"`
	// To is where it goes on; empty when it is stranded.
	To string `json:"to,omitempty"`
	// Leaks are effects that it holds and that the new revision cannot give back: neither by
	// the release on record, where the program has that action, nor by its own.
	Leaks []string `json:"leaks,omitempty"`
	Words string   `json:"words"`
}

// FateOf tells what happens to an object, named as it is shown, when the machine
// that drives it becomes the new revision.
func FateOf(m *fsm.Machine, object string, st *v1alpha1.MachineStatus) Fate {
	f, newer := Fate{Object: object, Phase: st.Phase}, m.Definition()
	phases := byName(newer.Spec.Phases)
	upgrade := adoption(newer)
	to := upgrade.PhaseMap[st.Phase]
	p, same := phases[st.Phase]
	switch {
	case st.Phase == "":
		f.To, f.Words = newer.Spec.Initial, "begins in "+newer.Spec.Initial
	case same:
		f.To, f.Words = st.Phase, goesOn(p, st, newer)
	case to != "":
		f.To, f.Words = to, fmt.Sprintf("goes on in %s, from its first step (spec.upgrade.phaseMap)", to)
	default:
		f.Words = "STRANDED: Stalled (UnknownPhase) until the phase is back or spec.upgrade.phaseMap names its successor"
	}
	for _, h := range st.Held {
		if m.Adopts(v1alpha1.MachineStatus{Held: []v1alpha1.HeldEffect{h}}) != nil {
			f.Leaks = append(f.Leaks, h.Name)
		}
	}
	if len(f.Leaks) > 0 {
		f.Words += fmt.Sprintf("; LEAK: it holds %s, which the new revision cannot give back: `undo: held` stops there",
			strings.Join(f.Leaks, ", "))
	}
	return f
}

func goesOn(p v1alpha1.Phase, st *v1alpha1.MachineStatus, newer *fsm.Definition) string {
	words := "goes on in " + p.Name
	step := adoption(newer).StepMap[st.Step]
	switch {
	case st.Revision == newer.Revision || len(p.Steps) == 0 || p.Terminal != "":
	case step != "" && slices.ContainsFunc(p.Steps, func(s v1alpha1.Step) bool { return step == cmp.Or(s.Name, s.Action) }):
		words += fmt.Sprintf(", from its step %s (spec.upgrade.stepMap)", step)
	default:
		words += ", from its first step again (the revision changed)"
	}
	if st.Deadline != nil && p.Timeout != nil {
		words += ", with the deadline that it has"
	}
	return words
}

func (f Fate) bad() bool { return f.To == "" || len(f.Leaks) > 0 }
