package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/fsm/diag"
)

// lintFormats are the values of lint's -o.
var lintFormats = map[string]func(io.Writer, *lint.Report) error{
	"text":  lintText,
	"json":  lintJSON,
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

func lintJSON(to io.Writer, r *lint.Report) error {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
