package tutorials

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	cases := map[string]struct {
		why, recorded string
		want, not     string
	}{
		"Colour":   {why: "what is green on the terminal", recorded: "\x1b[32m✓ fit\x1b[0m", want: `<tspan class="green">✓ fit</tspan>`},
		"Bold":     {why: "two numbers in one sequence", recorded: "\x1b[1;31mno\x1b[m yes", want: `<tspan class="red bold">no</tspan> yes`},
		"Goes on":  {why: "a colour lasts over the end of a line", recorded: "\x1b[33ma\nb", want: `<tspan class="yellow">b</tspan>`},
		"Markup":   {why: "what a cluster says is text", recorded: "<script>&", want: "&lt;script&gt;&amp;", not: "<script>"},
		"Cursor":   {why: "a picture has no cursor", recorded: "\x1b[?25l\x1b[2Kx", want: ">x<"},
		"Progress": {why: "a line that was written over", recorded: "1 %\r99 %", want: ">99 %<", not: "1 %<"},
		"Wide":     {why: "a terminal breaks lines, in characters", recorded: strings.Repeat("é", columns) + "rest", want: ">rest<"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := picture(c.recorded)
			if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(strings.ReplaceAll(got, c.want, ""), c.not) {
				t.Errorf("%s: it must have %s and not %s:\n%s", c.why, c.want, c.not, got)
			}
			if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
				t.Errorf("%s: %v", c.why, err)
			}
		})
	}
}
