package fsm

import (
	"fmt"
	"regexp"
	"strings"
)

// ignored is a comment `# phasegate:ignore CODE reason`: the author knows about a
// warning on that line, or on the next one when the comment stands alone.
type ignored struct {
	code, reason string
	at           Pos
	line         int
	used         bool
}

var ignoreComment = regexp.MustCompile(`(?:^|\s)#\s*phasegate:ignore\b\s*(\S*)[ \t]*(.*)$`)

func ignores(data []byte) []*ignored {
	var all []*ignored
	for i, text := range strings.Split(string(data), "\n") {
		m := ignoreComment.FindStringSubmatchIndex(text)
		if m == nil {
			continue
		}
		hash := m[0] + strings.Index(text[m[0]:], "#")
		x := &ignored{code: text[m[2]:m[3]], reason: strings.TrimSpace(text[m[4]:m[5]]),
			at: Pos{i + 1, len([]rune(text[:hash])) + 1}, line: i + 1}
		if strings.TrimSpace(text[:hash]) == "" {
			x.line++
		}
		all = append(all, x)
	}
	return all
}

// findings are the diagnostics that a file gets: with their severities, sorted,
// without those that its author knows about.
func (c *compiler) findings() Diagnostics {
	for i := range c.diags {
		if Codes[c.diags[i].Code].Severity == SeverityWarning {
			c.diags[i].Severity = SeverityWarning
		}
	}
	return c.def.withoutIgnored(c.diags).sorted()
}

// withoutIgnored leaves out the warnings that the author knows about, and adds a
// finding for each comment that has nothing to say.
func (d *Definition) withoutIgnored(diags Diagnostics) Diagnostics {
	var out Diagnostics
	comments := ignores(d.text)
	for _, x := range diags {
		known := false
		for _, i := range comments {
			if i.line == x.Line && i.code == x.Code && x.Severity == SeverityWarning && i.reason != "" {
				i.used, known = true, true
			}
		}
		if !known {
			out = append(out, x)
		}
	}
	for _, i := range comments {
		if message, fix := i.defect(diags); message != "" {
			out = append(out, d.diagAt(place{Pos: i.at}, "PG000", message, fix))
		}
	}
	return out
}

func (i *ignored) defect(diags Diagnostics) (message, fix string) {
	switch _, known := Codes[i.code]; {
	case !known:
		return fmt.Sprintf("phasegate:ignore %q names no code", i.code), "write # phasegate:ignore CODE and why it is right here"
	case i.reason == "":
		return "phasegate:ignore without a reason", fmt.Sprintf("write # phasegate:ignore %s and why it is right here", i.code)
	case !i.used && diags.Err() == nil: // else the warning may have been left out
		return fmt.Sprintf("phasegate:ignore %s has nothing to ignore here", i.code), "remove the comment; only warnings can be ignored"
	}
	return "", ""
}
