package program

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

// Edges are those of the compiled phase; who reads them must not change them.
func (p *Phase) Edges() []Edge { return p.ways }

func (p *Phase) listEdges() []Edge {
	var out []Edge
	add := func(to, path, event string, kind EdgeKind, guard, reason string) {
		if to != "" {
			out = append(out, Edge{Event: event, From: p.Name, To: to, Kind: kind,
				Path: p.Path + "." + path, Guard: guard, Reason: reason})
		}
	}
	for i, r := range p.Require {
		add(r.Else, fmt.Sprintf("require[%d].else", i), RequireEvent(r), EdgeRequire, "!("+r.When+")", r.Reason)
	}
	for i, x := range p.Next {
		add(x.To, fmt.Sprintf("next[%d].to", i), NextEvent(x), EdgeNext, x.When, x.Reason)
	}
	if p.Timeout != nil {
		add(p.Timeout.To, "timeout.to", TimeoutEvent(p), EdgeTimeout, p.Timeout.After, p.Timeout.Reason)
	}
	add(p.Backoff.To, "retry.to", ReasonExhausted, EdgeRetry, fmt.Sprintf("%d attempts", p.Backoff.Attempts), "")
	for i := range p.StepList {
		if s := &p.StepList[i]; s.Backoff.To != p.Backoff.To {
			add(s.Backoff.To, fmt.Sprintf("steps[%d].retry.to", i), StepRetryEvent(s), EdgeRetry, fmt.Sprintf("%d attempts", s.Backoff.Attempts), "")
		}
	}
	for i, e := range p.OnError {
		add(e.To, fmt.Sprintf("onError[%d].to", i), ErrorEvent(e), EdgeError, e.Is, e.Reason)
	}
	if p.OnDelete != nil {
		add(p.OnDelete.To, "onDelete.to", ReasonDeletion, EdgeDelete, "", "")
	}
	return out
}

// The events of edges: the reason that the file gives, else the name of the target for an exit, and a reserved one for any other.

// RequireEvent leads on where a requirement is not met.
func RequireEvent(r v1alpha1.Require) string { return cmp.Or(r.Reason, reasonRequire) }

// NextEvent leads on by an exit.
func NextEvent(x v1alpha1.Exit) string { return Word(cmp.Or(x.Reason, x.To)) }

// TimeoutEvent leads on after the timeout of a phase.
func TimeoutEvent(p *Phase) string { return cmp.Or(p.Timeout.Reason, reasonTimeout) }

// StepRetryEvent leads on after the last attempt of a step that has a backoff of its own.
func StepRetryEvent(s *Step) string { return Word(s.Label) + ReasonExhausted }

// ErrorEvent: where the file gives no reason, an error that brings one of its own has that one instead.
func ErrorEvent(e v1alpha1.OnError) string {
	if e.Is == string(ClassAny) {
		return cmp.Or(e.Reason, "AnyError")
	}
	return cmp.Or(e.Reason, e.Is+"Error")
}
