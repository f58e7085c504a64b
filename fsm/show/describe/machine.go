package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/show/graph"
)

// Machine is the story of a whole machine.
type Machine struct {
	Machine  string `json:"machine"`
	Revision string `json:"revision"`
	// APIVersion and Kind are those of the objects that it drives.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Initial    string `json:"initial"`
	// Way is that on which all goes well.
	Way      []string  `json:"way"`
	Effects  []Effect  `json:"effects,omitempty"`
	Requests []Command `json:"requests,omitempty"`
	// Status are the expressions of the fields that the objects show, by name.
	Status map[string]string `json:"status,omitempty"`
	Phases []*Phase          `json:"phases"`
}

// Effect is something that is taken and released.
type Effect struct {
	Name    string `json:"name"`
	Acquire string `json:"acquire"`
	// Release is with its parameters where the file does not name it: the inverse of Acquire.
	Release string `json:"release"`
	// ShownAs is what status.phase shows while it is held.
	ShownAs string `json:"shownAs,omitempty"`
	// KeptFrom are the phases from which on it stays in place for good.
	KeptFrom []string `json:"keptFrom,omitempty"`
}

// Command is a one-shot request, where it leads on, and how to make it.
type Command struct {
	Name     string   `json:"name"`
	Phases   []string `json:"phases,omitempty"`
	Commands []string `json:"commands,omitempty"`
}

// Machine tells of the whole machine.
func (t *Describer) Machine() *Machine {
	s := &Machine{
		Machine: t.m.Name(), Revision: t.m.Revision(), APIVersion: t.m.For().APIVersion, Kind: t.m.For().Kind,
		Initial: t.m.Definition().Spec.Initial, Way: t.m.HappyPath(), Effects: t.effectList(), Status: t.m.Definition().Spec.Status,
	}
	for _, q := range t.requests {
		s.Requests = append(s.Requests, Command{Name: q.Name, Phases: q.Phases, Commands: t.commands(q)})
	}
	for _, name := range t.m.Phases() {
		if p, err := t.Phase(name); err == nil { // the name is the machine's own
			s.Phases = append(s.Phases, p)
		}
	}
	return s
}

func (t *Describer) effectList() (all []Effect) {
	for _, e := range t.m.Definition().Spec.Effects {
		told := Effect{Name: e.Name, Acquire: e.Acquire, Release: t.release(e.Name), ShownAs: e.ShowAs}
		for _, p := range t.prog.Order {
			if slices.Contains(p.Keeps, e.Name) {
				told.KeptFrom = append(told.KeptFrom, p.Name)
			}
		}
		all = append(all, told)
	}
	return all
}

func (t *Describer) release(effect string) string {
	e := t.prog.Effects[effect]
	if e.Release != "" {
		return e.Release
	}
	return e.ReleasedBy() + " with " + inline(e.BoundRelease.Written())
}

// Text is the story for a terminal: no line but a command is longer than 100 signs.
func (s *Machine) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine %s (%s) drives %s (%s)\n", s.Machine, s.Revision, s.Kind, s.APIVersion)
	for _, part := range []section{s.way(), s.effects(), s.requests(), s.shown()} {
		part.write(&b, 0)
	}
	for _, p := range s.Phases {
		b.WriteString("\n" + p.title() + "\n")
		writeLine(&b, 1, p.Description)
		for _, part := range []section{p.happens(), p.leaves(), p.deletes(), p.holds(), p.lasts()} {
			part.write(&b, 1)
		}
	}
	return b.String()
}

func (s *Machine) way() section {
	c := section{title: "The way on which all goes well"}
	c.add(0, "%s", strings.Join(s.Way, " → "))
	return c
}

func (s *Machine) effects() section {
	c := section{title: "What it acquires and releases"}
	for _, e := range s.Effects {
		c.add(0, "%s: acquired by %s, released by %s", e.Name, e.Acquire, e.Release)
		if e.ShownAs != "" {
			c.add(1, "while it is held, status.phase is %s", e.ShownAs)
		}
		if len(e.KeptFrom) > 0 {
			c.add(1, "stays in place for good from %s on", strings.Join(e.KeptFrom, ", "))
		}
	}
	return c
}

func (s *Machine) requests() section {
	c := section{title: "What a person can ask for"}
	for _, q := range s.Requests {
		c.add(0, "%s, in %s", q.Name, strings.Join(q.Phases, ", "))
		c.commands(q.Commands)
	}
	return c
}

func (s *Machine) shown() section {
	c := section{title: "What its status shows besides"}
	for _, name := range slices.Sorted(maps.Keys(s.Status)) {
		c.add(0, "%s = %s", name, s.Status[name])
	}
	return c
}

// write writes a section that has something to say; one at a depth stands in a phase, without
// an empty line before it.
func (c section) write(b *strings.Builder, depth int) {
	if len(c.lines) == 0 {
		return
	}
	if depth == 0 {
		b.WriteString("\n")
	}
	writeLine(b, depth, c.title)
	for _, l := range c.lines {
		writeLine(b, depth+l.depth+1, l.text)
	}
}

// width is how many signs a line has at most; a command is not broken, nor is a word.
const width = 100

// writeLine writes a text that is broken at blanks, and what follows is indented more.
func writeLine(b *strings.Builder, depth int, text string) {
	indent := strings.Repeat("  ", depth)
	if strings.HasPrefix(text, "kubectl ") {
		b.WriteString(indent + text + "\n")
		return
	}
	if text != "" {
		b.WriteString(strings.Join(graph.Wrap(text, indent, indent+"    ", width), "\n") + "\n")
	}
}
