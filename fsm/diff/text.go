package diff

import (
	"fmt"
	"strings"
)

// Text is the report for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s\nnew: %s\n", r.Old, r.New)
	if len(r.Machine)+len(r.Phases) == 0 {
		b.WriteString("\nnothing that matters changed\n")
	}
	list(&b, "\nthe machine\n", r.Machine)
	for _, c := range r.Phases {
		head := "\nphase " + c.Phase + ": " + c.What
		if c.Was != "" {
			head += " from " + c.Was
		}
		b.WriteString(head + "\n")
		list(&b, "", c.Words)
	}
	if r.Impacts == nil {
		list(&b, "\nDANGER\n", r.Dangers)
		return b.String()
	}
	fmt.Fprintf(&b, "\nobjects: %d\n", len(r.Impacts))
	for _, f := range r.Impacts {
		fmt.Fprintf(&b, "  %s in %q: %s\n", f.Object, f.Phase, f.Words)
	}
	return b.String()
}

func list(b *strings.Builder, head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	b.WriteString(head)
	for _, l := range lines {
		b.WriteString("  " + l + "\n")
	}
}
