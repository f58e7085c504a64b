package prove

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// The invariants of every machine.
const (
	invariantLedger    = "ledger"
	invariantNoLeak    = "noLeak"
	invariantDeletable = "deletable"
	invariantReleased  = "released"
	invariantNoReturn  = "noReturn"
	invariantLegal     = "legal"
	invariantGone      = "releasedWhenGone"
	invariantPatient   = "patient"
)

func (p *prover) invariants() []string {
	names := slices.Clone(program.BuiltInInvariants)
	for _, inv := range p.prog.Invariants {
		names = append(names, inv.Name)
	}
	return names
}

func (p *prover) check(at int) {
	s := p.nodes[at].state
	found := func(invariant, message, fix string, effects program.EffectSet) {
		p.violate(violation{invariant: invariant, path: p.place(s), message: message, fix: fix, at: at, effects: effects})
	}
	if lost := s.inPlace &^ (s.stored.heldSet() | s.kept); lost != 0 && !s.gone {
		found(invariantLedger, p.list(lost)+" is in place, but neither held nor kept: nothing would release it",
			"this is a defect of the engine: report it", lost)
	}
	if left := s.inPlace &^ s.kept; left != 0 && s.gone {
		p.violate(violation{invariant: invariantNoLeak, path: p.place(p.beforeEnd(at)), at: at, effects: left,
			message: "the object is gone, and " + p.list(left) + " is still in place",
			fix:     "release it on this path with a step {undo: held}, or name it in keeps"})
	}
	if ph := p.phaseOf(s); ph != nil && ph.Terminal != "" && s.stored.held != "" {
		found(invariantReleased, fmt.Sprintf("%s is terminal, and %s is held", ph.Name, p.list(s.stored.heldSet())),
			"release it in a phase before this one, or name it in keeps", s.stored.heldSet())
	}
	for i := range p.prog.Invariants {
		if inv := &p.prog.Invariants[i]; !p.holds(inv, s) {
			p.violate(violation{invariant: inv.Name, path: inv.Path, at: at, effects: p.matter(inv),
				message: fmt.Sprintf("not true with %s: %s", p.describe(s), inv.Text),
				fix:     "change the order of the steps on this way, or correct the invariant"})
		}
	}
}

// beforeEnd is the last state in a phase that could have done something about it.
func (p *prover) beforeEnd(at int) state {
	for n := p.nodes[at]; ; n = p.nodes[n.parent] {
		if ph := p.phaseOf(n.state); ph == nil || !ph.End {
			return n.state
		}
	}
}

// holds asks for an invariant of the file once for each situation.
func (p *prover) holds(inv *program.Invariant, s state) bool {
	key := heldKey{inv, s.phase, s.stored.held, s.inPlace, s.deleting, s.gone}
	ok, known := p.asked[key]
	if !known {
		where := program.InvariantState{Held: fsm.HeldEffects(p.ledger(s.stored.held)), InPlace: fsm.HeldEffects(p.effects.In(s.inPlace)), Deleting: s.deleting, Gone: s.gone}
		if ph := p.phaseOf(s); ph != nil {
			where.Phase = ph.Name
		}
		ok = inv.Holds(p.prog, where)
		p.asked[key] = ok
	}
	return ok
}

// violate notes the first violation of each invariant: the one with the shortest
// way to it.
func (p *prover) violate(v violation) {
	if _, known := p.violations[v.invariant]; !known {
		v.more = slices.Clone(v.more)
		p.violations[v.invariant] = v
	}
}

// checkReturn finds an undo of what was held at the point of no return.
func (w *way) checkReturn(gives program.EffectSet, s *program.Step) {
	if back := gives & w.to.final; back != 0 {
		w.violate(violation{invariant: invariantNoReturn, path: s.Path, at: w.at, more: w.events, effects: back,
			message: w.list(back) + " was held at the point of no return, and is released by an undo",
			fix:     "name it in keeps of the point of no return, release it there in a step, or do not lead here"})
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
func (w *way) checkPatient(cmd fsm.Decision) {
	stalled, _ := w.run.Stalled()
	if w.early && !w.run.BypassesBackoff() && (cmd.Do == fsm.RunAction || cmd.Do == fsm.Requeue && !cmd.Early && stalled == "") {
		w.violate(violation{invariant: invariantPatient, path: w.place(w.from), at: w.at, more: w.events, effects: allEffects,
			message: "a step that failed is tried again before its backoff is over",
			fix:     "this is a defect of the engine: report it"})
	}
}
