package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/diag"
	"github.com/phasegate/phasegate/fsm/program"
)

// compat checks a scenario compat the machine it is about, so that a misspelled
// name is not a quiet answer that nobody ever asks for.
type compat struct {
	checker
	def *program.Definition
	b   program.Bindings
	// actions maps each name that the machine calls to the program's.
	actions map[string]string
	phases  []string
}

// Check finds names that the machine or its program does not have, and outputs
// of other types than declared.
func (s *Scenario) Check(m *fsm.Machine) diag.Diagnostics {
	c := &compat{checker: checker{s: s}, def: m.Definition(), b: m.Bindings(), actions: calls(m.Program()), phases: m.Phases()}
	c.given("given", &s.Given)
	for i, step := range s.Script {
		path := fmt.Sprintf("script[%d]", i)
		c.expect(path+".until", step.Until)
		c.expect(path+".expect", step.Expect)
		if step.Given != nil {
			c.given(path+".given", step.Given)
		}
		if step.Crash != nil {
			c.crash(path+".crash", step.Crash)
		}
	}
	if _, err := New(m, s.Object); err != nil {
		c.find("object", "PG000", "correct the object", "%s", err)
	}
	return c.diags.Sorted()
}

// calls are the actions that a machine calls, by the name that it calls them.
func calls(prog *program.Program) map[string]string {
	all := map[string]string{}
	add := func(name, use string) {
		if name != "" {
			all[name], all[use] = use, use
		}
	}
	for _, e := range prog.Effects {
		add(e.Acquire, e.BoundAcquire.Use)
		add(e.Release, e.BoundRelease.Use)
	}
	for _, p := range prog.Order {
		for _, s := range p.StepList {
			add(s.Action, s.Bound.Use)
		}
	}
	return all
}

func (c *compat) given(path string, g *Given) {
	for _, name := range slices.Sorted(maps.Keys(g.Actions)) {
		at := path + ".actions." + name
		use, called := c.actions[name]
		if !called {
			c.find(at, "PG005", "actions: "+names(c.actions), "machine %s never calls an action %q", c.def.Metadata.Name, name)
			continue
		}
		for i, a := range g.Actions[name] {
			c.outputs(fmt.Sprintf("%s[%d].outputs", at, i), use, a.Outputs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.Guards)) {
		if _, known := c.b.Guards[name]; !known {
			c.find(path+".guards."+name, "PG005", "guards: "+names(c.b.Guards), "guard %q is not known to this program", name)
		}
	}
}

func (c *compat) outputs(path, use string, outputs map[string]any) {
	spec := c.b.Actions[use].Outputs
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

func (c *compat) expect(path string, e *Expect) {
	if e == nil {
		return
	}
	if e.Phase != "" {
		c.phase(path+".phase", e.Phase)
	}
	for i, p := range e.Path {
		c.phase(fmt.Sprintf("%s.path[%d]", path, i), p)
	}
	for field, effects := range map[string][]string{"held": e.Held, "inPlace": e.InPlace} {
		for i, name := range effects {
			c.effect(fmt.Sprintf("%s.%s[%d]", path, field, i), name)
		}
	}
}

func (c *compat) phase(path, name string) {
	if !slices.Contains(c.phases, name) {
		c.find(path, "PG001", "phases: "+strings.Join(c.phases, ", "), "phase %q does not exist", name)
	}
}

func (c *compat) effect(path, name string) {
	var known []string
	for _, e := range c.def.Spec.Effects {
		known = append(known, e.Name)
	}
	if !slices.Contains(known, name) {
		c.find(path, "PG005", "effects: "+strings.Join(known, ", "), "effect %q is not declared", name)
	}
}

// verbs are what a driver does besides acting.
var verbs = []string{string(fsm.Commit), string(WriteView), string(fsm.Requeue), string(fsm.AddFinalizer), string(fsm.RemoveFinalizer)}

func (c *compat) crash(path string, crash *Crash) {
	at := crash.Before + crash.After
	if _, called := c.actions[at]; !called && !slices.Contains(verbs, at) {
		c.find(path, "PG005", "actions: "+names(c.actions)+"; or "+strings.Join(verbs, ", "),
			"machine %s never calls an action %q", c.def.Metadata.Name, at)
	}
}

func names[T any](m map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
