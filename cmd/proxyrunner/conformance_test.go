package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// envConformance names the directory in which npm has installed programs of the Model Context
// Protocol. They need the Node.js that is on the PATH.
const envConformance = "MCP_CONFORMANCE"

// npmProgram is the first of some programs that is in that directory; without any the test is not run.
func npmProgram(t *testing.T, names ...string) string {
	t.Helper()
	dir := os.Getenv(envConformance)
	for _, name := range names {
		path, err := filepath.Abs(filepath.Join(dir, "node_modules", ".bin", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil && dir != "" {
			return path
		}
	}
	t.Skipf("not run: %s names no directory in which npm has installed %s", envConformance, strings.Join(names, " or "))
	return ""
}

// everything builds the server that the Go SDK has for these tests.
func everything(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "everything-server")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the SDK's server: %v\n%s", err, text)
	}
	return path
}

var scenario = regexp.MustCompile(`(?m)^\S+ ([a-z0-9-]+): (\d+) passed, (\d+) failed`)

// suite runs all scenarios of a revision of the protocol against a server, and returns what each came to.
func suite(t *testing.T, program, address string, args ...string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"server", "--url", address + "/mcp"}, args...)...)
	cmd.Dir = t.TempDir()
	text, err := cmd.CombinedOutput()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) { // it is not 0 if a scenario fails
		t.Fatalf("%v\n%s", err, text)
	}
	results := map[string]string{}
	for _, found := range scenario.FindAllSubmatch(text, -1) {
		results[string(found[1])] = fmt.Sprintf("%s passed, %s failed", found[2], found[3])
	}
	if len(results) == 0 {
		t.Fatalf("no results: %v\n%.2000s", err, text)
	}
	return results
}

// totals are for a report: the sums of what scenarios came to.
func totals(results map[string]string) string {
	var passed, failed int
	for _, text := range results {
		var p, f int
		_, _ = fmt.Sscanf(text, "%d passed, %d failed", &p, &f) // as suite writes it
		passed, failed = passed+p, failed+f
	}
	return fmt.Sprintf("%d scenarios: %d checks passed, %d failed", len(results), passed, failed)
}

// revision is one of the protocol, with the scenarios that it requires, and whether the SDK's server serves it
// without sessions only.
type revision struct {
	name      string
	args      []string
	stateless bool
}

// revisions are those that the installed conformance tests know. Older ones have one list of scenarios.
func revisions(t *testing.T, program string) []revision {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), program, "server", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !bytes.Contains(text, []byte("--requirements")) {
		return []revision{{name: "all"}}
	}
	return []revision{
		{"2025-11-25", []string{"--requirements", "2025-11-25"}, false},
		{"2026-07-28", []string{"--requirements", "2026-07-28"}, true},
	}
}

// ofStdio are the scenarios that come to something else when the proxy serves a server of stdio: see
// docs/operate/real-programs.md. All others must be the same.
var (
	nothing = regexp.MustCompile(`^$`)
	ofStdio = regexp.MustCompile(`^(server-sse-polling|http-custom-header-server-validation|input-required-result-.*)$`)
)

// Every scenario of the official conformance tests comes to the same through the proxy as
// with the server alone.
func TestConformance(t *testing.T) {
	program, server := npmProgram(t, "conformance"), everything(t)
	for _, rev := range revisions(t, program) {
		t.Run(rev.name, func(t *testing.T) {
			http := lonely(t, "streamable-http")
			http.echo = harness.ProcessForTest(t, harness.Program{Name: "everything", Path: server, LogDir: http.logs,
				Args: []string{fmt.Sprintf("-stateless=%v", rev.stateless), fmt.Sprintf("-http=127.0.0.1:%d", http.config.TargetPort)}})
			http.startProxy()
			http.await("healthy")
			alone := suite(t, program, http.echoAddress(), rev.args...)
			for _, name := range slices.Sorted(maps.Keys(alone)) {
				t.Logf("the server alone: %s: %s", name, alone[name])
			}
			t.Logf("the server alone: %s", totals(alone))
			same := func(t *testing.T, address string, except *regexp.Regexp) {
				t.Helper()
				proxied := suite(t, program, address, rev.args...)
				t.Logf("through the proxy: %s", totals(proxied))
				excepted := cmpopts.IgnoreMapEntries(func(name, _ string) bool { return except.MatchString(name) })
				if diff := cmp.Diff(alone, proxied, excepted); diff != "" {
					t.Errorf("through the proxy (-alone +proxied):\n%s", diff)
				}
			}
			t.Run("streamable-http", func(t *testing.T) { same(t, http.address, nothing) })
			t.Run("stdio", func(t *testing.T) {
				w := lonelyWith(t, "stdio", container.Run(t, server))
				w.startProxy()
				w.await("healthy")
				same(t, w.address, ofStdio)
			})
		})
	}
}

// The inspector lists and calls tools through the proxy as it does with the server alone.
func TestInspector(t *testing.T) {
	program, stdio := npmProgram(t, "mcp-inspector", "mcp-inspector-cli"), container.Echo(t)
	home, err := filepath.EvalSymlinks(program)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, transport, address string, args ...string) string {
		t.Helper()
		path := map[string]string{"http": "/mcp", "sse": "/sse"}[transport]
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--cli", address + path, "--transport", transport}, args...)...)
		cmd.Dir = filepath.Dir(home) // version 1 looks for its package.json from where it is run
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		var said bytes.Buffer
		cmd.Stderr = &said
		text, err := cmd.Output()
		var compact bytes.Buffer
		if err != nil || json.Compact(&compact, text) != nil {
			t.Fatalf("%v: %v\n%.2000s\n%.2000s", cmd.Args, err, text, said.Bytes())
		}
		return compact.String()
	}
	for name, test := range map[string]struct{ transport, mode, speaks string }{
		"streamable-http":          {"streamable-http", "", "http"},
		"sse":                      {"sse", "", "sse"},
		"stdio to streamable-http": {"stdio", "streamable-http", "http"},
		"stdio to sse":             {"stdio", "sse", "sse"},
	} {
		t.Run(name, func(t *testing.T) {
			alone := lonely(t, map[string]string{"http": "streamable-http", "sse": "sse"}[test.speaks])
			alone.startEcho()
			w := alone
			if test.transport == "stdio" {
				w = lonelyWith(t, "stdio", container.Run(t, stdio))
				w.config.ProxyMode = test.mode
			}
			w.startProxy()
			w.await("healthy")
			for _, args := range [][]string{
				{"--method", "tools/list"},
				{"--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hello"},
			} {
				want, got := ask(t, test.speaks, alone.echoAddress(), args...), ask(t, test.speaks, w.address, args...)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%v (-alone +proxied):\n%s", args, diff)
				}
				t.Logf("%v: %.300s", args, got)
			}
		})
	}
}
