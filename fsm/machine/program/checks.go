package program

import (
	"fmt"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// mostInARow is how often in a row until may have to be true.
const mostInARow = 100

// checkInARow refuses a count that would mean nothing.
func (c *compiler) checkInARow(s *Step, p *Phase) {
	path := s.Path + ".consecutive"
	switch {
	case s.Consecutive == 0:
	case s.Consecutive < 2 || s.Consecutive > mostInARow:
		c.find(path, "PG000", fmt.Sprintf("%d is none of 2 to %d", s.Consecutive, mostInARow), "write how often in a row until must be true, or remove it: once is what until means")
	case s.Until == "":
		c.find(path, "PG000", "consecutive without until counts nothing", "add until: with what must be true so often in a row")
	case s.Loop != nil:
		c.find(path, "PG000", "in a forEach nothing is counted in a row", "remove it, and check the items together in a step of its own after this one")
	case p.Kind == v1alpha1.PhaseSteady:
		c.find(path, "PG000", "each look at a steady phase would begin to count anew, and the object would not be Ready meanwhile", "remove it, or count in a phase before this one")
	}
}

// checkFailWhen refuses a condition on what nothing answers.
func (c *compiler) checkFailWhen(s *Step) {
	if s.FailWhen != "" && s.Action == "" {
		c.find(s.Path+".failWhen", "PG000", "failWhen is about what an action has answered", "write it in a step with action:, or use an exit with when:")
	}
}

// timeLimit is how long a step may take.
func (c *compiler) timeLimit(s *Step, p *Phase) {
	path := s.Path + ".timeout"
	s.TimeLimit = c.duration(path, s.Timeout)
	switch {
	case s.TimeLimit == 0:
	case s.Wait != "":
		c.find(path, "PG000", "a wait ends by itself", "remove the timeout")
	case p.Timeout != nil && p.Timeout.To != "" && p.TimeoutAfter > 0 && s.TimeLimit >= p.TimeoutAfter:
		c.find(path, "PG000", fmt.Sprintf("the step may take %s, and its phase ends after %s: it never fails by this", s.Timeout, p.Timeout.After), "make it shorter than timeout.after of the phase, or remove it")
	}
}
