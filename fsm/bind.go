package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Machine is a definition bound to actions and guards. It is immutable and
// safe for concurrent use by any number of runs.
type Machine struct {
	def      *Definition
	prog     *program
	bindings Bindings
}

// Bind compiles a definition and checks it as a whole: its expressions, the
// graph of its phases, and that every action, guard, parameter and result that
// it names exists. The machine is nil when a finding is an error. It may be called
// any number of times.
func Bind(def *Definition, b Bindings) (*Machine, Diagnostics) {
	c := &compiler{def: def, b: b}
	c.run()
	c.graph()
	c.bind()
	diags := c.diags.sorted()
	if diags.Err() != nil {
		return nil, diags
	}
	return &Machine{def: def, prog: c.prog, bindings: b}, diags
}

// bind checks the names that a file may use only in some places: results of the
// steps before, guards and actions of the program.
func (c *compiler) bind() {
	for i, a := range c.def.Spec.Actions {
		c.params(fmt.Sprintf("spec.actions[%d]", i), c.prog.actions[a.Name], nil)
	}
	for i, e := range c.def.Spec.Effects {
		c.call(fmt.Sprintf("spec.effects[%d].acquire", i), e.Acquire)
		c.call(fmt.Sprintf("spec.effects[%d].release", i), e.Release)
	}
	for i, f := range c.def.Spec.Facts {
		// Which results there are depends on where the fact is read.
		c.readsGuards(fmt.Sprintf("spec.facts[%d].expr", i), c.prog.facts[f.Name])
	}
	for i, q := range c.def.Spec.Requests {
		c.bindRequest(fmt.Sprintf("spec.requests[%d]", i), c.prog.requests[q.Name])
	}
	for _, p := range c.prog.order {
		c.bindPhase(p)
	}
}

// call checks that an action exists, and that it needs no parameter that only
// a step could give.
func (c *compiler) call(path, name string) {
	a := c.action(name)
	if a.use == "" {
		c.unknownAction(path, name)
		return
	}
	c.required(path, a)
}

func (c *compiler) unknownAction(path, name string) {
	known := slices.Sorted(maps.Keys(c.b.Actions))
	c.find(path, "PG005", fmt.Sprintf("action %q is not known to this program", name), "known actions: "+strings.Join(known, ", "))
}

func (c *compiler) required(path string, a *action) {
	for _, name := range slices.Sorted(maps.Keys(a.spec.Params)) {
		if a.spec.Params[name].Required && a.with[name] == nil {
			c.find(path, "PG005", fmt.Sprintf("action %s needs parameter %q", a.use, name), "add it to with: "+a.spec.Params[name].Doc)
		}
	}
}

// action finds an action of the program, or the one behind a name of the file.
func (c *compiler) action(name string) *action {
	if a := c.prog.actions[name]; a != nil {
		return a
	}
	if spec, ok := c.b.Actions[name]; ok {
		return &action{use: name, spec: spec}
	}
	return &action{}
}

func (c *compiler) bindRequest(path string, q *request) {
	c.reads(path+".token", q.token, nil)
	c.reads(path+".valid", q.valid, nil)
	for name, e := range q.params {
		c.reads(path+".params."+name, e, nil)
	}
}

func (c *compiler) bindPhase(p *phase) {
	results := map[string]Type{}
	for i, r := range p.require {
		path := fmt.Sprintf("%s.require[%d]", p.path, i)
		c.reads(path+".when", r.when, results)
		c.readsAll(path+".message", r.message, results)
	}
	for i := range p.steps {
		c.bindStep(&p.steps[i], results)
	}
	for i, x := range p.next {
		path := fmt.Sprintf("%s.next[%d]", p.path, i)
		c.reads(path+".when", x.when, results)
		c.readsAll(path+".message", x.message, results)
	}
	c.readsAll(p.path+".message", p.message, results)
}

// bindStep checks a step and adds its outputs to the results.
func (c *compiler) bindStep(s *step, results map[string]Type) {
	c.reads(s.path+".if", s.cond, results)
	switch {
	case s.Action == "":
	case s.action.use == "":
		c.unknownAction(s.path+".action", s.Action)
	default:
		c.params(s.path, s.action, results)
		c.required(s.path, s.action)
		maps.Copy(results, s.action.spec.Outputs)
	}
	c.reads(s.path+".until", s.until, results)
	c.readsAll(s.path+".message", s.message, results)
}

// params checks the parameters that stand at a path; those of a named action are
// checked where they stand.
func (c *compiler) params(path string, a *action, results map[string]Type) {
	for _, name := range slices.Sorted(maps.Keys(a.with)) {
		v := a.with[name]
		if v.path != path+".with."+name {
			continue
		}
		for _, e := range v.exprs() {
			c.reads(v.path, e, results)
		}
		want, ok := a.spec.Params[name]
		switch {
		case !ok && a.use != "":
			c.find(v.path, "PG005", fmt.Sprintf("action %s has no parameter %q", a.use, name),
				"parameters: "+strings.Join(slices.Sorted(maps.Keys(a.spec.Params)), ", "))
		case ok && !v.varies() && !want.Type.Accepts(v.plainly()):
			c.find(v.path, "PG005", fmt.Sprintf("parameter %s of %s is %v, not of type %s", name, a.use, v.plainly(), want.Type), "correct the value")
		}
	}
}

func (c *compiler) readsAll(path string, t *template, results map[string]Type) {
	if t == nil {
		return
	}
	for _, p := range t.parts {
		c.reads(path, p.expr, results)
	}
}

// reads checks the names an expression reads. Nil results: none are known there.
func (c *compiler) reads(path string, e *expr, results map[string]Type) {
	c.readsGuards(path, e)
	for _, r := range e.reads(varResult) {
		if _, ok := results[r]; !ok {
			c.find(path, "PG006", fmt.Sprintf("result.%s is an output of no step before this place", r),
				"outputs here: "+strings.Join(slices.Sorted(maps.Keys(results)), ", "))
		}
	}
}

func (c *compiler) readsGuards(path string, e *expr) {
	for _, g := range e.reads(varGuards) {
		if _, ok := c.b.Guards[g]; !ok {
			c.find(path, "PG005", fmt.Sprintf("guard %q is not known to this program", g),
				"known guards: "+strings.Join(slices.Sorted(maps.Keys(c.b.Guards)), ", "))
		}
	}
}
