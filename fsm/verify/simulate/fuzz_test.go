package simulate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// FuzzSimulate looks for a scenario that panics, that goes on for ever, or that
// makes the engine do what it must never do, with the two machines of the tests.
func FuzzSimulate(f *testing.F) {
	machines := map[string]*fsm.Machine{
		"door":      fuzzed(f, "../../fsmtest/testdata/door.yaml", doorBindings),
		"mcpserver": fuzzed(f, "../../../phases/mcpserver.yaml", mcpserverBindings(f)),
	}
	for _, pattern := range []string{"../../fsmtest/testdata/*/*.yaml", "testdata/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seed matches %s: %v", pattern, err)
		}
		for _, file := range files {
			f.Add(readFuzz(f, file))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, diags := Load("fuzz.yaml", data)
		if (s == nil) == (len(diags) == 0) {
			t.Fatalf("a scenario or findings, not both and not neither: %v", diags)
		}
		if s == nil {
			return
		}
		m := machines[strings.TrimSuffix(filepath.Base(s.Machine), ".yaml")]
		if m != nil && len(s.Check(m)) == 0 {
			playBounded(t, s, m)
		}
	})
}

func playBounded(t *testing.T, s *Scenario, m *fsm.Machine) {
	p := &player{s: s, w: s.world(m)}
	p.w.Tell = p.r.tell
	p.w.limit = 300 // a fuzzer does better with many short runs
	began := time.Now()
	p.play()
	resumed := s.Object["status"] != nil // written by hand, it may hold anything
	for _, failure := range p.failures {
		if strings.Contains(failure.Text, "defect: ") && !resumed {
			t.Errorf("%s", failure)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d looks took %s", p.w.looks, took)
	}
	size := len(p.w.Describe())
	for _, b := range p.r.merged() {
		for _, l := range b.Lines {
			size += len(l.Text)
		}
	}
	if size > maxLines*maxText {
		t.Errorf("a transcript of %d bytes", size)
	}
}

var doorBindings = program.Bindings{Actions: map[string]program.ActionSpec{
	"TakeKey": {}, "ReturnKey": {}, "TryHandle": {Outputs: map[string]expr.Type{"turned": expr.TypeBool}},
}}

func mcpserverBindings(f *testing.F) program.Bindings {
	f.Helper()
	b, diags := program.LoadBindings("mcpserver.bindings.yaml", readFuzz(f, "../../../docs/machines/mcpserver.bindings.yaml"))
	if len(diags) > 0 {
		f.Fatal(diags.Err())
	}
	return b
}

func fuzzed(f *testing.F, file string, b program.Bindings) *fsm.Machine {
	f.Helper()
	def, diags := program.Load(file, readFuzz(f, file))
	if def == nil {
		f.Fatal(diags.Err())
	}
	m, diags := fsm.Bind(def, b)
	if m == nil {
		f.Fatal(diags.Err())
	}
	return m
}

func readFuzz(f *testing.F, file string) []byte {
	f.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	return data
}
