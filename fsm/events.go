package fsm

import (
	"maps"
	"slices"

	looplab "github.com/looplab/fsm"

	"github.com/phasegate/phasegate/fsm/program"
)

// Events are what looplab/fsm is made of in a phase: the steps, which lead from it to itself, and its edges. Empty: there is no such phase.
func (m *Machine) Events(phase string) []looplab.EventDesc {
	if s := m.prog.Events[phase]; s != nil {
		return slices.Clone(s.Events)
	}
	return nil
}

// Altered is the machine with other events in looplab/fsm, and with callbacks beside those of the engine. Nothing else
// is changed: a test sees by it that the events decide, and nobody passes them by. nil leaves the events as they are.
func (m *Machine) Altered(events func(phase string, all []looplab.EventDesc) []looplab.EventDesc, callbacks looplab.Callbacks) *Machine {
	altered, prog := *m, *m.prog
	prog.Events, altered.callbacks = map[string]*program.PhaseEvents{}, maps.Clone(m.callbacks)
	for name, s := range m.prog.Events {
		other := *s
		if events != nil {
			other.Events = events(name, slices.Clone(s.Events))
		}
		prog.Events[name] = &other
	}
	maps.Copy(altered.callbacks, callbacks)
	altered.prog = &prog
	return &altered
}
