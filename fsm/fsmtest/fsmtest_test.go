package fsmtest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// bindings are what the program of the door has.
var bindings = program.Bindings{Actions: map[string]program.ActionSpec{
	"TakeKey":   {Doc: "Takes the key from the desk."},
	"ReturnKey": {Doc: "Brings the key back."},
	"TryHandle": {Doc: "Turns the handle.", Outputs: map[string]expr.Type{"turned": expr.TypeBool}},
}}

func TestDoor(t *testing.T) {
	door := fsmtest.Machine(t, "testdata/door.yaml", bindings)
	fsmtest.Scenarios(t, door, "testdata/door/*.yaml")
}

// heard is a test that keeps what it was told.
type heard struct {
	testing.TB
	told    []string
	cleanup []func()
}

type fatal struct{}

func (h *heard) Helper()          {}
func (h *heard) Log(...any)       {}
func (h *heard) Cleanup(f func()) { h.cleanup = append(h.cleanup, f) }
func (h *heard) Error(args ...any) {
	h.told = append(h.told, fmt.Sprint(args...))
}
func (h *heard) Errorf(format string, args ...any) { h.Error(fmt.Sprintf(format, args...)) }
func (h *heard) Fatal(args ...any)                 { h.Error(args...); panic(fatal{}) }
func (h *heard) Fatalf(format string, args ...any) { h.Fatal(fmt.Sprintf(format, args...)) }

// hear runs a check to its end and tells what it found.
func hear(t *testing.T, check func(testing.TB)) (told string) {
	h := &heard{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(fatal{}) {
			panic(r)
		}
		for _, f := range h.cleanup {
			f()
		}
		told = strings.Join(h.told, "\n")
	}()
	check(h)
	return ""
}

func TestFailuresAreTold(t *testing.T) {
	door := fsmtest.Machine(t, "testdata/door.yaml", bindings)
	for name, c := range map[string]struct {
		why   string
		check func(testing.TB)
		want  []string
	}{
		"no file": {"a typo in a path", func(t testing.TB) { fsmtest.Machine(t, "testdata/none.yaml", bindings) }, []string{"testdata/none.yaml: no such file"}},
		"machine that cannot be bound": {"all findings at once", func(t testing.TB) {
			fsmtest.Machine(t, "testdata/door.yaml", program.Bindings{Actions: map[string]program.ActionSpec{"TryHandle": bindings.Actions["TryHandle"]}})
		}, []string{`action "TakeKey" is not known`, `action "ReturnKey" is not known`}},
		"scenario with a typo":        {"found before it is played", func(t testing.TB) { fsmtest.Play(t, door, "testdata/bad/typo.yaml") }, []string{`typo.yaml:6:16: PG005: machine door never calls an action "TryHandel"`}},
		"expectation that fails":      {"what was expected, and what was", func(t testing.TB) { fsmtest.Play(t, door, "testdata/bad/hasty.yaml") }, []string{"hasty.yaml:5:10: expected within 1s: phase Open, got Closed"}},
		"end that depends on a crash": {"what takes 40s does not fit twice into a deadline of 1m", func(t testing.TB) { fsmtest.Crash(t, door, "testdata/bad/fragile.yaml") }, []string{"a crash after RunAction TryHandle in phase Closed changes the end"}},
		"golden that does not exist":  {"how to make it", func(t testing.TB) { fsmtest.Golden(t, "testdata/none.txt", "") }, []string{"go test -update writes it"}},
		"golden that is not the same": {"where", func(t testing.TB) { fsmtest.Golden(t, "testdata/door/opens.txt", "x") }, []string{"-update rewrites it"}},
		"ledger that somebody emptied": {"what is in place must be in the ledger", func(t testing.TB) {
			w := fsmtest.World(t, door, nil)
			if err := w.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
			w.Stored.Held = nil
			w.Stored.StepIndex = 1
			if err := w.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
		}, []string{"key is in place, but not in the stored ledger"}},
	} {
		t.Run(name, func(t *testing.T) {
			told := hear(t, c.check)
			for _, want := range c.want {
				if !strings.Contains(told, want) {
					t.Errorf("%s: got %q, want %q in it", c.why, told, want)
				}
			}
		})
	}
}

func TestEachScenarioHasAGolden(t *testing.T) {
	scenarios, _ := filepath.Glob("testdata/door/*.yaml")
	goldens, _ := filepath.Glob("testdata/door/*.txt")
	for i := range scenarios {
		scenarios[i] = strings.TrimSuffix(scenarios[i], ".yaml") + ".txt"
	}
	if d := cmp.Diff(scenarios, goldens); d != "" {
		t.Errorf("a golden of no scenario is never compared (-scenarios +goldens):\n%s", d)
	}
}
