package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm"
)

// Columns of the plain text: what a terminal and a mail can show.
const (
	asciiWidth = 100
	// asciiNames is the widest column of names; a longer name has a line of its own.
	asciiNames = 36
)

// ASCII lists the phases in the order of the file, and under each where it leads.
// Lines are at most 100 columns wide, unless a single word is wider. A deletion
// is a dotted arrow.
func ASCII(m *fsm.Machine, o Options) string {
	g := graphOf(m, o)
	names := 0
	for _, n := range g.nodes {
		for _, e := range n.edges {
			names = min(max(names, len(e.to)), asciiNames)
		}
	}
	var b strings.Builder
	b.WriteString(g.title + "\n")
	for _, n := range g.nodes {
		b.WriteString("\n" + asciiHead(n))
		for _, line := range slices.Concat(n.here, n.notes) {
			asciiLines(&b, "  |  ", "  |  ", line)
		}
		for i, e := range n.edges {
			asciiEdge(&b, e, names, i == len(n.edges)-1)
		}
	}
	return b.String()
}

func asciiHead(n node) string {
	mark := "  "
	if len(n.here) > 0 {
		mark = "* "
	}
	head := mark + n.name
	if len(n.tags) > 0 {
		head += "  [" + strings.Join(n.tags, ", ") + "]"
	}
	return head + "\n"
}

func asciiEdge(b *strings.Builder, e edge, names int, last bool) {
	arrow, rail := "  +--> ", "  |    "
	if e.deletion {
		arrow = "  :..> "
	}
	if last {
		rail = "       "
	}
	first := fmt.Sprintf("%s%-*s  ", arrow, names, e.to)
	more := rail + strings.Repeat(" ", names+2)
	if len(e.to) > names {
		b.WriteString(arrow + e.to + "\n")
		first = more
	}
	for _, label := range e.labels {
		asciiLines(b, first, more, label)
		first = more
	}
}

// asciiLines writes a text with one prefix on its first line and another on the rest.
func asciiLines(b *strings.Builder, first, more, text string) {
	b.WriteString(strings.Join(Wrap(text, first, more, asciiWidth), "\n") + "\n")
}
