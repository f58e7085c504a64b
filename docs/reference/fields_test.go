package reference_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/support/crds"
)

// row is what the page says of a field.
type row struct {
	// newer: an older release does not have it.
	newer         bool
	verdicts, why string
}

var path = regexp.MustCompile("`((?:spec|status)\\.[A-Za-z0-9.*]+)`(¹?)")

// rows are those of the tables of fields, by path.
func rows(t *testing.T) map[string]row {
	t.Helper()
	data, err := os.ReadFile("toolhive-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]row{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range path.FindAllStringSubmatch(cells[0], -1) {
			if _, twice := found[m[1]]; twice {
				t.Errorf("%s has two rows", m[1])
			}
			found[m[1]] = row{m[2] != "", strings.TrimSpace(cells[1]) + " " + strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	return found
}

// Each row decides, and what is not as with ToolHive's operator has a reason.
func TestEachRowHasAVerdict(t *testing.T) {
	verdict := regexp.MustCompile("^(equal|refused|departure) (equal|refused|departure)$")
	all := rows(t)
	if len(all) < 50 {
		t.Fatalf("only %d fields were found: is the pattern still right?", len(all))
	}
	for field, r := range all {
		if !verdict.MatchString(r.verdicts) {
			t.Errorf("%s: %q: each is equal, refused or departure", field, r.verdicts)
		}
		if strings.Contains(r.verdicts, "departure") && r.why == "" {
			t.Errorf("%s departs without a reason", field)
		}
	}
}

// A field that nobody has decided about would be ignored without a word, and a row of a field
// that is gone would be believed. TOOLHIVE_CRDS is a directory of ToolHive's CRDs, of
// whichever release.
func TestEachFieldHasARow(t *testing.T) {
	dir := os.Getenv("TOOLHIVE_CRDS")
	if dir == "" {
		t.Skip("not run: TOOLHIVE_CRDS names no directory of ToolHive's CRDs")
	}
	fields, err := crds.Fields(filepath.Join(dir, "toolhive.stacklok.dev_mcpservers.yaml"), "spec", "status")
	if err != nil {
		t.Fatal(err)
	}
	said := rows(t)
	for _, field := range without(said, fields) {
		t.Errorf("%s has no row", field)
	}
	used := map[string]bool{}
	for field := range fields {
		used[rowOf(said, field)] = true
	}
	for _, field := range slices.Sorted(maps.Keys(said)) {
		if !used[field] && !said[field].newer {
			t.Errorf("the row of %s is of no field", field)
		}
	}
}

// without are the fields that have no row.
func without(said map[string]row, fields map[string]bool) (missing []string) {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if rowOf(said, field) == "" {
			missing = append(missing, field)
		}
	}
	return missing
}

// rowOf is the row of a field: its own, or that of all below one above it.
func rowOf(said map[string]row, field string) string {
	if _, own := said[field]; own {
		return field
	}
	for above := field; strings.Contains(above, "."); {
		above = above[:strings.LastIndex(above, ".")]
		if _, all := said[above+".*"]; all {
			return above + ".*"
		}
	}
	return ""
}
