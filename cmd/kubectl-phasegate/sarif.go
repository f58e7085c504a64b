package main

import (
	"encoding/json"
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
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(log)
}

func sarifMessage(d diag.Diagnostic) string {
	text := fmt.Sprintf("%s: %s", d.Message, d.Fix)
	if len(d.Trace) > 0 {
		text += "\n" + strings.Join(d.Trace, "\n")
	}
	return text
}
