package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/phasegate/phasegate/controllers/lint"
	pages "github.com/phasegate/phasegate/docs/lint"
	"github.com/phasegate/phasegate/fsm/diag"
)

// lintFormats are the values of lint's -o.
var lintFormats = map[string]func(io.Writer, *lint.Report) error{
	"text":  lintText,
	"json":  func(to io.Writer, r *lint.Report) error { return writeJSON(to, r) },
	"sarif": lintSARIF,
}

func lintText(to io.Writer, r *lint.Report) error {
	for _, d := range r.Findings {
		severity := ""
		if d.Severity == diag.SeverityWarning {
			severity = "warning: "
		}
		fmt.Fprintf(to, "%s:%d:%d: %s%s: %s: %s (%s)\n", d.File, d.Line, d.Column, severity, d.Code, d.Message, d.Fix, pageOf(d.Code))
		for i, step := range d.Trace {
			fmt.Fprintf(to, "    %d. %s\n", i+1, step)
		}
	}
	for _, p := range r.Proofs {
		fmt.Fprintf(to, "%s: explored %d states and %d transitions, for %s\n", p.File, p.States, p.Transitions, count(len(p.Invariants), "invariant"))
	}
	for _, u := range r.Unchecked {
		fmt.Fprintf(to, "%s: self is not checked: no CRD of %s %s is known here, give it by --crd FILE or --live\n", u.File, u.For.APIVersion, u.For.Kind)
	}
	_, err := fmt.Fprintf(to, "%s, %s, %s\n", count(r.Files, "file"), count(r.Errors, "error"), count(r.Warnings, "warning"))
	return err
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pageOf is where a code is explained; `lint --explain` prints it.
func pageOf(code string) string { return "docs/lint/" + code + ".md" }

// lintSARIF writes a log for code scanning. The severities have SARIF's names.
func lintSARIF(to io.Writer, r *lint.Report) error {
	run := sarif.NewRun().WithColumnKind("unicodeCodePoints").
		WithTool(sarif.NewTool().WithDriver(sarif.NewToolComponent().WithName("phasegate").WithVersion(version)))
	for _, code := range slices.Sorted(maps.Keys(diag.Codes)) {
		page, err := pages.Page(code)
		if err != nil {
			return err
		}
		run.AddRule(code).WithDescription(diag.Codes[code].Title).WithMarkdownHelp(page).
			WithDefaultConfiguration(sarif.NewReportingConfiguration().WithLevel(string(diag.Codes[code].Severity)))
	}
	for _, d := range r.Findings {
		run.CreateResultForRule(d.Code).WithLevel(string(d.Severity)).WithMessage(sarif.NewTextMessage(sarifMessage(d))).
			AddLocation(sarif.NewLocationWithPhysicalLocation(sarif.NewPhysicalLocation().
				WithArtifactLocation(sarif.NewSimpleArtifactLocation((&url.URL{Path: filepath.ToSlash(d.File)}).String())).
				WithRegion(sarif.NewRegion().WithStartLine(d.Line).WithStartColumn(d.Column))))
	}
	log := sarif.NewReport().AddRun(run)
	log.Schema = "https://json.schemastore.org/sarif-2.1.0.json" // known to editors
	return writeJSON(to, log)
}

func sarifMessage(d diag.Diagnostic) string {
	text := fmt.Sprintf("%s: %s", d.Message, d.Fix)
	if len(d.Trace) > 0 {
		text += "\n" + strings.Join(d.Trace, "\n")
	}
	return text
}
