package fsm

import (
	"fmt"
	"maps"
	"slices"
)

// EdgeKind is what opens an edge.
type EdgeKind string

// The kinds of edges.
const (
	EdgeRequire EdgeKind = "require"
	EdgeNext    EdgeKind = "next"
	EdgeTimeout EdgeKind = "timeout"
	EdgeRetry   EdgeKind = "retry"
	EdgeError   EdgeKind = "onError"
	EdgeDelete  EdgeKind = "onDelete"
	EdgeUpgrade EdgeKind = "upgrade"
)

// Edge is one way from a phase to another, whatever opens it.
type Edge struct {
	// Event is unique in its machine.
	Event    string
	From, To string
	Kind     EdgeKind
	// Path is where the target stands in the file.
	Path string
	// Guard is what must hold: an expression, the time of a timeout, the number of
	// attempts, the class of an error; empty when nothing must.
	Guard string
	// Reason is the one that the file gives; empty when it gives none.
	Reason string
}

// Edges lists every way between two phases: those of each phase in document
// order, then those of upgrade.phaseMap. It is the one source of the transition
// table, of the reachability checks and of drawings.
func (m *Machine) Edges() []Edge {
	var all []Edge
	for _, p := range m.prog.order {
		all = append(all, p.edges()...)
	}
	if u := m.def.Spec.Upgrade; u != nil {
		for _, old := range slices.Sorted(maps.Keys(u.PhaseMap)) {
			all = append(all, Edge{Event: old + "." + upgradeEvent, From: old, To: u.PhaseMap[old],
				Kind: EdgeUpgrade, Path: "spec.upgrade.phaseMap." + old})
		}
	}
	return all
}

// edges are those of the compiled phase; who reads them must not change them.
func (p *phase) edges() []Edge { return p.ways }

func (p *phase) listEdges() []Edge {
	var out []Edge
	add := func(to, path, name string, kind EdgeKind, guard, reason string) {
		if to != "" {
			out = append(out, Edge{Event: p.Name + "." + name, From: p.Name, To: to, Kind: kind,
				Path: p.path + "." + path, Guard: guard, Reason: reason})
		}
	}
	for i, r := range p.Require {
		add(r.Else, fmt.Sprintf("require[%d].else", i), requireEvent(i), EdgeRequire, "!("+r.When+")", r.Reason)
	}
	for i, x := range p.Next {
		add(x.To, fmt.Sprintf("next[%d].to", i), nextEvent(i), EdgeNext, x.When, x.Reason)
	}
	if p.Timeout != nil {
		add(p.Timeout.To, "timeout.to", timeoutEvent, EdgeTimeout, p.Timeout.After, p.Timeout.Reason)
	}
	add(p.retry.to, "retry.to", retryEvent, EdgeRetry, fmt.Sprintf("%d attempts", p.retry.attempts), "")
	for i, s := range p.steps {
		if s.retry.to != p.retry.to {
			add(s.retry.to, fmt.Sprintf("steps[%d].retry.to", i), stepRetryEvent(i), EdgeRetry, fmt.Sprintf("%d attempts", s.retry.attempts), "")
		}
	}
	for i, e := range p.OnError {
		add(e.To, fmt.Sprintf("onError[%d].to", i), errorEvent(i), EdgeError, e.Is, e.Reason)
	}
	if p.OnDelete != nil {
		add(p.OnDelete.To, "onDelete.to", deleteEvent, EdgeDelete, "", "")
	}
	return out
}

// Names of the events of one phase; the table's keys are phase + "." + name.
const (
	timeoutEvent = "timeout"
	retryEvent   = "retry"
	deleteEvent  = "onDelete"
	upgradeEvent = "upgrade"
)

func requireEvent(i int) string   { return fmt.Sprintf("require[%d]", i) }
func nextEvent(i int) string      { return fmt.Sprintf("next[%d]", i) }
func stepRetryEvent(i int) string { return fmt.Sprintf("steps[%d].retry", i) }
func errorEvent(i int) string     { return fmt.Sprintf("onError[%d]", i) }
