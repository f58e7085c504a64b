package prove

import (
	"slices"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/program"
)

// checkReturn finds an undo of what was held at the point of no return.
func (w *way) checkReturn(gives effectBits, s *program.Step) {
	if back := gives & w.to.final; back != 0 {
		w.violate(violation{invariant: invariantNoReturn, path: s.Path, at: w.at, more: w.events, effects: back,
			message: w.list(back) + " was held at the point of no return, and is given back by an undo",
			fix:     "name it in keeps of the point of no return, give it back there in a step, or do not lead here"})
	}
}

// checkLegal finds an engine that stands still because it knows no legal way on.
func (w *way) checkLegal() {
	if reason, message := w.run.Stalled(); slices.Contains([]string{"IllegalTransition", "UnknownPhase", "EffectsHeld"}, reason) {
		w.stuck(reason, message)
	}
}

func (w *way) stuck(reason, message string) {
	w.violate(violation{invariant: invariantLegal, path: w.place(w.from), at: w.at, more: w.events, effects: allEffects,
		message: "the machine gets stuck (" + reason + "): " + message,
		fix:     "lead the deletion to a phase with a step {undo: held}"})
}

// checkPatient finds an engine that tries a step again before its time, or moves on by what it did not look at.
func (w *way) checkPatient(cmd fsm.Command) {
	stalled, _ := w.run.Stalled()
	if w.early && !w.run.Eager() && (cmd.Do == fsm.RunAction || cmd.Do == fsm.Requeue && !cmd.Early && stalled == "") {
		w.violate(violation{invariant: invariantPatient, path: w.place(w.from), at: w.at, more: w.events, effects: allEffects,
			message: "a step that failed is tried again before its backoff is over",
			fix:     "this is a defect of the engine: report it"})
	}
}
