package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/program"
)

// checker finds what is wrong with a scenario, by itself and against a machine.
type checker struct {
	s     *Scenario
	diags diag.Diagnostics
}

func (c *checker) find(path, code, fix, format string, args ...any) {
	c.diags = append(c.diags, c.s.Finding(path, code, fmt.Sprintf(format, args...), fix))
}

// file checks what can be known without a machine.
func (c *checker) file() {
	c.given("given", &c.s.Given)
	for i := range c.s.Script {
		c.step(fmt.Sprintf("script[%d]", i), &c.s.Script[i])
	}
}

func (c *checker) given(path string, g *Given) {
	for _, name := range slices.Sorted(maps.Keys(g.Actions)) {
		for i, a := range g.Actions[name] {
			c.answer(fmt.Sprintf("%s.actions.%s[%d]", path, name, i), a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Guards)) {
		for i, a := range g.Guards[name] {
			c.times(fmt.Sprintf("%s.guards.%s[%d]", path, name, i), a.Times)
		}
	}
}

// errorClasses are those that an error may have; a terminal one is written as such.
var errorClasses = []string{string(program.ClassConflict), string(program.ClassForbidden), string(program.ClassNotFound), string(program.ClassInvalid),
	string(program.ClassTimeout), string(program.ClassThrottled), string(program.ClassUnavailable)}

func (c *checker) answer(path string, a ActionAnswer) {
	c.times(path, a.Times)
	c.duration(path+".after", a.After)
	c.duration(path+".takes", a.Takes)
	if n := count(a.Outputs != nil, a.Wait != "", a.Error != "", a.Terminal != ""); n > 1 {
		c.find(path, "PG000", "split it into two answers", "an answer is at most one of outputs, wait, error and terminal")
	}
	if a.Error != "" && !slices.Contains(errorClasses, a.Error) {
		c.find(path+".error", "PG000", "classes: "+strings.Join(errorClasses, ", "), "unknown class of error %q", a.Error)
	}
	if a.Message != "" && a.Error == "" && a.Terminal == "" {
		c.find(path+".message", "PG000", "add error: CLASS or terminal: REASON, or write wait: TEXT", "a message without an error")
	}
	if a.After != "" && a.Wait == "" {
		c.find(path+".after", "PG000", "add wait: TEXT", "after is for an answer that waits")
	}
}

func (c *checker) times(path string, times int32) {
	if times < 0 {
		c.find(path+".times", "PG000", "leave it out, or write 1 or more", "times is %d", times)
	}
}

func (c *checker) duration(path, text string) {
	if text == "" {
		return
	}
	if d, err := time.ParseDuration(text); err != nil || d <= 0 {
		c.find(path, "PG000", "write a duration such as 30s, 5m or 24h", "%q is not a positive duration", text)
	}
}

func count(set ...bool) int {
	n := 0
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

func (c *checker) step(path string, s *Step) {
	n := count(s.Advance != "", s.Until != nil, s.Expect != nil, s.Annotate != nil, s.Set != nil, s.Delete,
		s.Wake != "", s.Given != nil, s.Crash != nil, s.Conflict)
	if n != 1 {
		c.find(path, "PG000", "begin a new item with a dash for each", "a step of a script does exactly one thing, this one %d", n)
	}
	c.duration(path+".advance", s.Advance)
	c.expect(path+".until", s.Until)
	c.expect(path+".expect", s.Expect)
	if s.Expect != nil && s.Expect.Within != "" {
		c.find(path+".expect.within", "PG000", "write until: instead", "expect is about now, and lets no time pass")
	}
	for _, field := range slices.Sorted(maps.Keys(s.Set)) {
		if err := writable(strings.Split(field, ".")); err != nil {
			c.find(path+".set", "PG000", "name a field such as spec.type", "%s", err)
		}
	}
	if s.Given != nil {
		c.given(path+".given", s.Given)
	}
	if s.Crash != nil {
		c.duration(path+".crash.down", s.Crash.Down)
		if count(s.Crash.Before != "", s.Crash.After != "") != 1 {
			c.find(path+".crash", "PG000", "write crash: {after: ACTION}", "a crash is either before or after something")
		}
	}
}

var conditionNames = []string{fsm.ConditionReady, fsm.ConditionReconciling, fsm.ConditionStalled}

func (c *checker) expect(path string, e *Expect) {
	if e == nil {
		return
	}
	c.duration(path+".within", e.Within)
	for _, name := range slices.Sorted(maps.Keys(e.Conditions)) {
		if !slices.Contains(conditionNames, name) {
			c.find(path+".conditions."+name, "PG000", "conditions: "+strings.Join(conditionNames, ", "), "unknown condition %q", name)
		}
	}
	if n := count(e.Phase != "", e.Step != "", e.Message != "", e.Reason != "", len(e.Conditions) > 0,
		e.Held != nil, e.InPlace != nil, e.Path != nil, e.Gone != nil); n == 0 {
		c.find(path, "PG000", "write phase: NAME, held: [], gone: true, …", "nothing is expected")
	}
}
