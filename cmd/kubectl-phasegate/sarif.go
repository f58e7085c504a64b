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

	"github.com/phasegate/phasegate/controllers/lint"
	pages "github.com/phasegate/phasegate/docs/lint"
	"github.com/phasegate/phasegate/fsm"
)

// The part of SARIF 2.1.0 that code scanning reads. The libraries for it bring
// test dependencies into the program, or cannot be fetched.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string       `json:"id"`
		ShortDescription sarifText    `json:"shortDescription"`
		Help             sarifText    `json:"help"`
		Configuration    sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level fsm.Severity `json:"level"`
	}
	sarifText struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown,omitempty"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     fsm.Severity    `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

// lintSARIF writes a log for code scanning. The severities have SARIF's names.
func lintSARIF(to io.Writer, r *lint.Report) error {
	codes := slices.Sorted(maps.Keys(fsm.Codes))
	rules, err := sarifRules(codes)
	if err != nil {
		return err
	}
	results := []sarifResult{} // not null: that would be a scan that failed
	for _, d := range r.Findings {
		results = append(results, sarifResult{
			RuleID: d.Code, RuleIndex: slices.Index(codes, d.Code), Level: d.Severity,
			Message: sarifText{Text: sarifMessage(d)},
			Locations: []sarifLocation{{sarifPhysical{
				Artifact: sarifArtifact{(&url.URL{Path: filepath.ToSlash(d.File)}).String()},
				Region:   sarifRegion{d.Line, d.Column},
			}}},
		})
	}
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(sarifLog{
		Schema:  "https://json.schemastore.org/sarif-2.1.0.json",
		Version: "2.1.0",
		Runs: []sarifRun{{
			Tool:       sarifTool{sarifDriver{Name: "phasegate", Version: version, Rules: rules}},
			ColumnKind: "unicodeCodePoints",
			Results:    results,
		}},
	})
}

func sarifRules(codes []string) ([]sarifRule, error) {
	rules := make([]sarifRule, len(codes))
	for i, code := range codes {
		page, err := pages.Page(code)
		if err != nil {
			return nil, err
		}
		rules[i] = sarifRule{
			ID:               code,
			ShortDescription: sarifText{Text: fsm.Codes[code].Title},
			Help:             sarifText{Text: page, Markdown: page},
			Configuration:    sarifDefault{fsm.Codes[code].Severity},
		}
	}
	return rules, nil
}

func sarifMessage(d fsm.Diagnostic) string {
	text := fmt.Sprintf("%s: %s", d.Message, d.Fix)
	if len(d.Trace) > 0 {
		text += "\n" + strings.Join(d.Trace, "\n")
	}
	return text
}
