package main

import (
	"os"
	"strings"
	"testing"
)

// What a page shows of a command without a cluster is what it prints.
func TestPagesShowWhatIsPrinted(t *testing.T) {
	const page = "docs/extend/new-machine.md"
	t.Chdir("../..")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(text), "$ kubectl phasegate lint --prove ")
	shown, _, closed := strings.Cut(shown, "```")
	args, want, _ := strings.Cut(shown, "\n")
	if !found || !closed {
		t.Fatalf("%s shows no lint --prove", page)
	}
	got := perform(t, append([]string{"lint", "--prove"}, strings.Fields(args)...)...)
	if got.code != 0 || got.out+got.err != want {
		t.Errorf("%s shows:\n%s\nprinted is (exit code %d):\n%s%s", page, want, got.code, got.out, got.err)
	}
}
