// Package fsmtest tests machines: it loads them, plays scenarios against a golden
// transcript, and crashes them everywhere. It needs no cluster, and knows nothing
// of what actions do.
//
// A test of a machine of yours is three lines, beside a directory of scenarios:
//
//	func TestDoor(t *testing.T) {
//		door := fsmtest.Machine(t, "door.yaml", bindings)
//		fsmtest.Scenarios(t, door, "testdata/*.yaml")
//	}
//
// The clock is that of a simulate.Fake: it moves only when the machine waits. For a
// test that needs more than a scenario says, such as actions of your own that run
// for real, drive a World.
//
// The package defines the flag -update.
package fsmtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

var update = flag.Bool("update", false, "rewrite golden files with what happens now")

// Machine loads and binds a machine file; it fails the test with the findings, and
// logs warnings.
func Machine(t testing.TB, file string, b program.Bindings) *fsm.Machine {
	t.Helper()
	def, diags := program.Load(file, read(t, file))
	if def == nil {
		t.Fatal(diags.Err())
	}
	m, diags := fsm.Bind(def, b)
	if m == nil {
		t.Fatal(diags.Err())
	}
	for _, d := range diags {
		t.Log(d)
	}
	return m
}

// World is a simulate.Fake with an object that was just created. It fails the test,
// at its end, with what the machine or the engine did wrong.
func World(t testing.TB, m *fsm.Machine, object map[string]any) *simulate.Fake {
	t.Helper()
	w, err := simulate.New(m, object)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, d := range w.Defects {
			t.Error(d)
		}
	})
	return w
}

// Scenarios runs each scenario file of a pattern as a subtest: it plays it,
// compares the transcript with the golden file beside it, and crashes it
// everywhere.
func Scenarios(t *testing.T, m *fsm.Machine, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario matches %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			Play(t, m, file)
			Crash(t, m, file)
		})
	}
}

// Play plays a scenario file, fails the test where an expectation does not hold,
// and compares the transcript with the golden file beside it: door.txt for
// door.yaml.
func Play(t testing.TB, m *fsm.Machine, file string) {
	t.Helper()
	s := load(t, file)
	result, diags := s.Play(m)
	if result == nil {
		t.Fatal(diags.Err())
	}
	for _, f := range result.Failures {
		t.Error(f)
	}
	var text bytes.Buffer
	result.Write(&text)
	Golden(t, strings.TrimSuffix(file, ".yaml")+".txt", text.String())
}

// Crash plays a scenario file once undisturbed, and once more for each place where
// the driver can be killed: before and after each command. Every run must come to
// the same end, with the same things held and in place.
func Crash(t testing.TB, m *fsm.Machine, file string) {
	t.Helper()
	s := load(t, file)
	if diags := s.Check(m); len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	_, failures := s.Crashed(m, nil)
	for _, f := range failures {
		t.Error(f)
	}
}

// Golden compares a text with a file; go test -update writes the file.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: go test -update writes it", err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got); go test -update rewrites it:\n%s", file, d)
	}
}

func load(t testing.TB, file string) *simulate.Scenario {
	t.Helper()
	s, diags := simulate.Load(file, read(t, file))
	if s == nil {
		t.Fatal(diags.Err())
	}
	return s
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
