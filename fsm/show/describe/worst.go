package describe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Worst is how long it may take from the entry into a phase until the object
// rests: in a terminal, a steady or an end phase. The step that runs when a
// deadline passes is not interrupted and comes on top.
type Worst struct {
	// Bound is the sum of the timeouts on the longest way; empty where there is no bound.
	Bound string `json:"bound,omitempty"`
	// Path is that way.
	Path []string `json:"path,omitempty"`
	// Unbounded says why there is no bound.
	Unbounded []string `json:"unbounded,omitempty"`
	// Timeouts are those of the phases on the way, where there is no bound.
	Timeouts []string `json:"timeouts,omitempty"`
}

// rests tells whether an object may stay in the phase for good.
func rests(p *program.Phase) bool {
	return p.Terminal != "" || p.End || p.Kind == v1alpha1.PhaseSteady
}

func (t *Describer) worst(from string) Worst {
	if rests(t.prog.Phases[from]) {
		return Worst{Bound: "0s", Path: []string{from}}
	}
	var w Worst
	told := map[string]bool{}
	for _, name := range t.onTheWay(from) {
		p := t.prog.Phases[name]
		if why := endless(p); why != "" {
			w.Unbounded = append(w.Unbounded, why)
		}
		if p.Timeout != nil {
			w.Timeouts = append(w.Timeouts, name+" "+program.TimeoutText(p.Timeout))
		}
		circle := t.circle(name)
		if len(circle) > 0 && !told[circle[0]] {
			w.Unbounded = append(w.Unbounded, circleWords(circle))
			told[circle[0]] = true
		}
	}
	if len(w.Unbounded) > 0 {
		return w
	}
	l := t.longest(from, map[string]leg{})
	return Worst{Bound: short(l.bound), Path: l.path}
}

func endless(p *program.Phase) string {
	switch {
	case p.Timeout == nil:
		return p.Name + " has no timeout"
	case p.Timeout.To == "":
		return fmt.Sprintf("the timeout of %s only sets Stalled (%s) and has no target", p.Name, p.Timeout.Stalled)
	}
	return ""
}

func circleWords(circle []string) string {
	if len(circle) == 1 {
		return circle[0] + " can lead to itself"
	}
	return strings.Join(circle[:len(circle)-1], ", ") + " and " + circle[len(circle)-1] + " can lead to each other"
}

// ahead are the phases that a phase leads to by itself; a deletion is a choice,
// and a phase of rest leads nowhere by itself.
func (t *Describer) ahead(name string) []string {
	if rests(t.prog.Phases[name]) {
		return nil
	}
	var all []string
	for _, e := range t.prog.Phases[name].Edges() {
		if e.Kind != program.EdgeDelete && !slices.Contains(all, e.To) {
			all = append(all, e.To)
		}
	}
	return all
}

// reached are the phases that one leads to, itself only if there is a way back.
func (t *Describer) reached(from string) map[string]program.Edge {
	_, into := t.prog.Walk(func(p *program.Phase, e program.Edge) bool { return !rests(p) && e.Kind != program.EdgeDelete }, t.ahead(from)...)
	return into
}

// onTheWay lists a phase and those that follow it, in document order, without
// the phases of rest.
func (t *Describer) onTheWay(from string) []string {
	seen := t.reached(from)
	return slices.DeleteFunc(t.m.Phases(), func(name string) bool {
		return name != from && !has(seen, name) || rests(t.prog.Phases[name])
	})
}

func has(phases map[string]program.Edge, name string) bool { _, is := phases[name]; return is }

// circle lists the phases that a phase leads to and that lead back to it.
func (t *Describer) circle(name string) []string {
	seen := t.reached(name)
	if !has(seen, name) {
		return nil
	}
	return slices.DeleteFunc(t.m.Phases(), func(other string) bool { return !has(seen, other) || !has(t.reached(other), name) })
}

// leg is the longest way from a phase.
type leg struct {
	bound time.Duration
	path  []string
}

// longest follows timeouts where there is no circle; known spares walking twice
// where ways join.
func (t *Describer) longest(from string, known map[string]leg) leg {
	if l, ok := known[from]; ok {
		return l
	}
	var l leg
	for _, to := range t.ahead(from) {
		if next := t.longest(to, known); next.bound > l.bound || l.path == nil {
			l = next
		}
	}
	if p := t.prog.Phases[from]; p.Timeout != nil && !rests(p) {
		l.bound += p.TimeoutAfter
	}
	l.path = slices.Concat([]string{from}, l.path)
	known[from] = l
	return l
}
