package program

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Action is an action of the program as a step or an effect calls it: directly,
// or under a name that the machine gave it together with parameters.
type Action struct {
	// Use is the program's name of it; empty when nothing of that name is known.
	Use  string
	Spec ActionSpec
	With map[string]*expr.Value
}

// Params evaluates all parameters; the types of what was found are checked as
// those of plain values were at load. One that varies is not evaluated where it is fixed.
func (a *Action) Params(find expr.Evaluator, fixed expr.Params) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.With {
		got, isFixed := fixed[name]
		if !isFixed || !v.Varies() {
			var err error
			if got, err = v.Eval(find); err != nil {
				return nil, fmt.Errorf("with.%s of %s: %w", name, a.Use, err)
			}
		}
		want := a.Spec.Params[name]
		if !want.Type.Accepts(got) {
			return nil, fmt.Errorf("with.%s of %s is %v, not of type %s", name, a.Use, expr.Clip(fmt.Sprint(got), 120), want.Type)
		}
		// Whoever writes the object that an expression reads must not choose what the manager reads for him.
		if len(SecretRefs(want.Secrets.Within(got))) != len(SecretRefs(want.Secrets.Within(v.Written()))) {
			return nil, fmt.Errorf("with.%s of %s: an expression came to a reference to a secret: only the machine file may write one", name, a.Use)
		}
		out[name] = got
	}
	return out, nil
}

// Varying are those parameters that are found only when the action is called.
func (a *Action) Varying(find expr.Evaluator) (expr.Params, error) {
	out := expr.Params{}
	for name, v := range a.With {
		if !v.Varies() {
			continue
		}
		got, err := v.Eval(find)
		if err != nil {
			return nil, fmt.Errorf("with.%s of %s: %w", name, a.Use, err)
		}
		out[name] = got
	}
	return out, nil
}

// Takes is an error where parameters are none of the action's.
func (a ActionSpec) Takes(with expr.Params) error {
	for name, value := range with {
		p, known := a.Params[name]
		if !known {
			return fmt.Errorf("%q is no parameter of it", name)
		}
		if !p.Type.Accepts(value) {
			return fmt.Errorf("%s is %v, not of type %s", name, expr.Clip(fmt.Sprint(value), 120), p.Type)
		}
	}
	for name, p := range a.Params {
		if _, given := with[name]; p.Required && !given {
			return fmt.Errorf("%s is missing", name)
		}
	}
	return nil
}

// Written are the parameters with their expressions as texts.
func (a *Action) Written() expr.Params {
	all := expr.Params{}
	for name, v := range a.With {
		all[name] = v.Written()
	}
	return all
}

// Place is the path in the file of a path in the parameters.
func (a *Action) Place(path string) string {
	name, rest, _ := strings.Cut(path, ".")
	if v := a.With[name]; v != nil {
		return v.Place(rest)
	}
	return ""
}

// Misfit is the finding about something that does not fit at a path.
func (d *Definition) Misfit(path string, m Misfit) diag.Diagnostic {
	return d.Finding(path, "PG018", m.Message, m.Fix())
}

// Fix says what could be written instead.
func (m Misfit) Fix() string {
	switch near := diag.Nearest(m.Name, m.Known); {
	case m.Name == "":
		return "correct the value"
	case near != "":
		return "did you mean " + near + "?"
	default:
		return "remove it, or write one of " + strings.Join(m.Known, ", ")
	}
}

// together asks the action what of all its parameters it could do nothing with. What
// stands in spec.actions is said once, however many steps name it.
func (c *compiler) together(a *Action, at string) {
	if a.Spec.Check == nil {
		return
	}
	for _, flaw := range a.Spec.Check(a.Written()) {
		x := c.def.Misfit(cmp.Or(a.Place(flaw.Path), at), flaw)
		same := func(d diag.Diagnostic) bool { return d.Pos == x.Pos && d.Message == x.Message }
		if !slices.ContainsFunc(c.diags, same) {
			c.diags = append(c.diags, x)
		}
	}
}
