package describe

import (
	"cmp"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Held is what may be held in a phase, oldest first.
type Held struct {
	// Entry is what may be held on entry.
	Entry []string `json:"entry,omitempty"`
	// Here is what may be held at some moment in the phase.
	Here []string `json:"here,omitempty"`
	// Keeps stays in place for good from here on.
	Keeps []string `json:"keeps,omitempty"`
}

// holds is what may be held on entry into each phase, and at any moment in it.
// Each list is in the order in which the file takes the effects.
type holds struct{ entry, here map[string][]string }

// flow follows the effects along all edges until nothing is new. What it answers
// is never too little, and may be more than any run will hold.
func (t *Describer) flow() holds {
	var order []string // of the effects, as the phases take them
	for _, p := range t.prog.Order {
		order = append(order, without(takes(p), order)...)
	}
	h := holds{entry: map[string][]string{}, here: map[string][]string{}}
	for changed := true; changed; {
		changed = false
		for _, p := range t.prog.Order {
			h.here[p.Name] = union(order, h.entry[p.Name], takes(p))
			for _, e := range p.Edges() {
				arrive := union(order, h.entry[e.To], without(leaves(p, e, h.here[p.Name]), t.prog.Phases[e.To].Keeps))
				changed = changed || len(arrive) > len(h.entry[e.To])
				h.entry[e.To] = arrive
			}
		}
	}
	return h
}

func takes(p *program.Phase) []string {
	var all []string
	for _, s := range p.StepList {
		if s.Acquires != "" && !slices.Contains(all, s.Acquires) {
			all = append(all, s.Acquires)
		}
	}
	return all
}

// leaves is what may still be held when an edge is taken. An exit comes after
// all steps; whatever interrupts the phase may come after any.
func leaves(p *program.Phase, e program.Edge, here []string) []string {
	switch e.Kind {
	case program.EdgeRequire:
		return nil // asked only while nothing is held
	case program.EdgeNext:
		return afterSteps(p, here)
	}
	return here
}

// afterSteps is what may be held once the steps of a phase are done; a step with
// a condition may have been left out.
func afterSteps(p *program.Phase, held []string) []string {
	for _, s := range p.StepList {
		switch {
		case s.Acquires != "" && !slices.Contains(held, s.Acquires):
			held = append(slices.Clone(held), s.Acquires)
		case s.If != "":
		case s.Undo == program.UndoHeld:
			held = nil
		case s.Undo != "" && s.Keys == "":
			held = without(held, []string{s.Undo})
		case s.Undo != "", s.Loop != nil:
		case s.Releases != "":
			held = without(held, []string{s.Releases})
		}
	}
	return held
}

func without(list, gone []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return slices.Contains(gone, x) })
}

func union(order []string, lists ...[]string) []string {
	var all []string
	for _, name := range order {
		if slices.Contains(slices.Concat(lists...), name) {
			all = append(all, name)
		}
	}
	return all
}

func backwards(list []string) string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return strings.Join(list, ", ")
}

// deletion follows a deletion from a phase to the end, on the shortest way.
func (t *Describer) deletion(p *program.Phase) Deletion {
	d := Deletion{}
	switch {
	case p.End:
		return Deletion{Words: "The finalizer is removed here, and the object is gone."}
	case p.Deletion:
		d.Words = "It is one already; the phases below follow."
	case p.OnDelete == nil:
		return d
	case p.OnDelete.Immediate:
		return Deletion{Words: "The object is gone at once; nothing is released."}
	case p.OnDelete.Hold != "":
		d.Words = "Held: " + p.OnDelete.Hold + ". The phase goes on, then:"
	default:
		d.Words = "At once, whatever the phase waits for:"
	}
	held := t.effects.here[p.Name]
	if p.Deletion || p.OnDelete.To == "" {
		held = afterSteps(p, held) // not interrupted
	}
	for _, e := range t.wayOut(p.Name) {
		next := t.prog.Phases[e.To]
		held = without(held, next.Keeps)
		d.Path = append(d.Path, Hop{Phase: next.Name, Does: t.does(next, held)})
		held = afterSteps(next, held)
	}
	return d
}

// does is what a phase on the way of a deletion does, one sentence for each step.
func (t *Describer) does(p *program.Phase, held []string) []string {
	var all []string
	for i, s := range p.StepList {
		switch {
		case s.Undo != "" && s.Undo != program.UndoHeld:
			all = append(all, "releases "+s.Undo)
		case s.Undo != "" && len(held) > 0:
			all = append(all, "releases "+backwards(held)+", as far as they are held")
		case s.Undo != "":
			all = append(all, "releases what is held: nothing can be")
		default:
			_, paces := t.m.Pace(p.Name)
			told := t.step(p, &p.StepList[i], paces[i], paces[i])
			all = append(all, cmp.Or(told.Does, told.Name))
		}
	}
	if letsGo(p) {
		all = append(all, "the object is gone")
	}
	return all
}

func letsGo(p *program.Phase) bool { return p.End || p.OnDelete != nil && p.OnDelete.Immediate }

// wayOut is the shortest way of a deletion from a phase to where the object goes.
func (t *Describer) wayOut(from string) []program.Edge {
	order, into := t.prog.Walk(func(p *program.Phase, e program.Edge) bool {
		return e.Kind == program.EdgeDelete || e.Kind == program.EdgeNext && (p.OnDelete == nil || p.OnDelete.To == "")
	}, from)
	end := slices.IndexFunc(order, letsGo)
	if end < 0 {
		return nil
	}
	return program.Way(into, from, order[end].Name)
}
