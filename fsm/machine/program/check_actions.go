package program

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Compile makes the program of a file, with what is wrong in the file itself: its expressions, the graph of its
// phases, and what it asks of the bindings. The program is nil where nothing could be compiled.
func Compile(def *Definition, b Bindings) (*Program, diag.Diagnostics) {
	prog, diags := compile(def, b)
	if b.Self != nil || b.Described == nil {
		return prog, diags
	}
	b.Self = b.Described
	_, checked := compile(def, b)
	for _, d := range checked {
		if !slices.ContainsFunc(diags, func(found diag.Diagnostic) bool { return found.Pos == d.Pos && found.Code == d.Code }) {
			diags = append(diags, d)
		}
	}
	return prog, diags
}

func compile(def *Definition, b Bindings) (*Program, diag.Diagnostics) {
	c := &compiler{findings: &findings{def: def, declared: map[string]string{}}, b: b}
	var err error
	if c.scope, err = expr.NewScope(b.Self, slices.Collect(maps.Keys(b.Guards))); err != nil {
		c.find("spec.for", "PG000", "the schema of the objects cannot be used: "+err.Error(), "correct the CRD")
		return nil, c.diags
	}
	c.run()
	(&graph{c.findings, c.prog, b.For}).check()
	c.bind()
	c.roles()
	return c.prog, c.diags
}

func (c *compiler) bind() {
	for i, a := range c.def.Spec.Actions {
		c.params(fmt.Sprintf("spec.actions[%d]", i), c.prog.actions[a.Name])
	}
	for i, e := range c.def.Spec.Effects {
		c.call(fmt.Sprintf("spec.effects[%d].acquire", i), e.Acquire)
		if e.Release != "" {
			c.call(fmt.Sprintf("spec.effects[%d].release", i), e.Release)
		} else {
			c.checkInverse(fmt.Sprintf("spec.effects[%d].acquire", i), c.prog.Effects[e.Name])
		}
	}
	for _, p := range c.prog.Order {
		for _, s := range p.StepList {
			c.bindStep(s)
		}
	}
}

func (c *compiler) bindStep(s Step) {
	switch {
	case s.Action == "":
	case s.Bound.Use == "":
		c.unknownAction(s.Path+".action", s.Action)
	default:
		c.params(s.Path, s.Bound)
		c.required(s.Path, s.Bound)
		c.together(s.Bound, s.Path)
		c.checkOverlay(&s)
	}
}

// call checks that an action exists, and that it needs no parameter that only
// a step could give.
func (c *compiler) call(path, name string) {
	a := c.action(name)
	if a.Use == "" {
		c.unknownAction(path, name)
		return
	}
	c.required(path, a)
	c.together(a, path)
}

// checkInverse finds why an effect without a release has none.
func (c *compiler) checkInverse(path string, e Effect) {
	const add = "add release: ACTION"
	release, opaque := c.inverse(e.BoundAcquire)
	switch {
	case e.BoundAcquire.Use == "": // finding enough
	case e.BoundAcquire.Spec.Inverse == nil:
		c.find(path, "PG005", fmt.Sprintf("effect %s has no release, and action %s has no inverse", e.Name, e.BoundAcquire.Use), add)
	case release.Use == "":
		c.find(path, "PG005", fmt.Sprintf("effect %s has no release, and action %s has an inverse with %s: true only", e.Name, e.BoundAcquire.Use, e.BoundAcquire.Spec.Inverse.If),
			add+", or write "+e.BoundAcquire.Spec.Inverse.If+": true in spec.actions")
	case opaque != nil:
		c.find(opaque.Path, "PG005", fmt.Sprintf("the release of %s cannot be made of an expression: which object that names is known at the call only", e.Name), add+" to the effect, or write the fields of the object out")
	default:
		for _, name := range slices.Sorted(maps.Keys(release.With)) {
			c.parameter(fmt.Sprintf("parameter %s of %s, which releases %s,", name, release.Use, e.Name), release.Spec.Params[name], release.With[name])
		}
		c.required(path, release)
	}
}

// checkOverlay: an effect is released by what the named action says, and a step that says otherwise would leave something behind.
func (c *compiler) checkOverlay(s *Step) {
	e, takes := c.prog.Effects[s.Acquires]
	if inv := s.Bound.Spec.Inverse; !takes && inv != nil && inv.If != "" && s.Bound.With[inv.If] != nil && s.Bound.With[inv.If].Written() == true {
		c.find(s.Bound.With[inv.If].Path, "PG005", fmt.Sprintf("%s: true, and no effect is acquired by %s: nothing would put it back", inv.If, s.Action),
			"make it the acquire of an effect, or leave it out")
	}
	if !takes || e.Release != "" {
		return
	}
	own, _ := c.inverse(s.Bound)
	if !reflect.DeepEqual(own.Written(), e.BoundRelease.Written()) {
		c.find(s.Path+".with", "PG005", fmt.Sprintf("the step changes of %s what the release of %s is made of", s.Action, e.Name), "write it in spec.actions, or add release: ACTION to the effect")
	}
}

