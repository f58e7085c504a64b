package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const scenarios = "../../docs/examples/scenarios/"

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
			got := perform(t, "simulate", file)
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			fsmtest.Golden(t, strings.TrimSuffix(file, ".yaml")+".txt", got.out)
		})
	}
}

func TestSimulateTellsWhatIsWrong(t *testing.T) {
	const head = "apiVersion: phasegate.dev/v1alpha1\nkind: Scenario\n"
	const ofMigrations = head + "machine: datastore-migration\n"
	const object = "object: {spec: {type: APIServerToCRDs}}\n"
	door, err := os.ReadFile("../../fsm/fsmtest/testdata/door.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{
		"early.yaml": ofMigrations + object + "script:\n- until: {phase: Complete, within: 1m}\n- expect: {phase: Failed}\n",
		"typo.yaml":  ofMigrations + "given: {actions: {Preflihgt: [{}]}}\nscript: []\n",
		"field.yaml": ofMigrations + "skript: []\n",
		"other.yaml": head + "machine: nothing\nscript: []\n",
		"door.yaml":  string(door), "enter.yaml": head + "machine: door.yaml\nscript: []\n",
		"flag.yaml": head + "machine: nothing\n" + object + "script:\n- until: {phase: Complete}\n",
	})
	file := func(name string) string { return filepath.Join(dir, name) }
	checkEach(t, map[string]invocation{
		"expectation":        {why: "exit 1, what was expected and what was", args: []string{file("early.yaml")}, code: 1, out: "early.yaml:7:11: expected: phase Failed, got Complete"},
		"unknown action":     {why: "a typo would be an answer that nobody asks for", args: []string{file("typo.yaml")}, code: 1, err: `never calls an action "Preflihgt"`},
		"unknown field":      {why: "strictly read", args: []string{file("field.yaml")}, code: 1, err: `field.yaml:4:1: PG000: unknown field "skript"`},
		"unknown machine":    {why: "what there is", args: []string{file("other.yaml")}, code: 2, err: "neither a file nor a machine that is published or compiled in: name one of datastore-migration"},
		"no file":            {why: "not a finding", args: []string{file("none.yaml")}, code: 2, err: "none.yaml"},
		"machine of a file":  {why: "relative to the scenario; its program is not this one", args: []string{file("enter.yaml")}, code: 1, err: `action "TakeKey" is not known`},
		"machine of a flag":  {why: "instead of what the scenario says", args: []string{file("flag.yaml"), "--machine", "datastore-migration"}, out: "in the end: Complete"},
		"unknown output":     {why: "which there are", args: []string{scenarios + "conflict.yaml", "-o", "xml"}, code: 2, err: "write text or json"},
		"crashes everywhere": {why: "an abort survives them", args: []string{scenarios + "abort-under-the-lock.yaml", "--crash"}, err: "crashes, 0 of them change the end", out: "in the end: gone, left in place []"},
	}, "simulate")
}

func TestSimulateAsJSON(t *testing.T) {
	got := perform(t, "simulate", scenarios+"retry-after-failure.yaml", "-o", "json")
	var results []simulate.Result
	if err := json.Unmarshal([]byte(got.out), &results); err != nil || got.code != 0 || len(results) != 1 {
		t.Fatalf("exit %d, %d results: %v", got.code, len(results), err)
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
		got := perform(t, "simulate", "my.yaml")
		return got.out + got.err, got.code
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
