package graph

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Sizes of the picture, in its own units: pixels where it is not scaled.
const (
	svgBoxWidth   = 184
	svgBoxHeight  = 60
	svgGapX       = 52
	svgGapY       = 58
	svgMargin     = 40
	svgNameWidth  = 20 // characters of a name in a line of a box
	svgLineHeight = 15
	svgApart      = 16 // how far the two directions of a pair of edges keep from each other
)

// SVG draws the machine as a picture of its own: the way to success from left to
// right, where it waits above, where it fails below, deletions at the bottom. It
// has no styles, scripts or links: attributes colour it, and a page that shows it
// may lay its own colours over the classes, which are those of the other formats.
func SVG(m *fsm.Machine, o Options) string {
	g := graphOf(m, o)
	at := g.places(m.HappyPath())
	width, height := 0, 0
	for _, p := range at {
		width = max(width, p.x()+svgBoxWidth+svgMargin)
		height = max(height, p.y()+svgBoxHeight+svgMargin)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s" font-family="sans-serif">`+"\n",
		width, height, width, height, html.EscapeString(g.spoken()))
	for _, n := range g.nodes {
		for _, e := range n.edges {
			svgEdge(&b, n, e, at)
		}
	}
	for _, n := range g.nodes {
		svgNode(&b, n, at[n.name])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// spoken is what a reader hears who does not see the picture.
func (g *graph) spoken() string {
	text := g.title
	for _, n := range g.nodes {
		for _, line := range n.here {
			text += "; in " + n.name + ": " + line
		}
	}
	return text
}

type place struct{ column, row int }

func (p place) x() int { return svgMargin + p.column*(svgBoxWidth+svgGapX) }
func (p place) y() int { return svgMargin + p.row*(svgBoxHeight+svgGapY) }

// The rows, from the top.
const (
	rowWaiting = iota
	rowMain
	rowAside
	rowDeletion
)

// places gives each node a cell of its own: those of the main path the columns of
// a row, the others the first free one from the column of whoever leads to them.
func (g *graph) places(path []string) map[string]place {
	at, taken := map[string]place{}, map[place]bool{}
	put := func(name string, p place) {
		for taken[p] {
			p.column++
		}
		at[name], taken[p] = p, true
	}
	for i, name := range path {
		put(name, place{column: i, row: rowMain})
	}
	for found := true; found; {
		found = false
		for _, n := range g.nodes {
			for _, e := range n.edges {
				from, placed := at[n.name]
				if _, known := at[e.to]; known || !placed {
					continue
				}
				put(e.to, place{column: from.column, row: g.node(e.to).row()})
				found = true
			}
		}
	}
	for _, n := range g.nodes { // nothing leads here: a phase of an older revision
		if _, known := at[n.name]; !known {
			put(n.name, place{row: n.row()})
		}
	}
	return at
}

// row is where a node stands that is not on the main path.
func (n *node) row() int {
	switch {
	case n.phase.Deletion:
		return rowDeletion
	case n.phase.Kind == v1alpha1.PhaseWaiting:
		return rowWaiting
	}
	return rowAside
}

func svgNode(b *strings.Builder, n node, p place) {
	stroke := 1
	if len(n.here) > 0 {
		stroke = 4
	}
	fmt.Fprintf(b, `<g class="phase %s" data-phase="%s"><title>%s</title>`, n.class(), html.EscapeString(n.name),
		html.EscapeString(strings.Join(slices.Concat([]string{n.name}, n.tags, n.notes, n.here), "\n")))
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="8" fill="%s" stroke="#5f6368" stroke-width="%d"/>`,
		p.x(), p.y(), svgBoxWidth, svgBoxHeight, styles[n.class()].fill, stroke)
	lines := svgName(n.name)
	if len(n.here) > 0 { // never by colour alone
		lines[0] = "▶ " + lines[0]
	}
	y := p.y() + svgBoxHeight/2 + 5 - (len(lines)-1)*svgLineHeight/2
	if len(n.tags) > 0 {
		y -= svgLineHeight / 2
	}
	for _, line := range lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" font-size="13" font-weight="bold" fill="#111">%s</text>`,
			p.x()+svgBoxWidth/2, y, html.EscapeString(line))
		y += svgLineHeight
	}
	if len(n.tags) > 0 {
		fmt.Fprintf(b, `<text class="tags" x="%d" y="%d" text-anchor="middle" font-size="10" fill="#333">%s</text>`,
			p.x()+svgBoxWidth/2, y, html.EscapeString(strings.Join(n.tags, ", ")))
	}
	b.WriteString("</g>\n")
}

// svgName breaks a name before capitals, and where there is none, anywhere.
func svgName(name string) []string {
	var lines []string
	rest := []rune(name)
	for len(rest) > svgNameWidth {
		end := svgNameWidth
		for i := svgNameWidth; i > svgNameWidth/3; i-- {
			if rest[i] >= 'A' && rest[i] <= 'Z' {
				end = i
				break
			}
		}
		lines, rest = append(lines, string(rest[:end])), rest[end:]
	}
	return append(lines, string(rest))
}

// svgEdge draws a line with its head, and what it says as a tooltip. Lines leave
// a row vertically and stay in it horizontally, or in an arc over other boxes.
func svgEdge(b *strings.Builder, n node, e edge, at map[string]place) {
	from, to := at[n.name], at[e.to]
	line, head := svgAcross(from, to)
	if from.row == to.row {
		line, head = svgAlong(from, to)
	}
	class, dash := "edge", ""
	if e.deletion {
		class, dash = "edge deletion", ` stroke-dasharray="5 4"`
	}
	if len(n.here) > 0 {
		class += " from-here"
	}
	fmt.Fprintf(b, `<g class="%s"><title>%s</title><path d="%s" fill="none" stroke="#80868b" stroke-width="1.5"%s/><path d="%s" fill="#80868b"/></g>`+"\n",
		class, html.EscapeString(n.name+" → "+e.to+"\n"+strings.Join(e.labels, "\n")), line, dash, head)
}

// svgAlong leads within a row: straight to the neighbour on the right, else over
// what is between.
func svgAlong(from, to place) (line, head string) {
	y := from.y() + svgBoxHeight/2
	if to.column == from.column+1 {
		x1, x2 := from.x()+svgBoxWidth, to.x()
		return fmt.Sprintf("M%d %dH%d", x1, y, x2-6), fmt.Sprintf("M%d %dl-8 -4v8z", x2, y)
	}
	x1, x2, top := from.x()+svgBoxWidth/2, to.x()+svgBoxWidth/2, from.y()
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, top, x1, top-svgGapY*3/4, x2, top-svgGapY*3/4, x2, top-6),
		fmt.Sprintf("M%d %dl-4 -8h8z", x2, top)
}

// svgAcross leads to another row; down and up keep apart.
func svgAcross(from, to place) (line, head string) {
	direction := cmp.Compare(to.row, from.row) // 1 is down
	x1 := from.x() + svgBoxWidth/2 + direction*svgApart
	x2 := to.x() + svgBoxWidth/2 + direction*svgApart
	y1, y2 := from.y()+svgBoxHeight, to.y()
	if direction < 0 {
		y1, y2 = from.y(), to.y()+svgBoxHeight
	}
	bend := direction * svgGapY * 3 / 4
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1, y1+bend, x2, y2-bend, x2, y2-direction*6),
		fmt.Sprintf("M%d %dl-4 %dh8z", x2, y2, -direction*8)
}
