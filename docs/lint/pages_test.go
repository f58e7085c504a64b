package pages_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/lint"
	pages "github.com/phasegate/phasegate/docs/lint"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// finding is what a page says that its bad example gets.
type finding struct {
	Code string
	Line int
}

// example is the block of YAML under a heading of a page; empty when there is none.
func example(page, heading string) string {
	_, rest, _ := strings.Cut(page, "\n## "+heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	return text
}

// check checks an example as its page tells people to, with the CRD of its objects if there is one. The actions that
// every machine may use are there besides those of bindings.yaml.
func check(t *testing.T, name, text, older, crd string) []finding {
	t.Helper()
	data, err := os.ReadFile("bindings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bindings, diags := program.LoadBindings("bindings.yaml", data)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	maps.Copy(bindings.Actions, builtin.Specs())
	known := lint.Known{Program: &bindings}
	if known.CRDs, err = lint.LoadCRDs(lint.File{Name: "crd.yaml", Data: []byte(crd)}); err != nil {
		t.Fatal(err)
	}
	against := map[string]*fsm.Definition{}
	if old, _ := fsm.Load("older.yaml", []byte(older)); old != nil {
		against[old.Metadata.Name] = old
	}
	options := lint.Options{Bindings: known.Bindings, Kinds: known.Kinds, Against: against}
	report, err := lint.Check([]lint.File{{Name: name, Data: []byte(text)}}, options)
	if err == nil && report.Errors == 0 {
		options.Prove = true
		report, err = lint.Check([]lint.File{{Name: name, Data: []byte(text)}}, options)
	}
	if err != nil {
		t.Fatal(err)
	}
	var found []finding
	for _, d := range report.Findings {
		t.Log(d)
		found = append(found, finding{d.Code, d.Line})
	}
	return found
}

func TestExamplesGetWhatTheirPageSays(t *testing.T) {
	for code := range diag.Codes {
		t.Run(code, func(t *testing.T) {
			page, err := pages.Page(code)
			if err != nil {
				t.Fatal(err)
			}
			if want := "# " + code + ": " + diag.Codes[code].Title + "\n"; !strings.HasPrefix(page, want) {
				t.Errorf("the page does not begin with %q", want)
			}
			bad, good, old := example(page, "Bad"), example(page, "Good"), example(page, "Old")
			crd, goodCRD := example(page, "CRD"), ""
			if crd != "" {
				good, goodCRD = strings.Replace(bad, " # here", "", 1), good // what is wrong is the CRD
			}
			var want []finding
			for i, line := range strings.Split(bad, "\n") {
				if strings.Contains(line, "# here") {
					want = append(want, finding{code, i + 1})
				}
			}
			if len(want) != 1 {
				t.Fatalf("the bad example has %d lines with # here", len(want))
			}
			if d := cmp.Diff(want, check(t, "bad.yaml", bad, old, crd)); d != "" {
				t.Errorf("the bad example (-want +got):\n%s", d)
			}
			if d := cmp.Diff([]finding(nil), check(t, "good.yaml", good, old, goodCRD)); d != "" || good == "" {
				t.Errorf("the good example (-want +got):\n%s", d)
			}
		})
	}
}

// The index and the pages are those of the codes, no more and no fewer.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("PG*.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, names []string
	for code, c := range diag.Codes {
		severity := ""
		if c.Severity == diag.SeverityWarning {
			severity = "warning: "
		}
		want = append(want, fmt.Sprintf("| [%s](%s.md) | %s%s |", code, code, severity, c.Title))
		names = append(names, code+".md")
	}
	slices.Sort(want)
	slices.Sort(names)
	var got []string
	for line := range strings.Lines(string(index)) {
		if strings.HasPrefix(line, "| [") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("docs/lint/README.md (-want +got):\n%s", d)
	}
	if d := cmp.Diff(names, files); d != "" {
		t.Errorf("pages (-want +got):\n%s", d)
	}
}
