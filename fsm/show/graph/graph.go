// Package graph turns a machine into pictures: Mermaid, dot and plain text, with a
// mark where objects are.
//
// It knows machines and stored statuses, but neither files nor clusters: what is
// drawn comes in as values, and what is answered is text.
package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/printable"
)

// Options leave things out of a picture, and mark others.
type Options struct {
	// NoDeletion leaves out the edges that a deletion takes; the phases stay.
	NoDeletion bool
	// NoErrors leaves out the edges of errors and of retries that end.
	NoErrors bool
	Marks    Marks
}

// Marks are where objects are. A phase that the machine does not have is drawn
// too, as one that nothing leads out of.
type Marks struct {
	// Here are lines to show at a phase.
	Here map[string][]string
	// Closed is what was seen of a closed exit, by Edge.Path.
	Closed map[string]string
}

// MarkObject marks the phase of one object, what it holds, the step that it waits
// in and the exits that it found closed.
func MarkObject(m *fsm.Machine, name string, st *v1alpha1.MachineStatus) Marks {
	here := name + " is here"
	if st.EnteredAt != nil {
		here += " since " + st.EnteredAt.UTC().Format("2006-01-02 15:04:05Z")
	}
	marks := Marks{Here: map[string][]string{}, Closed: map[string]string{}}
	lines := []string{here}
	if len(st.Held) > 0 {
		lines = append(lines, "holds "+strings.Join(st.HeldNames(), ", "))
	}
	for _, b := range st.Blocked {
		if b.Step != "" {
			lines = append(lines, fmt.Sprintf("step %s waits: %s: %s", b.Step, b.Guard, b.Value))
		}
		for _, e := range m.Edges() {
			if e.From == st.Phase && e.Kind == program.EdgeNext && e.To == b.To && e.Guard == b.Guard {
				marks.Closed[e.Path] = b.Value
			}
		}
	}
	if st.Phase != "" {
		marks.Here[st.Phase] = lines
	}
	return marks
}

// MarkCounts marks how many objects are in each phase.
func MarkCounts(counts map[string]int) Marks {
	marks := Marks{Here: map[string][]string{}}
	for phase, n := range counts {
		noun := "objects"
		if n == 1 {
			noun = "object"
		}
		marks.Here[phase] = []string{fmt.Sprintf("%d %s here", n, noun)}
	}
	return marks
}

type graph struct {
	title string
	nodes []node
}

type node struct {
	name  string
	phase v1alpha1.Phase
	// tags and notes are what the file says, here is where objects are.
	tags, notes, here []string
	edges             []edge
}

// edge is all ways from a node to another that are drawn as one line.
type edge struct {
	to       string
	deletion bool
	labels   []string
}

func graphOf(m *fsm.Machine, o Options) graph {
	kind := m.For()
	g := graph{title: fmt.Sprintf("%s drives %s (%s)", m.Name(), kind.Kind, kind.APIVersion)}
	for _, p := range m.Definition().Spec.Phases {
		g.nodes = append(g.nodes, node{name: p.Name, phase: p, tags: m.Traits(&p), notes: program.StayWords(&p), here: o.Marks.Here[p.Name]})
	}
	for _, e := range m.Edges() {
		switch e.Kind {
		case program.EdgeDelete:
			if o.NoDeletion {
				continue
			}
		case program.EdgeError, program.EdgeRetry:
			if o.NoErrors {
				continue
			}
		}
		words := e.Words()
		if got, closed := o.Marks.Closed[e.Path]; closed {
			words += " [closed: " + got + "]"
		}
		g.node(e.From).lead(e.To, words, e.Kind == program.EdgeDelete)
	}
	for _, phase := range slices.Sorted(maps.Keys(o.Marks.Here)) {
		g.node(phase).here = o.Marks.Here[phase]
	}
	return g.printable()
}

// printable has texts of one line each: some are from a file, others from objects.
func (g graph) printable() graph {
	g.title = shown(g.title)
	for i := range g.nodes {
		n := &g.nodes[i]
		n.name, n.tags, n.notes, n.here = shown(n.name), allShown(n.tags), allShown(n.notes), allShown(n.here)
		for j := range n.edges {
			e := &n.edges[j]
			e.to, e.labels = shown(e.to), allShown(e.labels)
		}
	}
	return g
}

// shown is a text in one line, as each format breaks lines itself.
func shown(text string) string { return printable.Line(strings.Join(strings.Fields(text), " ")) }

func allShown(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, shown(text))
	}
	return all
}

// node finds a node; that of a phase which only older revisions have is made.
func (g *graph) node(name string) *node {
	i := slices.IndexFunc(g.nodes, func(n node) bool { return n.name == name })
	if i < 0 {
		i = len(g.nodes)
		g.nodes = append(g.nodes, node{name: name, tags: []string{"not in this revision"}})
	}
	return &g.nodes[i]
}

func (n *node) lead(to, words string, deletion bool) {
	for i, e := range n.edges {
		if e.to == to && e.deletion == deletion {
			n.edges[i].labels = append(e.labels, words)
			return
		}
	}
	n.edges = append(n.edges, edge{to: to, deletion: deletion, labels: []string{words}})
}

func (n *node) class() string {
	switch {
	case len(n.here) > 0:
		return "here"
	case n.phase.Deletion:
		return "deletion"
	case n.phase.Terminal != "":
		return string(n.phase.Terminal)
	case n.phase.Kind != "":
		return string(n.phase.Kind)
	}
	return string(v1alpha1.PhaseProgressing)
}

// styles are the looks of each class: the fill of SVG and Mermaid, what else Mermaid is given, and dot's attributes.
var styles = map[string]struct{ fill, mermaid, dot string }{
	"progressing": {"#e8f0fe", "stroke:#3367d6,color:#111", `fillcolor=aliceblue`},
	"waiting":     {"#fef7e0", "stroke:#b06000,color:#111", `fillcolor=lightyellow, shape=hexagon`},
	"steady":      {"#e6f4ea", "stroke:#137333,color:#111", `fillcolor=honeydew, peripheries=2`},
	"success":     {"#e6f4ea", "stroke:#137333,color:#111", `fillcolor=honeydew, peripheries=2`},
	"failure":     {"#fce8e6", "stroke:#c5221f,color:#111", `fillcolor=mistyrose, peripheries=2`},
	"deletion":    {"#f1f3f4", "stroke:#5f6368,color:#111,stroke-dasharray:4 3", `fillcolor=gray92, style="filled,dashed"`},
	"here":        {"#fff59d", "stroke:#111,color:#111,stroke-width:4px", `fillcolor=yellow, penwidth=3`},
}
