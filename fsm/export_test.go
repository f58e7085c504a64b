package fsm

import (
	"os"
	"slices"
	"testing"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Altered is the machine with other events in looplab/fsm, and with callbacks beside those of the engine; nil leaves the events as they are.
func (m *Machine) Altered(events func(phase string, all []looplab.EventDesc) []looplab.EventDesc, callbacks looplab.Callbacks) *Machine {
	prog := *m.prog
	prog.Events = map[string]*program.PhaseEvents{}
	for name, s := range m.prog.Events {
		other := *s
		if events != nil {
			other.Events = events(name, slices.Clone(s.Events))
		}
		prog.Events[name] = &other
	}
	return m.With(&prog, callbacks)
}

// What the internal tests share with those that drive machines in fsm/verify/simulate, which
// imports this package.
const (
	Header   = header
	OnePhase = onePhase
	Rest     = rest
	ToDone   = toDone
)

// ExampleFiles build machine files around some lines.
var (
	Spec, Phases, One = spec, phases, one
	WithSpec          = withSpec
	WithBindings      = withBindings
	TestBindings      = testBindings
)

// ReadFile fails the test when there is no such file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Difference is the field in which two values differ, and what it is in each.
func Difference(path string, was, now any) string {
	at, a, b := difference(path, was, now)
	return at + ": " + plain(a) + ", " + plain(b)
}
