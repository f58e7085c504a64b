package graph

import (
	"fmt"
	"slices"
	"strings"

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
		fmt.Fprintf(&b, "  %s [label=%s, %s]\n", dotText(n.name), dotText(text...), dotStyle(n))
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

func dotStyle(n node) string {
	switch n.class() {
	case "here":
		return `fillcolor=yellow, penwidth=3`
	case "deletion":
		return `fillcolor=gray92, style="filled,dashed"`
	case "success", "steady":
		return `fillcolor=honeydew, peripheries=2`
	case "failure":
		return `fillcolor=mistyrose, peripheries=2`
	case "waiting":
		return `fillcolor=lightyellow, shape=hexagon`
	}
	return `fillcolor=aliceblue`
}

// dotText quotes lines.
func dotText(lines ...string) string {
	var out []string
	for _, line := range lines {
		for _, part := range wrap(line, dotWidth) {
			out = append(out, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(part))
		}
	}
	return `"` + strings.Join(out, `\n`) + `"`
}

// wrap breaks a text at spaces, so that no line is wider than it must be.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
