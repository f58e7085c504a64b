package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Mermaid draws a flowchart for pages that render Mermaid. A deletion is dashed.
func Mermaid(m *fsm.Machine, o Options) string {
	g := graphOf(m, o)
	var b strings.Builder
	fmt.Fprintf(&b, "%%%% %s\nflowchart TD\n", g.title)
	used := map[string]bool{}
	for _, n := range g.nodes {
		used[n.class()] = true
		left, right := mermaidShape(n)
		text := slices.Concat([]string{"<b>" + mermaidText(n.name) + "</b>"}, mermaidTexts(n.tags, n.notes, n.here))
		fmt.Fprintf(&b, "  %s%s\"%s\"%s:::%s\n", mermaidID(n.name), left, strings.Join(text, "<br/>"), right, n.class())
	}
	for _, n := range g.nodes {
		for _, e := range n.edges {
			arrow := "-->"
			if e.deletion {
				arrow = "-.->"
			}
			fmt.Fprintf(&b, "  %s %s|\"%s\"| %s\n", mermaidID(n.name), arrow, strings.Join(mermaidTexts(e.labels), "<br/>"), mermaidID(e.to))
		}
	}
	for _, class := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&b, "  classDef %s fill:%s,%s\n", class, styles[class].fill, styles[class].mermaid)
	}
	return b.String()
}

func mermaidShape(n node) (left, right string) {
	switch {
	case n.phase.End:
		return "((", "))"
	case n.phase.Terminal != "":
		return "[[", "]]"
	case n.phase.Kind == v1alpha1.PhaseWaiting:
		return "{{", "}}"
	case slices.Contains(n.tags, "initial"):
		return "([", "])"
	}
	return "[", "]"
}

// mermaidID is a name that is no keyword of Mermaid, such as end, and has no
// dashes, which could be read as an arrow. Two phases never share one.
func mermaidID(name string) string {
	return "phase_" + strings.NewReplacer("_", "__", "-", "_d").Replace(name)
}

func mermaidTexts(lists ...[]string) []string {
	var all []string
	for _, text := range slices.Concat(lists...) {
		all = append(all, mermaidText(text))
	}
	return all
}

// mermaidText is text that means itself between Mermaid's quotes.
func mermaidText(text string) string {
	return strings.NewReplacer(
		"#", "#35;", `"`, "#quot;", "&", "#amp;", "<", "#lt;", ">", "#gt;", "`", "#96;", "%", "#37;", `\`, "#92;", "\n", " ", "\r", "",
	).Replace(text)
}
