package checkup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/controllers/check"
)

// What cannot be asked for is said: nobody shall take the check for the whole answer.
func TestUnclearRightsAreSaid(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "scaffold", "testdata", "upkeep.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "upkeep.yaml"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, f := range check.Ask(t.Context(), []check.Check{files.check()})[0].Findings {
		said = append(said, f.Message)
	}
	const want = "machine upkeep: an expression says the kind for LookAnywhere, so it is not asked whether this account may get it"
	if got := strings.Join(said, "\n"); !strings.Contains(got, want) {
		t.Errorf("want %q, got:\n%s", want, got)
	}
}
