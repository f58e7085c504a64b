package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// checker finds what is wrong with a scenario: by itself, and against the machine that it is about, so that a
// misspelled name is not a quiet answer that nobody ever asks for.
type checker struct {
	s *Scenario
	// m is nil while the machine is not known; actions maps each name that it calls to the program's, steps does so for the
	// names of steps, and guards are those of the program.
	m                      *fsm.Machine
	actions, steps, guards map[string]string
	diags                  diag.Diagnostics
}

// Check finds names that the machine or its program does not have, and outputs
// of other types than declared.
func (s *Scenario) Check(m *fsm.Machine) diag.Diagnostics {
	c := &checker{s: s, m: m, actions: calls(m.Program()), steps: stepCalls(m.Program()), guards: m.Bindings().Guards}
	c.file()
	if _, err := New(m, s.Object); err != nil {
		c.find("object", "PG000", "correct the object", "%s", err)
	}
	return c.diags.Sorted()
}

func (c *checker) find(path, code, fix, format string, args ...any) {
	c.diags = append(c.diags, c.s.Finding(path, code, fmt.Sprintf(format, args...), fix))
}

func (c *checker) file() {
	c.given("given", &c.s.Given)
	for i := range c.s.Script {
		c.step(fmt.Sprintf("script[%d]", i), &c.s.Script[i])
	}
}

func (c *checker) given(path string, g *Given) {
	for _, name := range slices.Sorted(maps.Keys(g.Actions)) {
		at := path + ".actions." + name
		called, _ := v1alpha1.CutKey(name)
		use := cmp.Or(c.actions[called], c.steps[called])
		if c.m != nil && use == "" {
			c.find(at, "PG005", "actions: "+names(c.actions)+"; steps: "+names(c.steps), "machine %s never calls an action %q, and has no step of this name", c.m.Name(), name)
			continue
		}
		for i, a := range g.Actions[name] {
			c.answer(fmt.Sprintf("%s[%d]", at, i), use, a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Guards)) {
		at := path + ".guards." + name
		if _, known := c.guards[name]; c.m != nil && !known {
			c.find(at, "PG005", "guards: "+names(c.guards), "guard %q is not known to this program", name)
		}
		for i, a := range g.Guards[name] {
			c.times(fmt.Sprintf("%s[%d]", at, i), a.Times)
		}
	}
}

// errorClasses are those that an error may have; a terminal one is written as such.
var errorClasses = []string{string(program.ClassConflict), string(program.ClassForbidden), string(program.ClassNotFound), string(program.ClassInvalid),
	string(program.ClassTimeout), string(program.ClassThrottled), string(program.ClassUnavailable)}

func (c *checker) answer(path, use string, a ActionAnswer) {
	c.times(path, a.Times)
	c.duration(path+".after", a.After)
	c.duration(path+".takes", a.Takes)
	if n := program.Count(a.Outputs != nil, a.Wait != "", a.Error != "", a.Terminal != ""); n > 1 {
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
	if c.m != nil {
		c.outputs(path+".outputs", use, a.Outputs)
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

func (c *checker) step(path string, s *Step) {
	n := program.Count(s.Advance != "", s.Until != nil, s.Expect != nil, s.Annotate != nil, s.Set != nil, s.Delete,
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
		c.crash(path+".crash", s.Crash)
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
	if n := program.Count(e.Phase != "", e.Step != "", e.Message != "", e.Reason != "", len(e.Conditions) > 0,
		e.Held != nil, e.InPlace != nil, len(e.State) > 0, len(e.Status) > 0, e.Path != nil, e.Gone != nil); n == 0 {
		c.find(path, "PG000", "write phase: NAME, held: [], gone: true, …", "nothing is expected")
	}
	if c.m != nil {
		c.names(path, e)
	}
}

func (c *checker) outputs(path, use string, outputs map[string]any) {
	spec := c.m.Bindings().Actions[use].Outputs
	read, err := plain(outputs)
	if err != nil {
		c.find(path, "PG000", "write plain values", "%s", err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		switch want, known := spec[name]; {
		case !known:
			c.find(path+"."+name, "PG005", "outputs: "+names(spec), "action %s has no output %q", use, name)
		case !want.Accepts(read[name]):
			c.find(path+"."+name, "PG005", "correct the value", "output %s of %s is %s, not of type %s", name, use, flow(read[name]), want)
		}
	}
}

// names checks what is expected of phases and effects.
func (c *checker) names(path string, e *Expect) {
	if e.Phase != "" {
		c.phase(path+".phase", e.Phase)
	}
	for i, p := range e.Path {
		c.phase(fmt.Sprintf("%s.path[%d]", path, i), p)
	}
	for _, name := range slices.Sorted(maps.Keys(e.State)) {
		if known := c.m.Program().State; known[name].Type == "" {
			c.find(path+".state."+name, "PG005", "state values: "+names(known), "state value %q is not declared", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Status)) {
		if !c.m.Shows(name) {
			c.find(path+".status."+name, "PG005", "fields: "+names(c.m.Definition().Spec.Status), "spec.status has no field %q", name)
		}
	}
	for field, effects := range map[string][]string{"held": e.Held, "inPlace": e.InPlace} {
		for i, name := range effects {
			c.effect(fmt.Sprintf("%s.%s[%d]", path, field, i), name)
		}
	}
}

func (c *checker) phase(path, name string) {
	if phases := c.m.Phases(); !slices.Contains(phases, name) {
		c.find(path, "PG001", "phases: "+strings.Join(phases, ", "), "phase %q does not exist", name)
	}
}

func (c *checker) effect(path, name string) {
	effect, _ := v1alpha1.CutKey(name)
	if known := c.m.Definition().EffectNames(); !slices.Contains(known, effect) {
		c.find(path, "PG005", "effects: "+strings.Join(known, ", "), "effect %q is not declared", name)
	}
}

// verbs are what a driver does besides acting.
var verbs = []string{string(fsm.Commit), string(WriteView), string(fsm.Requeue), string(fsm.AddFinalizer), string(fsm.RemoveFinalizer)}

func (c *checker) crash(path string, crash *Crash) {
	c.duration(path+".down", crash.Down)
	if program.Count(crash.Before != "", crash.After != "") != 1 {
		c.find(path, "PG000", "write crash: {after: ACTION}", "a crash is either before or after something")
	}
	at := crash.Before + crash.After
	if c.m != nil && cmp.Or(c.actions[at], c.steps[at]) == "" && !slices.Contains(verbs, at) {
		c.find(path, "PG005", "actions: "+names(c.actions)+"; steps: "+names(c.steps)+"; or "+strings.Join(verbs, ", "),
			"machine %s never calls an action %q, and has no step of this name", c.m.Name(), at)
	}
}

func names[T any](m map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
