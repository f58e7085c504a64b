package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/controllers/check"
)

// nobody is a cluster that does not answer.
const nobody = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: ""}}]
current-context: c
`

// A probe or a Job tells a cluster that is not fit from a mistyped command.
func TestExitCodesOfCheck(t *testing.T) {
	dir := directory(t, map[string]string{"kubeconfig": nobody, "broken.yaml": "kind: 5\n"})
	kubeconfig := "--kubeconfig=" + filepath.Join(dir, "kubeconfig")
	cases := map[string]struct {
		why  string
		args []string
		want int
		says string
	}{
		"format":      {why: "a program would wait for JSON for ever", args: []string{"-o", "yaml"}, want: exitUsage, says: "table or json"},
		"argument":    {why: "there is nothing to name", args: []string{"rights"}, want: exitUsage, says: "rights"},
		"flag":        {why: "flags are not guessed", args: []string{"--pre"}, want: exitUsage, says: "--pre"},
		"controller":  {why: "the flags are those of the manager, and as strict", args: []string{"--controllers=mcp"}, want: exitUsage, says: `"mcp"`},
		"no cluster":  {why: "what cannot be looked at is not fine", args: []string{kubeconfig, "--controllers=mcpserver"}, want: exitFailed, says: "× kubernetes-version: Kubernetes is 1.30.0 or newer\n    this could not be looked at: "},
		"broken file": {why: "the manager would not start with it", args: []string{kubeconfig, "--controllers=mcpserver", "--kinds-file", filepath.Join(dir, "broken.yaml")}, want: exitFailed, says: "× machine-files: "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, append([]string{"check"}, c.args...)...)
			if err == nil || exitCode(err) != c.want {
				t.Fatalf("ends with %v, want exit code %d: %s", err, c.want, c.why)
			}
			if said := out + err.Error(); !strings.Contains(said, c.says) {
				t.Errorf("%q is not in\n%s", c.says, said)
			}
			if errors.Is(err, check.ErrFailed) != (c.want == exitFailed) {
				t.Errorf("ends with %v", err)
			}
		})
	}
}
