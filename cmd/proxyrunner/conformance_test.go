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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/container"
)

// envConformance names the directory in which npm has installed programs of the Model Context
// Protocol. They need the Node.js that is on the PATH.
const envConformance = "MCP_CONFORMANCE"

// npmProgram is a program in that directory; without it the test is not run.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(os.Getenv(envConformance), "node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil || os.Getenv(envConformance) == "" {
		t.Skipf("not run: %s names no directory in which npm has installed %s", envConformance, name)
	}
	return path
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

// suite runs all scenarios against a server, and returns what each came to.
func suite(t *testing.T, program, address string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "server", "--url", address+"/mcp")
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

// Every scenario of the official conformance tests comes to the same through the proxy as
// with the server alone.
func TestConformance(t *testing.T) {
	program, server := npmProgram(t, "conformance"), everything(t)
	http := lonely(t, "streamable-http")
	http.echo = harness.ProcessForTest(t, harness.Program{Name: "everything", Path: server, LogDir: http.logs,
		Args: []string{"-stateless=false", fmt.Sprintf("-http=127.0.0.1:%d", http.config.TargetPort)}})
	http.startProxy()
	http.await("healthy")
	alone := suite(t, program, http.echoAddress())
	for _, name := range slices.Sorted(maps.Keys(alone)) {
		t.Logf("the server alone: %s: %s", name, alone[name])
	}
	t.Run("streamable-http", func(t *testing.T) {
		if diff := cmp.Diff(alone, suite(t, program, http.address)); diff != "" {
			t.Errorf("through the proxy (-alone +proxied):\n%s", diff)
		}
	})
	t.Run("stdio", func(t *testing.T) {
		w := lonelyWith(t, "stdio", container.Run(t, server))
		w.startProxy()
		w.await("healthy")
		if diff := cmp.Diff(alone, suite(t, program, w.address)); diff != "" {
			t.Errorf("through the proxy (-alone +proxied):\n%s", diff)
		}
	})
}

// The inspector lists and calls tools through the proxy as it does with the server alone.
func TestInspector(t *testing.T) {
	program, stdio := npmProgram(t, "mcp-inspector-cli"), container.Echo(t)
	home, err := filepath.EvalSymlinks(program)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, transport, address string, args ...string) string {
		t.Helper()
		path := map[string]string{"http": "/mcp", "sse": "/sse"}[transport]
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--cli", address + path, "--transport", transport}, args...)...)
		cmd.Dir = filepath.Dir(home) // it looks for its package.json from where it is run
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
