package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	pages "github.com/phasegate/phasegate/docs/lint"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// What code scanning needs is listed in "SARIF support for code scanning" of GitHub's
// documentation.
func TestLintSARIF(t *testing.T) {
	file := write(t, "with space.yaml", strings.Replace(unguarded, "to: Done", "to: Dnoe", 1))
	var log map[string]any
	out := perform(t, "lint", "-o", "sarif", "--bindings", backupBindings, file).out
	if err := json.Unmarshal([]byte(out), &log); err != nil {
		t.Fatal(err)
	}
	stripAssumed(log)
	driver := log["runs"].([]any)[0].(map[string]any)["tool"].(map[string]any)["driver"].(map[string]any)
	rules := driver["rules"].([]any)
	delete(driver, "rules")
	want := map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []any{map[string]any{
			"tool":       map[string]any{"driver": map[string]any{"name": "phasegate", "version": version}},
			"columnKind": "unicodeCodePoints",
			"results": []any{map[string]any{
				"ruleId": "PG001", "ruleIndex": 1.0, "level": "error",
				"message": map[string]any{"text": `phase "Dnoe" does not exist: did you mean Done? phases of this machine: Copying, Done`},
				"locations": []any{map[string]any{"physicalLocation": map[string]any{
					"artifactLocation": map[string]any{"uri": strings.ReplaceAll(file, " ", "%20")},
					"region":           map[string]any{"startLine": 8.0, "startColumn": 63.0},
				}}},
			}},
		}},
	}
	if d := cmp.Diff(want, log); d != "" {
		t.Errorf("the log without its rules (-want +got):\n%s", d)
	}
	codes := slices.Sorted(maps.Keys(diag.Codes))
	for i, r := range rules {
		page, err := pages.Page(codes[i])
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"id": codes[i], "shortDescription": map[string]any{"text": diag.Codes[codes[i]].Title},
			"help":                 map[string]any{"text": page, "markdown": page},
			"defaultConfiguration": map[string]any{"level": string(diag.Codes[codes[i]].Severity)},
		}
		if d := cmp.Diff(any(want), r); d != "" {
			t.Errorf("rule %d (-want +got):\n%s", i, d)
		}
	}
	if len(rules) != len(codes) {
		t.Errorf("%d rules for %d codes", len(rules), len(codes))
	}
}

// stripAssumed takes from a log what SARIF assumes where it is absent; results are never
// left out, since a log without them is none of a scan.
func stripAssumed(v any) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			stripAssumed(element)
		}
	case map[string]any:
		assumed := map[string]any{
			"kind": "fail", "language": "en-US", "enabled": true, "isComprehensive": false,
			"contents": []any{"localizedData", "nonLocalizedData"}, "newlineSequences": []any{"\r\n", "\n"},
			"rank": -1.0, "id": -1.0, "index": -1.0, "byteOffset": -1.0, "charOffset": -1.0, "properties": map[string]any{},
		}
		maps.DeleteFunc(v, func(name string, value any) bool {
			return cmp.Equal(value, assumed[name]) || cmp.Equal(value, []any{}) && name != "results"
		})
		for _, value := range v {
			stripAssumed(value)
		}
	}
}

// The schema is the standard's own, which comes with the library.
func TestLintSARIFIsValid(t *testing.T) {
	for name, tc := range map[string]struct {
		why     string
		file    string
		results int
	}{
		"Clean":   {why: "a scan without findings has a list all the same", file: mcpserver},
		"NoYAML":  {why: "what cannot be read has a line too", file: write(t, "a.yaml", "kind: Machine\n\t- {"), results: 1},
		"Nothing": {why: "as has what is missing", file: write(t, "a.yaml", "kind: Machine\n"), results: 3},
	} {
		t.Run(name, func(t *testing.T) {
			out := perform(t, "lint", "-o", "sarif", tc.file).out
			log, err := sarif.FromString(out, sarif.WithStrictValidation())
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Validate(); err != nil {
				t.Errorf("%s: %v\n%s", tc.why, err, out)
			}
			if got := log.Runs[0].Results; got == nil || len(got) != tc.results {
				t.Errorf("%s: %d results in %v, want %d", tc.why, len(got), got, tc.results)
			}
		})
	}
}
