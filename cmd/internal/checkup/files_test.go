package checkup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/check"
)

// A file that cannot be used fails the check for the controller that runs its machine, and
// warns the others; the machine that is compiled in is what the other checks are about.
func TestRefusedFiles(t *testing.T) {
	const gate = "apiVersion: phasegate.dev/v1alpha1\nkind: Machine\nmetadata: {name: gate}\nspec: {colour: red}\n"
	for name, c := range map[string]struct {
		why, text   string
		controllers []string
		want        []check.Level
	}{
		"its own":           {"its objects may wait", strings.Replace(gate, "name: gate", "name: mcpserver", 1), []string{MCPServer}, []check.Level{check.Failure, check.Info, check.Info}},
		"another's":         {"it keeps nobody here from anything", gate, []string{MCPServer}, []check.Level{check.Warning, check.Info, check.Info}},
		"of a kind of ours": {"it is what Custom runs", gate, []string{Custom}, []check.Level{check.Failure, check.Info, check.Info}},
		"whose, is unknown": {"it may be its own", "colour: red\n", []string{MCPServer}, []check.Level{check.Failure, check.Info, check.Info}},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := Load(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		findings, err := files.check(c.controllers).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []check.Level
		for _, f := range findings {
			got = append(got, f.Level)
		}
		if d := cmp.Diff(c.want, got); d != "" || !strings.Contains(findings[0].Message, "mine.yaml:") {
			t.Errorf("%s: %s: %s (-want +got):\n%s", name, c.why, findings[0].Message, d)
		}
	}
}

// What cannot be asked for is said: nobody shall take the check for the whole answer.
func TestUnclearRightsAreSaid(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "kubectl-phasegate", "internal", "scaffold", "testdata", "upkeep.yaml"))
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
	for _, f := range check.Ask(t.Context(), []check.Check{files.check(nil)})[0].Findings {
		said = append(said, f.Message)
	}
	const want = "machine upkeep: an expression says the kind for LookAnywhere, so it is not asked whether this account may get it"
	if got := strings.Join(said, "\n"); !strings.Contains(got, want) {
		t.Errorf("want %q, got:\n%s", want, got)
	}
}
