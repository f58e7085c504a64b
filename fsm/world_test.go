package fsm_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

const (
	header   = fsm.Header
	onePhase = fsm.OnePhase
	rest     = fsm.Rest
	toDone   = fsm.ToDone
)

var (
	spec, phases, one = fsm.Spec, fsm.Phases, fsm.One
	testBindings      = fsm.TestBindings
	readFile          = fsm.ReadFile
)

// world is a simulated one that fails its test on a defect.
type world struct {
	*simulate.Fake
	t testing.TB
	// conflict is in the v3 datastore, where it is seen only once v3 is uncovered.
	conflict bool
}

func newWorld(t testing.TB, file string, data []byte, b program.Bindings) *world {
	t.Helper()
	return worldOf(t, machineOf(t, file, data, b), nil)
}

func machineOf(t testing.TB, file string, data []byte, b program.Bindings) *fsm.Machine {
	t.Helper()
	def, diags := program.Load(file, data)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	m, diags := fsm.Bind(def, b)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	return m
}

func worldOf(t testing.TB, m *fsm.Machine, spec map[string]any) *world {
	t.Helper()
	if spec == nil {
		spec = map[string]any{}
	}
	simulated := fsmtest.World(t, m, map[string]any{"metadata": map[string]any{"name": "x"}, "spec": spec})
	w := &world{Fake: simulated, t: t}
	w.Respond = w.seesConflict
	return w
}

func (w *world) seesConflict(action string, _ fsm.Decision) (simulate.Answer, bool) {
	sees := action == "CopyResources" || action == "DetectConflicts"
	for _, name := range w.InPlace() {
		if w.conflict && sees && name == "apiService" {
			return answer(map[string]any{"conflicts": 1}), true
		}
	}
	return simulate.Answer{}, false
}

func (w *world) settle() {
	w.t.Helper()
	if err := w.RunUntilIdle(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) advance(d time.Duration) {
	w.t.Helper()
	if err := w.Run(d, nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) set(path string, value any) {
	w.t.Helper()
	if err := w.Set(path, value); err != nil {
		w.t.Fatal(err)
	}
}

func answer(outputs map[string]any) simulate.Answer {
	return simulate.Answer{Result: fsm.Result{Outputs: outputs}}
}

func failing(err error, class program.Class) simulate.Answer {
	return simulate.Answer{Result: fsm.Result{Err: err, Class: class}}
}

// shipped is the machine of phases/datastore-migration.yaml with the names that
// its program has.
func shipped(t testing.TB) *world {
	t.Helper()
	shippedOnce.Do(func() {
		file := readFile(t, "../phases/datastore-migration.yaml")
		shippedMachine = machineOf(t, "datastore-migration.yaml", file, shippedBindings(t))
	})
	if shippedMachine == nil {
		t.Fatal("the shipped machine was refused")
	}
	return worldOf(t, shippedMachine, map[string]any{"type": "APIServerToCRDs"})
}

// The shipped machine is loaded once: it is immutable, and crashed often.
var (
	shippedOnce    sync.Once
	shippedMachine *fsm.Machine
)

// shippedBindings are those that `make generate` writes from the program.
func shippedBindings(t testing.TB) program.Bindings {
	t.Helper()
	const file = "../docs/machines/datastore-migration.bindings.yaml"
	b, diags := program.LoadBindings(file, readFile(t, file))
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	return b
}

// fire carries out the step that a run asks for, whose action comes to the outcome.
func fire(t testing.TB, run *fsm.Run, o fsm.Result) {
	t.Helper()
	if err := run.Apply(t.Context(), func(context.Context, fsm.Decision) (fsm.Result, error) { return o, nil }); err != nil {
		t.Fatal(err)
	}
}
