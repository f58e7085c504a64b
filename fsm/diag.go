package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in a machine file; line and column count from 1.
type Pos struct{ Line, Column int }

// Diagnostic is one defect of a machine file. Code is stable; see docs/machine-format.md.
type Diagnostic struct {
	Code    string `json:"code"`
	File    string `json:"file"`
	Pos     `json:",inline"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Fix says what to do about it.
	Fix string `json:"fix,omitempty"`
}

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

// Err is nil when there is no finding, else an error with one line per finding.
func (ds Diagnostics) Err() error {
	if len(ds) == 0 {
		return nil
	}
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.String()
	}
	return fmt.Errorf("machine file refused, nothing of it is used:\n%s", strings.Join(lines, "\n"))
}

func (ds Diagnostics) sorted() Diagnostics {
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code))
	})
	return ds
}
