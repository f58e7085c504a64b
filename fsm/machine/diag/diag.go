package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// Pos is a place in a machine file; line and column count from 1.
type Pos struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// Diagnostic is one defect of a machine file. Code is stable; see Codes.
type Diagnostic struct {
	Code string `json:"code"`
	File string `json:"file"`
	Pos  `json:",inline"`
	Path string `json:"path,omitempty"`
	// Severity is error, or warning: such a file is used all the same.
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
	// Trace is the shortest way to a violated invariant, one event each.
	Trace []string `json:"trace,omitempty"`
}

// Severity of a finding.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// String renders file:line:column: code: message (fix).
func (d Diagnostic) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s: %s", d.File, d.Line, d.Column, d.Code, d.Message)
	if d.Fix != "" {
		s += ": " + d.Fix
	}
	return s
}

// Diagnostics are sorted by place.
type Diagnostics []Diagnostic

// Err is nil when no finding is an error, else an error with one line for each
// that is.
func (ds Diagnostics) Err() error {
	var lines []string
	for _, d := range ds {
		if d.Severity != SeverityWarning {
			lines = append(lines, d.String())
		}
	}
	if lines == nil {
		return nil
	}
	return fmt.Errorf("the file is refused, nothing of it is used:\n%s", strings.Join(lines, "\n"))
}

// Sorted are the same findings in the order of the file, in place.
func (ds Diagnostics) Sorted() Diagnostics {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code))
	})
	return ds
}

// Instead says what could be written in place of a name that nothing has: the one that it looks like, and what there is.
func Instead(name, what string, known []string) string {
	there := what + ": " + strings.Join(known, ", ")
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %s? %s", near, there)
	}
	return there
}

// Nearest is the name that differs least, in no more than half of its letters; empty: none is near.
func Nearest(name string, known []string) (near string) {
	best := max(len(name)/2, 1) + 1
	for _, k := range known {
		if d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil); d < best {
			near, best = k, d
		}
	}
	return near
}
