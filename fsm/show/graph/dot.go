package graph

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/phasegate/phasegate/fsm"
)

// dotWidth is where a label of dot is broken: dot itself never does.
const dotWidth = 44

// Dot draws a digraph for Graphviz. A deletion is dashed.
func Dot(m *fsm.Machine, o Options) string {
	g := graphOf(m, o)
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", dotText(m.Name()))
	fmt.Fprintf(&b, "  label=%s\n  labelloc=t\n", dotText(g.title))
	b.WriteString("  node [shape=box, fontname=\"sans-serif\", style=filled, fillcolor=white]\n  edge [fontname=\"sans-serif\", fontsize=10]\n")
	for _, n := range g.nodes {
		text := slices.Concat([]string{n.name}, n.tags, n.notes, n.here)
		fmt.Fprintf(&b, "  %s [label=%s, %s]\n", dotText(n.name), dotText(text...), styles[n.class()].dot)
	}
	for _, n := range g.nodes {
		for _, e := range n.edges {
			style := "solid"
			if e.deletion {
				style = "dashed"
			}
			fmt.Fprintf(&b, "  %s -> %s [label=%s, style=%s]\n", dotText(n.name), dotText(e.to), dotText(e.labels...), style)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func dotText(lines ...string) string {
	var out []string
	for _, line := range lines {
		for _, part := range Wrap(line, "", "", dotWidth) {
			out = append(out, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(part))
		}
	}
	return `"` + strings.Join(out, `\n`) + `"`
}

// Wrap breaks a text at blanks into lines that are no wider than they must be. The first begins with first, all
// others with more.
func Wrap(text, first, more string, width int) []string {
	var lines []string
	line := first
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = more + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
