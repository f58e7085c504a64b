package diag

import (
	"fmt"
	"regexp"
	"slices"
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

func ignores(lines []string) []*ignored {
	var all []*ignored
	for i, text := range lines {
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

// Report is what a file gets of its findings: with their severities, sorted, and without the warnings
// that the author knows about. Each comment that has nothing to say is a finding of its own.
func (s *Source) Report(found Diagnostics) Diagnostics {
	for i := range found {
		if Codes[found[i].Code].Severity == SeverityWarning {
			found[i].Severity = SeverityWarning
		}
	}
	var out Diagnostics
	comments := ignores(s.lines)
	for _, x := range found {
		once := slices.ContainsFunc(out, func(o Diagnostic) bool { return o.Pos == x.Pos && o.Code == x.Code && o.Message == x.Message }) // of a list that several phases use
		if !isKnown(x, comments) && !once {
			out = append(out, x)
		}
	}
	for _, i := range comments {
		if message, fix := i.defect(found); message != "" {
			out = append(out, s.diagAt(place{Pos: i.at}, "PG000", message, fix))
		}
	}
	return out.Sorted()
}

// isKnown tells whether a comment is about a finding, and notes that it is used.
func isKnown(x Diagnostic, comments []*ignored) (known bool) {
	for _, i := range comments {
		if i.line == x.Line && i.code == x.Code && x.Severity == SeverityWarning && i.reason != "" {
			i.used, known = true, true
		}
	}
	return known
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
