package describe

import (
	"cmp"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
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

func (t *Describer) held(p *v1alpha1.Phase) Held {
	return Held{Entry: t.effects.entry[p.Name], Here: t.effects.here[p.Name], Keeps: p.Keeps}
}

// flow follows the effects along all edges until nothing is new. What it answers
// is never too little, and may be more than any run will hold.
func (t *Describer) flow() holds {
	order := t.order()
	h := holds{entry: map[string][]string{}, here: map[string][]string{}}
	for changed := true; changed; {
		changed = false
		for _, name := range t.m.Phases() {
			p := t.phases[name]
			h.here[name] = union(order, h.entry[name], t.takes(p))
			for _, e := range t.edges[name] {
				arrive := union(order, h.entry[e.To], without(t.leaves(p, e, h.here[name]), t.phases[e.To].Keeps))
				changed = changed || len(arrive) > len(h.entry[e.To])
				h.entry[e.To] = arrive
			}
		}
	}
	return h
}

// order lists the effects as the phases take them.
func (t *Describer) order() []string {
	var all []string
	for _, name := range t.m.Phases() {
		for _, effect := range t.takes(t.phases[name]) {
			if !slices.Contains(all, effect) {
				all = append(all, effect)
			}
		}
	}
	return all
}

func (t *Describer) takes(p *v1alpha1.Phase) []string {
	var all []string
	for _, s := range p.Steps {
		if taken, _ := t.effect(s); taken != "" {
			all = append(all, taken)
		}
	}
	return all
}

// effect is what a step takes and what it gives back.
func (t *Describer) effect(s v1alpha1.Step) (taken, given string) {
	for _, e := range t.m.Definition().Spec.Effects {
		switch s.Action {
		case "":
		case e.Acquire:
			taken = e.Name
		case e.Release:
			given = e.Name
		}
	}
	return taken, given
}

// leaves is what may still be held when an edge is taken. An exit comes after
// all steps; whatever interrupts the phase may come after any.
func (t *Describer) leaves(p *v1alpha1.Phase, e program.Edge, here []string) []string {
	switch e.Kind {
	case program.EdgeRequire:
		return nil // asked only while nothing is held
	case program.EdgeNext:
		return t.afterSteps(p, here)
	}
	return here
}

// afterSteps is what may be held once the steps of a phase are done; a step with
// a condition may have been left out.
func (t *Describer) afterSteps(p *v1alpha1.Phase, held []string) []string {
	for _, s := range p.Steps {
		taken, given := t.effect(s)
		switch {
		case taken != "" && !slices.Contains(held, taken):
			held = append(slices.Clone(held), taken)
		case s.If != "":
		case s.Undo != "":
			held = nil
		case given != "":
			held = without(held, []string{given})
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

// backwards lists what was taken last first.
func backwards(list []string) string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return strings.Join(list, ", ")
}

// deletion follows a deletion from a phase to the end, on the shortest way.
func (t *Describer) deletion(p *v1alpha1.Phase) Deletion {
	d := Deletion{}
	switch {
	case p.End:
		return Deletion{Words: "The finalizer is removed here, and the object is gone."}
	case p.Deletion:
		d.Words = "It is one already; the phases below follow."
	case p.OnDelete == nil:
		return d
	case p.OnDelete.None:
		return Deletion{Words: "The object is gone at once; nothing is given back."}
	case p.OnDelete.Hold != "":
		d.Words = "Held: " + p.OnDelete.Hold + ". The phase goes on, then:"
	default:
		d.Words = "At once, whatever the phase waits for:"
	}
	held := t.effects.here[p.Name]
	if p.Deletion || p.OnDelete.To == "" {
		held = t.afterSteps(p, held) // not interrupted
	}
	for _, name := range t.wayOut(p.Name) {
		held = without(held, t.phases[name].Keeps)
		d.Path = append(d.Path, Hop{Phase: name, Does: t.does(t.phases[name], held)})
		held = t.afterSteps(t.phases[name], held)
	}
	return d
}

// does is what a phase on the way of a deletion does, one sentence for each step.
func (t *Describer) does(p *v1alpha1.Phase, held []string) []string {
	var all []string
	for i, s := range p.Steps {
		switch {
		case s.Undo != "" && len(held) > 0:
			all = append(all, "gives back "+backwards(held)+", as far as they are held")
		case s.Undo != "":
			all = append(all, "gives back what is held: nothing can be")
		default:
			_, paces := t.m.Pace(p.Name)
			told := t.step(p, &p.Steps[i], paces[i], paces[i])
			all = append(all, cmp.Or(told.Does, told.Name))
		}
	}
	if p.End || p.OnDelete != nil && p.OnDelete.None {
		all = append(all, "the object is gone")
	}
	return all
}

// wayOut is the shortest way of a deletion from a phase to where the object goes.
func (t *Describer) wayOut(from string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		p := t.phases[queue[0]]
		if p.End || p.OnDelete != nil && p.OnDelete.None {
			var way []string
			for name := p.Name; name != from; name = before[name] {
				way = append(way, name)
			}
			slices.Reverse(way)
			return way
		}
		for _, e := range t.edges[p.Name] {
			_, seen := before[e.To]
			if !seen && (e.Kind == program.EdgeDelete || e.Kind == program.EdgeNext && (p.OnDelete == nil || p.OnDelete.To == "")) {
				before[e.To] = p.Name
				queue = append(queue, e.To)
			}
		}
	}
	return nil
}
