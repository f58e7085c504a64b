package program

import (
	"cmp"
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Edges are those of the compiled phase; who reads them must not change them.
func (p *Phase) Edges() []Edge { return p.ways }

func (p *Phase) listEdges() []Edge {
	var out []Edge
	add := func(to, path, event string, kind EdgeKind, guard, reason string, sets ...Assignment) {
		if to != "" {
			out = append(out, Edge{Event: event, From: p.Name, To: to, Kind: kind,
				Path: p.Path + "." + path, Guard: guard, Reason: reason, Sets: sets})
		}
	}
	for i, r := range p.Require {
		add(r.Else, fmt.Sprintf("require[%d].else", i), RequireEvent(r), EdgeRequire, "!("+r.When+")", r.Reason)
	}
	for i, x := range p.Exits {
		add(x.To, fmt.Sprintf("next[%d].to", i), NextEvent(x.Exit), EdgeNext, x.When, x.Reason, x.Assigns...)
	}
	if p.Timeout != nil {
		add(p.Timeout.To, "timeout.to", TimeoutEvent(p), EdgeTimeout, TimeoutText(p.Timeout), p.Timeout.Reason, p.TimeoutAssigns...)
	}
	add(p.Backoff.To, "retry.to", ReasonExhausted, EdgeRetry, p.Backoff.EndsBy(), "")
	for i := range p.StepList {
		if s := &p.StepList[i]; s.Backoff.To != p.Backoff.To {
			add(s.Backoff.To, fmt.Sprintf("steps[%d].retry.to", i), StepRetryEvent(s), EdgeRetry, s.Backoff.EndsBy(), "")
		}
	}
	for i, e := range p.Catches {
		add(e.To, fmt.Sprintf("onError[%d].to", i), ErrorEvent(e.OnError), EdgeError, e.Is, e.Reason, e.Assigns...)
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

// ErrorEvent leads on after an error. Where the file gives no reason, an error that brings one of its own has that one instead.
func ErrorEvent(e v1alpha1.OnError) string {
	if e.Is == string(ClassAny) {
		return cmp.Or(e.Reason, "AnyError")
	}
	return cmp.Or(e.Reason, e.Is+"Error")
}
