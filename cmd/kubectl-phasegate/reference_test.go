package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

const reference = "../../docs/reference/cli.md"

// The page is what --help says, so that neither can be right alone. `make generate`
// writes it.
func TestReferenceIsWhatHelpSays(t *testing.T) {
	root := command(streams{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var page, list strings.Builder
	var tell func(cmd *cobra.Command)
	tell = func(cmd *cobra.Command) {
		var help strings.Builder
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&page, "\n## %s\n\n```text\n%s\n```\n", cmd.CommandPath(), strings.TrimSpace(help.String()))
		if cmd != root {
			fmt.Fprintf(&list, "| [`%s`](#%s) | %s |\n", cmd.Name(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
		}
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && cmd == root {
				tell(c)
			}
		}
	}
	tell(root)
	got := "# kubectl phasegate: all commands\n\nWritten by `make generate` from the program; do not edit. How it is used: [tutorials](../tutorials/README.md), [see and ask](../see-and-ask.md), [migrate](../operate/migrate.md).\n\n| command | |\n|---|---|\n" +
		list.String() + page.String()
	if flag.Lookup("update").Value.String() == "true" { // that of fsmtest, which other tests here bring
		if err := os.WriteFile(reference, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is stale: run `make generate` (-page +program):\n%s", reference, diff)
	}
}
