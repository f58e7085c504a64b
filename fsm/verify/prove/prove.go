package prove

import (
	"fmt"
	"slices"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

const defaultMaxStates = 200_000

// Prove looks at everything that can happen to one object of a machine: every
// action succeeds, waits, fails for now or for good, having done its work or not;
// every guard that depends on the object or on the cluster is open or closed; the
// program dies before and after each deed; deadlines pass; something wakes the object in
// the middle of a backoff; and a deletion comes at any moment. Each finding is an invariant that does not hold somewhere (PG201),
// with the shortest way there. It drives the engine itself, touches nothing, and
// may be called any number of times.
//
// Losing a commit to somebody else's write is a crash after the deed, and a request
// is a guard: neither is told apart. A crash between the write of the state and that of
// the view is no other than one after the commit: a run reads nothing of the view, and
// what expressions read of self.status is tried both ways. A state that is lost is not
// followed: what spec.recover asks of the cluster decides then, and a proof has none.
func Prove(m *fsm.Machine, o Options) (Report, diag.Diagnostics) {
	if o.MaxStates == 0 {
		o.MaxStates = defaultMaxStates
	}
	p := newProver(m)
	complete := p.explore(o.MaxStates)
	if complete {
		p.checkDeletable()
	}
	if complete && len(p.violations) == 0 { // where a deletion leaks, so does this
		p.checkGone()
	}
	report := Report{States: len(p.nodes), Transitions: p.transitions, Invariants: p.invariants(), EdgesNotTaken: p.edgesNotTaken()}
	diags := p.findings()
	if !complete {
		diags = append(diags, m.Definition().Finding("spec.phases", "PG201",
			fmt.Sprintf("not proved: there are more than %d states", o.MaxStates),
			"use fewer effects at a time, fewer steps in a phase, or prove with a higher bound"))
	}
	return report, diags.Sorted()
}

func (p *prover) edgesNotTaken() (missing []string) {
	for _, e := range p.machine.Edges() {
		if !p.taken[edge{e.From, e.To}] && e.Kind != program.EdgeUpgrade {
			missing = append(missing, e.Event)
		}
	}
	return missing
}

// explore goes breadth first, so that the first way to a state is a shortest one.
// It answers false when there are more states than the bound.
func (p *prover) explore(bound int) bool {
	at := 0
	drain := func() bool {
		for ; at < len(p.nodes) && len(p.nodes) <= bound; at++ {
			p.expand(at)
		}
		return len(p.nodes) <= bound
	}
	p.visit(-1, state{phase: noPhase}, nil, true)
	if !drain() || p.machine.Finalizer() == "" || len(p.effects) > 0 {
		return len(p.nodes) <= bound
	}
	// Only what no other object could come to begins with such a manifest. A machine with
	// effects takes it for an object whose state is lost.
	p.visit(-1, state{phase: noPhase, finalizer: true}, []event{{kind: eventManifest}}, true)
	return drain()
}

// expand visits all that can come next.
func (p *prover) expand(at int) {
	from := p.nodes[at].state
	if from.gone {
		return
	}
	p.reached = p.reached[:0]
	if !from.deleting && !from.running {
		to := from
		to.deleting, to.gone = true, !from.finalizer
		p.visit(at, to, []event{{kind: eventDelete}}, true)
	}
	w := &way{prover: p, at: at, from: from}
	for more := true; more; more = w.another() {
		w.walk()
		if w.to != from {
			p.visit(at, w.to, w.events, w.good)
		}
	}
}

// visit notes a state, and checks it when it is new.
func (p *prover) visit(from int, to state, events []event, good bool) {
	i, known := p.seen[to]
	if !known {
		i = len(p.nodes)
		p.seen[to] = i
		p.nodes = append(p.nodes, node{state: to, parent: from, events: slices.Clone(events)})
		p.check(i)
	}
	if from < 0 {
		return
	}
	if good && !slices.Contains(p.nodes[i].before, from) {
		p.nodes[i].before = append(p.nodes[i].before, from)
	}
	if !slices.Contains(p.reached, i) {
		p.reached = append(p.reached, i)
		p.transitions++
	}
}

// checkDeletable goes back from the states in which the object is gone.
func (p *prover) checkDeletable() {
	var gone []int
	for i, n := range p.nodes {
		if n.gone {
			gone = append(gone, i)
		}
	}
	p.violateDeletable(leadingTo(gone, func(i int) []int { return p.nodes[i].before }))
}

// violateDeletable finds the first state from which no end is reached; one where
// the deletion has begun tells more than the phase before it.
func (p *prover) violateDeletable(leads map[int]bool) {
	stuck := -1
	for i, n := range p.nodes {
		if !n.deleting || leads[i] {
			continue
		}
		begun := p.phaseOf(n.state) != nil && p.phaseOf(n.state).Deletion
		if stuck < 0 || begun {
			stuck = i
		}
		if begun {
			break
		}
	}
	if stuck < 0 {
		return
	}
	p.violate(violation{invariant: invariantDeletable, path: p.place(p.nodes[stuck].state), at: stuck, effects: allEffects,
		message: "a deletion never ends from here, even if every action succeeds",
		fix:     "let every phase of the deletion lead to one with end: true, whatever is held"})
}

// Options bound a proof.
type Options struct {
	// MaxStates is how many states are looked at before the proof is given up; 0
	// means 200,000, which takes some seconds.
	MaxStates int
}

// Report tells what a proof has looked at.
type Report struct {
	// States that an object can be in, and the ways between two of them.
	States      int `json:"states"`
	Transitions int `json:"transitions"`
	// Invariants that were looked at in every state: the built-in ones, then those
	// of the file.
	Invariants []string `json:"invariants"`
	// EdgesNotTaken are the events of edges that no run has gone by: of those nothing is proved.
	EdgesNotTaken []string `json:"-"`
}
