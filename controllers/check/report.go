package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/phasegate/phasegate/fsm/printable"
)

// page is where every check has its place.
const page = "https://github.com/phasegate/phasegate/blob/main/docs/operate/troubleshooting.md#check-"

// Group is a heading with checks under it.
type Group struct {
	Title  string
	Checks []Check
}

// Result is one check as it is shown.
type Result struct {
	Group string `json:"group"`
	ID    string `json:"id"`
	Title string `json:"title"`
	// Level is that of the worst finding; empty is not used: Info says that all is well.
	Level    Level     `json:"level"`
	Findings []Finding `json:"findings,omitempty"`
	URL      string    `json:"url"`
}

// Report are the results of all groups, in their order.
type Report []Result

// Make asks everything. A question that could not be answered is a failure.
func Make(ctx context.Context, groups []Group) Report {
	var report Report
	for _, g := range groups {
		for _, a := range Ask(ctx, g.Checks) {
			if a.Err != nil {
				a.Findings = append(a.Findings, Finding{Level: Failure, Message: "this could not be looked at: " + a.Err.Error(), Remedy: "see that you may ask it and that the API server answers, then check again"})
			}
			report = append(report, Result{
				Group: g.Title, ID: a.ID, Title: a.Title, Level: worst(a.Findings), Findings: a.Findings, URL: page + a.ID,
			})
		}
	}
	return report
}

func worst(findings []Finding) Level {
	level := Info
	for _, f := range findings {
		switch {
		case f.Level == Failure:
			return Failure
		case f.Level == Warning:
			level = Warning
		}
	}
	return level
}

// Count is how many checks ended at a level.
func (r Report) Count(level Level) int {
	n := 0
	for _, result := range r {
		if result.Level == level {
			n++
		}
	}
	return n
}

// ErrFailed says that a check failed: the report, which was written, tells which.
var ErrFailed = errors.New("a check failed")

// The formats of a report.
const (
	Table = "table"
	JSON  = "json"
)

// KnownFormat is an error for a format that Write does not know.
func KnownFormat(format string) error {
	if format == Table || format == JSON {
		return nil
	}
	return fmt.Errorf("--output: %q is not known: use %s or %s", format, Table, JSON)
}

// Write shows the report, and answers ErrFailed when a check failed; warnings alone
// are none.
func (r Report) Write(w io.Writer, format string) error {
	write := r.writeTable
	if format == JSON {
		write = r.writeJSON
	}
	if err := write(w); err != nil {
		return err
	}
	if r.Count(Failure) > 0 {
		return ErrFailed
	}
	return nil
}

// writeJSON is for programs: {"results": [...]}.
func (r Report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{"results": r})
}

var marks = map[Level]string{Failure: "×", Warning: "‼", Info: "✓"}

// writeTable is for people: a line for each check, and what was found under it.
func (r Report) writeTable(w io.Writer) error {
	var out strings.Builder
	r = printable.Value(r)
	for i, result := range r {
		if i == 0 || r[i-1].Group != result.Group {
			fmt.Fprintf(&out, "%s\n%s\n", result.Group, strings.Repeat("-", len(result.Group)))
		}
		fmt.Fprintf(&out, "%s %s: %s\n", marks[result.Level], result.ID, result.Title)
		for _, f := range result.Findings {
			fmt.Fprintf(&out, "    %s\n", f)
		}
		if result.Level != Info {
			fmt.Fprintf(&out, "    see %s\n", result.URL)
		}
		if i == len(r)-1 || r[i+1].Group != result.Group {
			out.WriteString("\n")
		}
	}
	fmt.Fprintf(&out, "%d checks: %d failed, %d with warnings\n", len(r), r.Count(Failure), r.Count(Warning))
	_, err := io.WriteString(w, out.String())
	return err
}
