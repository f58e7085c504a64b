package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/help.txt anew")

// No case here has a cluster: whatever is wrong with the arguments must be said
// before one is looked for.
func TestRunRefuses(t *testing.T) {
	dir := directory(t, map[string]string{
		"kinds.yaml": "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: k}\nspec: {kinds: [{kind: Tier, colour: red}]}\n",
		"phases":     "", "kubeconfig": "not a kubeconfig",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	cases := map[string]struct {
		why  string
		args []string
		want []string
	}{
		"unknown controller":  {why: "a misspelt one would never run", args: []string{"--controllers=datastoremigration,mcpservers"}, want: []string{"--controllers", `"mcpservers"`, "[datastoremigration mcpserver]"}},
		"no kinds file":       {why: "the compiled-in list is not what was asked for", args: []string{"--kinds-file", at("none.yaml")}, want: []string{"--kinds-file", "none.yaml"}},
		"broken kinds file":   {why: "an unknown field may be a misspelt one", args: []string{"--kinds-file", at("kinds.yaml")}, want: []string{"kinds.yaml:4:29: PG000", "colour"}},
		"no network":          {why: "a typo must not open or close what nobody meant", args: []string{"--allow-private-http=10.1.0.0"}, want: []string{"--allow-private-http", "10.1.0.0/16"}},
		"no phases directory": {why: "the compiled-in machine is not what was asked for", args: []string{"--phases-dir", at("none")}, want: []string{"--phases-dir", "none"}},
		"no kubeconfig":       {why: "only after the files are known to be sound", args: []string{"--phases-dir", at("phases"), "--kubeconfig", at("kubeconfig")}, want: []string{"find a cluster", "--kubeconfig"}},
		"unknown flag":        {why: "flags are not guessed", args: []string{"--kubeconf=x"}, want: []string{"unknown flag: --kubeconf"}},
		"an argument":         {why: "there is no verb to give", args: []string{"start"}, want: []string{"start"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := command()
			cmd.SetArgs(c.args)
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			checkError(t, cmd.ExecuteContext(context.Background()), dir, c.want)
		})
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	cmd := command()
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("--help (-want +got; go test ./cmd/manager -update writes it anew):\n%s", diff)
	}
	// Scripts rely on these names (docs and chart use them, too).
	for _, name := range []string{"--kubeconfig", "--phases-dir", "--kinds-file", "--controllers", "--calico-namespace",
		"--leader-elect", "--metrics-bind-address", "--health-probe-bind-address", "--version"} {
		if !strings.Contains(out.String(), name+" ") {
			t.Errorf("--help does not tell of %s", name)
		}
	}
}
