package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
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
	s.TimeLimit, s.LimitExpr = c.bounded(path, s.Timeout, s.Path+".max", s.Max)
	c.unbounded(s.Path+".max", s.Max, s.Wait, s.Timeout)
	switch {
	case s.Timeout == "":
	case s.Wait != "":
		c.find(path, "PG000", "a wait ends by itself", "remove the timeout")
	case p.Timeout != nil && p.Timeout.To != "" && p.TimeoutExpr == nil && s.LimitExpr == nil && p.TimeoutAfter > 0 && s.TimeLimit >= p.TimeoutAfter:
		c.find(path, "PG000", fmt.Sprintf("the step may take %s, and its phase ends after %s: it never fails by this", s.Timeout, p.Timeout.After), "make it shorter than timeout.after of the phase, or remove it")
	}
}

// bounded is a duration, or an expression that comes to one, with the longest that it may come to. That is written out, so that
// no object chooses how long its machine waits.
func (c *compiler) bounded(path, text, maxPath, most string) (time.Duration, *expr.Expr) {
	if !isExpr(text) {
		return c.duration(path, text), nil
	}
	e, is := c.template(path, text).Alone()
	switch {
	case !is:
		c.find(path, "PG000", fmt.Sprintf("%q is a text, not a duration", text), "write one expression and nothing around it: '${duration(self.spec.pause)}'")
	case e != nil && !expr.TypeDuration.Fits(e.Out):
		c.find(path, "PG006", fmt.Sprintf("%s is %s, not a duration", e.Text, e.Out), "write duration(…)")
	case e != nil && e.ReadsClock(c.prog.Variables):
		c.find(path, "PG000", "it reads the clock, and would be another duration at each look", "wait for a time with an exit: when: 'now >= timestamp(self.spec.at)', and poll:")
	}
	if most == "" {
		c.find(path, "PG000", "a duration from an expression has no bound", "add max: 24h, the longest that it may come to")
	}
	return c.duration(maxPath, most), e
}

func isExpr(duration string) bool { return strings.Contains(duration, "${") }

// unbounded refuses a bound of what is written out.
func (c *compiler) unbounded(path, most string, of ...string) {
	if most != "" && !slices.ContainsFunc(of, isExpr) {
		c.find(path, "PG000", "max bounds a duration from an expression, and there is none", "remove it")
	}
}

// TimeoutText says for people when a timeout passes.
func TimeoutText(t *v1alpha1.Timeout) string {
	if t.Max != "" {
		return t.After + ", at most " + t.Max
	}
	return t.After
}
