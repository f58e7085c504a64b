package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/simulate"
)

const scenarios = "../../docs/examples/scenarios/"

// simulated runs the command and answers what it printed and its exit code.
func simulated(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	s := streams{in: strings.NewReader(""), out: &o, err: &e}
	cmd := command(s)
	cmd.SetArgs(append([]string{"simulate"}, args...))
	if err := cmd.Execute(); err != nil {
		code = exitCode(s, err)
	}
	return o.String(), e.String(), code
}

// The scenarios of the documentation hold for the machine that is shipped, with the
// names that its program has.
func TestExampleScenarios(t *testing.T) {
	files, err := filepath.Glob(scenarios + "*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			out, errs, code := simulated(t, file)
			if code != 0 {
				t.Fatalf("exit %d: %s%s", code, errs, out)
			}
			fsmtest.Golden(t, strings.TrimSuffix(file, ".yaml")+".txt", out)
		})
	}
}

func TestSimulateTellsWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: phasegate.dev/v1alpha1\nkind: Scenario\n"
	const object = "object: {spec: {type: APIServerToCRDs}}\n"
	door, err := os.ReadFile("../../fsm/fsmtest/testdata/door.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file("door.yaml", string(door))
	for name, c := range map[string]struct {
		why       string
		args      []string
		code      int
		out, errs string
	}{
		"expectation": {"exit 1, what was expected and what was",
			[]string{file("early.yaml", head+"machine: datastore-migration\n"+object+"script:\n- until: {phase: Complete, within: 1m}\n- expect: {phase: Failed}\n")},
			1, "early.yaml:7:11: expected: phase Failed, got Complete", ""},
		"unknown action": {"a typo would be an answer that nobody asks for",
			[]string{file("typo.yaml", head+"machine: datastore-migration\ngiven: {actions: {Preflihgt: [{}]}}\nscript: []\n")},
			1, "", `never calls an action "Preflihgt"`},
		"unknown field":      {"strictly read", []string{file("field.yaml", head+"machine: datastore-migration\nskript: []\n")}, 1, "", `field.yaml:4:1: PG000: unknown field "skript"`},
		"unknown machine":    {"what there is", []string{file("other.yaml", head+"machine: nothing\nscript: []\n")}, 2, "", "neither a file nor a machine that is published or compiled in: name one of datastore-migration"},
		"no file":            {"not a finding", []string{filepath.Join(dir, "none.yaml")}, 2, "", "none.yaml"},
		"machine of a file":  {"relative to the scenario; its program is not this one", []string{file("door-scenario.yaml", head+"machine: door.yaml\nscript: []\n")}, 1, "", `action "TakeKey" is not known`},
		"machine of a flag":  {"instead of what the scenario says", []string{file("flag.yaml", head+"machine: nothing\n"+object+"script:\n- until: {phase: Complete}\n"), "--machine", "datastore-migration"}, 0, "in the end: Complete", ""},
		"unknown output":     {"which there are", []string{scenarios + "conflict.yaml", "-o", "xml"}, 2, "", "write text or json"},
		"crashes everywhere": {"an abort survives them", []string{scenarios + "abort-under-the-lock.yaml", "--crash"}, 0, "in the end: gone, left in place []", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := simulated(t, c.args...)
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
				t.Errorf("%s: exit %d, %s%s; want exit %d, %q, %q", c.why, code, out, errs, c.code, c.out, c.errs)
			}
		})
	}
}

func TestSimulateAsJSON(t *testing.T) {
	out, _, code := simulated(t, scenarios+"retry-after-failure.yaml", "-o", "json")
	var results []simulate.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || code != 0 || len(results) != 1 {
		t.Fatalf("exit %d, %d results: %v", code, len(results), err)
	}
	r := results[0]
	if r.Machine != "datastore-migration" || !strings.HasPrefix(r.Revision, "sha256:") || len(r.Failures) != 0 || len(r.Transcript) < 10 {
		t.Errorf("a tool could not tell what was played: %+v", r)
	}
}

// What docs/simulate.md lets a newcomer do comes out as it says.
func TestFirstScenarioOfTheDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, part := range strings.Split(string(doc), "```") {
		if text, isYAML := strings.CutPrefix(part, "yaml\n"); isYAML && i%2 == 1 {
			blocks = append(blocks, text)
		}
	}
	t.Chdir(t.TempDir())
	run := func(content string) (string, int) {
		if err := os.WriteFile("my.yaml", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := simulated(t, "my.yaml")
		return out + errs, code
	}
	if out, code := run(blocks[0]); code != 0 || !strings.Contains(out, "in the end: Complete") {
		t.Errorf("the first one: exit %d, %s", code, out)
	}
	head, _, _ := strings.Cut(blocks[0], "script:")
	out, code := run(head + blocks[1])
	failed := strings.Index(out, "FAILED")
	if code != 1 || failed < 0 || !strings.Contains(string(doc), strings.TrimSpace(out[failed:])) {
		t.Errorf("the one that fails: exit %d, %s", code, out)
	}
	given, _, _ := strings.Cut(blocks[1], "    - {outputs")
	_, last, _ := strings.Cut(blocks[1], "resolve 2 conflicts}\n")
	if out, code := run(head + given + blocks[2] + last); code != 0 {
		t.Errorf("the corrected one: exit %d, %s", code, out)
	}
}
