package fsm

import (
	"cmp"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Pace is how often a phase or a step looks again, and what it does after an
// error, with every default filled in.
type Pace struct {
	// Poll is 0 where nothing is looked at again by itself.
	Poll time.Duration
	program.Backoff
}

// Pace answers the paces of a phase and of its steps in order; nil steps of a
// phase that the machine does not have.
func (m *Machine) Pace(name string) (Pace, []Pace) {
	p := m.prog.Phases[name]
	if p == nil {
		return Pace{}, nil
	}
	steps := make([]Pace, len(p.StepList))
	for i, s := range p.StepList {
		poll := s.PollEvery
		if s.WaitFor == 0 {
			poll = cmp.Or(poll, defaultPoll) // also without until the action may say that it is not done
		}
		steps[i] = Pace{poll, s.Backoff}
	}
	return Pace{p.PollEvery, p.Backoff}, steps
}
