package tutorials

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	charWidth  = 8.0
	lineHeight = 18
	padding    = 16
	columns    = 110
)

var (
	// sgr sets colours; control is everything else that moves a terminal's cursor.
	sgr     = regexp.MustCompile(`\x1b\[([0-9;]*)m`)
	control = regexp.MustCompile(`\x1b\[[?0-9;]*[A-Za-ln-z]|\x1b\][^\x07]*\x07|\x1b[=>()][B0]?`)
)

// style are the classes of a piece of text: a colour and a weight.
type style struct{ colour, weight string }

// picture draws what a terminal showed, one command after the other, as an SVG that
// brings its colours: on a dark ground of its own it is readable on any page.
func picture(recorded string) string {
	text := control.ReplaceAllString(strings.ReplaceAll(recorded, "\r\n", "\n"), "")
	lines := wrapped(strings.Split(strings.TrimRight(text, "\n"), "\n"))
	var b strings.Builder
	width, height := int(columns*charWidth)+2*padding, len(lines)*lineHeight+2*padding
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="A terminal: a migration from the first check to the end">`+"\n", width, height, width, height)
	b.WriteString(`<style>
.ground{fill:#16181b}text{font:13.3px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e8eaed;white-space:pre}
.bold{font-weight:bold}.dim{fill:#9aa0a6}.red{fill:#f28b82}.green{fill:#81c995}.yellow{fill:#fdd663}.blue{fill:#8ab4f8}.magenta{fill:#d7aefb}.cyan{fill:#78d9ec}
@media (prefers-reduced-motion: no-preference){g{animation:show .2s both}@keyframes show{from{opacity:0}}}
`)
	parts := delays(lines)
	for i := range parts {
		fmt.Fprintf(&b, ".p%d{animation-delay:%.1fs}\n", i, float64(i)*1.5)
	}
	fmt.Fprintf(&b, "</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"10\"/>\n", width, height)
	y := padding + 13
	now := style{}
	for i, part := range parts {
		fmt.Fprintf(&b, "<g class=\"p%d\">\n", i)
		for _, line := range part {
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", padding, y, spans(line, &now))
			y += lineHeight
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// delays splits the lines before each command, to be shown one part after the other.
func delays(lines []string) (parts [][]string) {
	for _, line := range lines {
		if strings.HasPrefix(sgr.ReplaceAllString(line, ""), "$ ") || len(parts) == 0 {
			parts = append(parts, nil)
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], line)
	}
	return parts
}

// wrapped breaks lines as a terminal does, and does not count what sets colours.
func wrapped(lines []string) (all []string) {
	for _, line := range lines {
		if at := strings.LastIndexByte(strings.TrimRight(line, "\r"), '\r'); at >= 0 {
			line = line[at+1:] // written over
		}
		n, begin := 0, 0
		for i := 0; i < len(line); {
			if m := sgr.FindStringIndex(line[i:]); m != nil && m[0] == 0 {
				i += m[1]
				continue
			}
			if n == columns {
				all, begin, n = append(all, line[begin:i]), i, 0
			}
			_, size := firstRune(line[i:])
			i, n = i+size, n+1
		}
		all = append(all, line[begin:])
	}
	return all
}

func firstRune(text string) (rune, int) {
	for i, r := range text {
		if i > 0 {
			return r, i
		}
	}
	return 0, len(text)
}

// spans are the pieces of a line; the style goes on in the next line.
func spans(line string, now *style) string {
	var b strings.Builder
	write := func(text string) {
		text = html.EscapeString(strings.TrimRight(text, "\r"))
		class := strings.TrimSpace(now.colour + " " + now.weight)
		switch {
		case text == "":
		case class == "":
			b.WriteString(text)
		default:
			fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, class, text)
		}
	}
	at := 0
	for _, m := range sgr.FindAllStringSubmatchIndex(line, -1) {
		write(line[at:m[0]])
		now.set(line[m[2]:m[3]])
		at = m[1]
	}
	write(line[at:])
	return b.String()
}

var colours = []string{"dim", "red", "green", "yellow", "blue", "magenta", "cyan", ""}

// set does what the numbers of an SGR sequence say; what is not known is left out.
func (s *style) set(numbers string) {
	for text := range strings.SplitSeq(numbers, ";") {
		n, _ := strconv.Atoi(text) // an empty number is 0, as a terminal takes it
		switch {
		case n == 0:
			*s = style{}
		case n == 1:
			s.weight = "bold"
		case n == 2:
			s.colour = "dim"
		case n == 22:
			s.weight = ""
		case n >= 30 && n <= 37:
			s.colour = colours[n-30]
		case n >= 90 && n <= 97:
			s.colour = colours[n-90]
		case n == 38: // a colour by number or by its parts, which follow
			return
		case n == 39:
			s.colour = ""
		}
	}
}