func (c *compiler) unknownAction(path, name string) {
	if _, declared := c.prog.actions[name]; declared {
		return // with an action that is not known: that is said there
	}
	known := slices.Sorted(maps.Keys(c.b.Actions))
	what := "known actions"
	if named := slices.Sorted(maps.Keys(c.prog.actions)); len(named) > 0 {
		known, what = append(known, named...), "actions of the program and of this file"
	}
	c.find(path, "PG005", fmt.Sprintf("action %q is not known to this program", name), diag.Instead(name, what, known))
}

func (c *compiler) required(path string, a *Action) {
	misspelt := a.misspelt()
	for _, name := range slices.Sorted(maps.Keys(a.Spec.Params)) {
		if a.Spec.Params[name].Required && a.With[name] == nil && !slices.Contains(misspelt, name) {
			c.find(path, "PG005", fmt.Sprintf("action %s needs parameter %q", a.Use, name), "add it to with: "+a.Spec.Params[name].Doc)
		}
	}
}

// misspelt are the parameters that were meant by names that the action does not have: of
// these it is said where they stand.
func (a *Action) misspelt() (meant []string) {
	known := slices.Sorted(maps.Keys(a.Spec.Params))
	for name := range a.With {
		if _, is := a.Spec.Params[name]; !is {
			meant = append(meant, diag.Nearest(name, known))
		}
	}
	return meant
}

func (c *compiler) action(name string) *Action {
	if a := c.prog.actions[name]; a != nil {
		return a
	}
	if spec, ok := c.b.Actions[name]; ok {
		return &Action{Use: name, Spec: spec}
	}
	return &Action{}
}

// params checks the parameters that stand at a path; those of a named action are
// checked where they stand.
func (c *compiler) params(path string, a *Action) {
	for _, name := range slices.Sorted(maps.Keys(a.With)) {
		v := a.With[name]
		if v.Path != path+".with."+name {
			continue
		}
		want, known := a.Spec.Params[name]
		if known {
			c.parameter(fmt.Sprintf("parameter %s of %s", name, a.Use), want, v)
		} else if a.Use != "" {
			c.find(v.Path, "PG005", fmt.Sprintf("action %s has no parameter %q", a.Use, name),
				diag.Instead(name, "parameters", slices.Sorted(maps.Keys(a.Spec.Params))))
		}
	}
}

func (c *compiler) parameter(what string, want Param, v *expr.Value) {
	const correct = "correct the value"
	switch {
	case v.Varies() && !want.Type.Fits(v.CELType()):
		c.find(v.Path, "PG005", fmt.Sprintf("%s is %s, never of type %s", what, v.CELType(), want.Type), "convert it in the expression")
	case !v.Varies() && !want.Type.Accepts(v.Written()):
		c.find(v.Path, "PG005", fmt.Sprintf("%s is %v, not of type %s", what, v.Written(), want.Type), correct)
	case want.Check != nil && !v.IsText():
		if err := want.Check(v.Written()); err != nil {
			c.find(v.Path, "PG005", fmt.Sprintf("%s: %v", what, err), correct)
		}
	}
}

// roles checks that the roles of a file are those that the program has and needs.
func (c *compiler) roles() {
	given := map[string]string{} // to whom
	for i, e := range c.def.Spec.Effects {
		c.role(given, fmt.Sprintf("spec.effects[%d].role", i), RoleOfEffect, e.Role, e.Name)
	}
	for i, p := range c.def.Spec.Phases {
		c.role(given, fmt.Sprintf("spec.phases[%d].role", i), RoleOfPhase, p.Role, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.b.Roles)) {
		if role := c.b.Roles[name]; role.Required && given[name] == "" {
			c.find(fmt.Sprintf("spec.%ss", role.Of), "PG022", fmt.Sprintf("no %s has role: %s, which the program needs", role.Of, name),
				fmt.Sprintf("add role: %s to the %s that is it: %s", name, role.Of, role.Doc))
		}
	}
}

func (c *compiler) role(given map[string]string, path string, of RoleOf, name, owner string) {
	if name == "" {
		return
	}
	role, known := c.b.Roles[name]
	switch {
	case !known && len(c.b.Roles) == 0:
		c.find(path, "PG022", fmt.Sprintf("role %q is not known to this program, which has no roles", name), "remove it")
	case !known:
		c.find(path, "PG022", fmt.Sprintf("role %q is not known to this program", name), diag.Instead(name, "its roles", slices.Sorted(maps.Keys(c.b.Roles))))
	case role.Of != of:
		c.find(path, "PG022", fmt.Sprintf("role %s is for the %ss of a machine, not for the %s %s", name, role.Of, of, owner), "move it: "+role.Doc)
	case role.Unique && given[name] != "":
		c.find(path, "PG022", fmt.Sprintf("role %s is given to %s already", name, given[name]), "keep the one that is it: "+role.Doc)
	}
	given[name] = owner
}
