package prove

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm/program"
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

// invariants are the names of all that is proved.
func (p *prover) invariants() []string {
	names := slices.Clone(program.BuiltInInvariants)
	for _, inv := range p.prog.Invariants {
		names = append(names, inv.Name)
	}
	return names
}

// check looks at a state that is new.
func (p *prover) check(at int) {
	s := p.nodes[at].state
	found := func(invariant, message, fix string, effects effectBits) {
		p.violate(violation{invariant: invariant, path: p.place(s), message: message, fix: fix, at: at, effects: effects})
	}
	if lost := s.inPlace &^ (s.stored.heldSet() | s.kept); lost != 0 && !s.gone {
		found(invariantLedger, p.list(lost)+" is in place, but neither held nor kept: nobody would give it back",
			"this is a defect of the engine: report it", lost)
	}
	if left := s.inPlace &^ s.kept; left != 0 && s.gone {
		p.violate(violation{invariant: invariantNoLeak, path: p.place(p.beforeEnd(at)), at: at, effects: left,
			message: "the object is gone, and " + p.list(left) + " is still in place",
			fix:     "give it back on this way with a step {undo: held}, or name it in keeps"})
	}
	if ph := p.phaseOf(s); ph != nil && ph.Terminal != "" && s.stored.held != "" {
		found(invariantReleased, fmt.Sprintf("%s is terminal, and %s is held", ph.Name, p.list(s.stored.heldSet())),
			"give it back in a phase before this one, or name it in keeps", s.stored.heldSet())
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
		where := program.InvariantState{Held: p.ledger(s.stored.held), InPlace: p.names(s.inPlace), Deleting: s.deleting, Gone: s.gone}
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
