package program

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

func (c *compiler) state(values map[string]v1alpha1.StateValue) {
	c.limit("spec.state", len(values), v1alpha1.StateLimit)
	known := map[string]*cel.Type{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, path := values[name], "spec.state."+name
		if !expr.Identifier.MatchString(name) {
			c.find(path, "PG000", fmt.Sprintf("%q is not a name for a state value", name), "write at most 63 letters, digits and _, a letter first")
		}
		t := expr.Type(v.Type)
		if !t.Known() {
			c.find(path+".type", "PG000", fmt.Sprintf("%s has the type %q", name, v.Type), "write string, int, number, bool, duration, []string, object or any")
			t = expr.TypeAny
		}
		if v.Initial != nil && !t.Accepts(v.Initial) {
			c.find(path+".initial", "PG005", fmt.Sprintf("%v is not of type %s", expr.Clip(fmt.Sprint(v.Initial), 120), t), "correct the value, or the type")
		}
		c.prog.State[name] = StateValue{t, v.Initial}
		known[name] = t.CELType()
	}
	c.scope.Define(expr.VarState, known)
}

// assignments are compiled in the order of their names: each sees the values of before.
func (c *compiler) assignments(path string, set map[string]string) (all []Assignment) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		at, read := path+"."+name, c.stateRead[name]
		e := c.expr(at, set[name], false)
		c.stateRead[name] = read
		v, known := c.prog.State[name]
		switch {
		case !known:
			c.find(at, "PG005", fmt.Sprintf("state value %q is not declared", name), "declare it under spec.state")
		case set[name] == "":
			c.find(at, "PG000", "nothing is assigned", "write an expression")
		case e != nil && !v.Type.Fits(e.Out):
			c.find(at, "PG005", fmt.Sprintf("%s is %s, not of type %s", name, e.Out, v.Type), "correct the expression, or the type under spec.state")
		}
		all = append(all, Assignment{name, set[name], at, e})
	}
	return all
}

// unread finds state values that decide nothing, and that nobody sees. Of a file with errors, some expressions are not known.
func (c *compiler) unread() {
	if c.diags.Err() != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.prog.State)) {
		if !c.stateRead[name] {
			c.warn("spec.state."+name, "PG108", fmt.Sprintf("nothing reads state.%s", name), "remove it, read it, or show it in spec.status")
		}
	}
}
