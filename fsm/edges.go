package fsm

import (
	"cmp"
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
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
	// Event is the one that looplab/fsm knows it by, and the reason of its transitions. It is unique in its phase.
	Event    string
	From, To string
	Kind     EdgeKind
	// Path is where the target stands in the file. It is unique in its machine.
	Path string
	// Guard is what must hold: an expression, the time of a timeout, the number of
	// attempts, the class of an error; empty when nothing must.
	Guard string
	// Reason is the one that the file gives; empty when it gives none.
	Reason string
}

// edges are those of the compiled phase; who reads them must not change them.
func (p *phase) edges() []Edge { return p.ways }

func (p *phase) listEdges() []Edge {
	var out []Edge
	add := func(to, path, event string, kind EdgeKind, guard, reason string) {
		if to != "" {
			out = append(out, Edge{Event: event, From: p.Name, To: to, Kind: kind,
				Path: p.path + "." + path, Guard: guard, Reason: reason})
		}
	}
	for i, r := range p.Require {
		add(r.Else, fmt.Sprintf("require[%d].else", i), requireEvent(r), EdgeRequire, "!("+r.When+")", r.Reason)
	}
	for i, x := range p.Next {
		add(x.To, fmt.Sprintf("next[%d].to", i), nextEvent(x), EdgeNext, x.When, x.Reason)
	}
	if p.Timeout != nil {
		add(p.Timeout.To, "timeout.to", timeoutEvent(p), EdgeTimeout, p.Timeout.After, p.Timeout.Reason)
	}
	add(p.retry.to, "retry.to", reasonExhausted, EdgeRetry, fmt.Sprintf("%d attempts", p.retry.attempts), "")
	for i := range p.steps {
		if s := &p.steps[i]; s.retry.to != p.retry.to {
			add(s.retry.to, fmt.Sprintf("steps[%d].retry.to", i), stepRetryEvent(s), EdgeRetry, fmt.Sprintf("%d attempts", s.retry.attempts), "")
		}
	}
	for i, e := range p.OnError {
		add(e.To, fmt.Sprintf("onError[%d].to", i), errorEvent(e), EdgeError, e.Is, e.Reason)
	}
	if p.OnDelete != nil {
		add(p.OnDelete.To, "onDelete.to", reasonDeletion, EdgeDelete, "", "")
	}
	return out
}

// The events of edges: the reason that the file gives, else the name of the target for an exit, and a reserved one for any other.

func requireEvent(r v1alpha1.Require) string { return cmp.Or(r.Reason, reasonRequire) }
func nextEvent(x v1alpha1.Exit) string       { return word(cmp.Or(x.Reason, x.To)) }
func timeoutEvent(p *phase) string           { return cmp.Or(p.Timeout.Reason, reasonTimeout) }
func stepRetryEvent(s *step) string          { return word(s.name) + reasonExhausted }

// errorEvent: where the file gives no reason, an error that brings one of its own has that one instead.
func errorEvent(e v1alpha1.OnError) string {
	if e.Is == string(ClassAny) {
		return cmp.Or(e.Reason, "AnyError")
	}
	return cmp.Or(e.Reason, e.Is+"Error")
}
