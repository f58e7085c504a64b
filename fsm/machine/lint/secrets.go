package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// No expression can read a secret, so it goes only where a reference to it may stand. What is left to find is a reference in
// another place, which nothing would replace, one to what no step has kept, and a Secret that is made of what all can read.

// names is a set.
type names map[string]bool

// secrets follows the secret outputs, and looks at all references.
func (c *linter) secrets() {
	kept, all := c.keptAt(), names{}
	for _, p := range c.prog.Order {
		for i := range p.StepList {
			maps.Copy(all, keeps(p.StepList[i].Bound))
		}
	}
	readable := c.readableState()
	for _, p := range c.prog.Order {
		here := maps.Clone(kept[p.Name])
		for i := range p.StepList {
			s := &p.StepList[i]
			if c.checkReferences(s.Bound, all, c.keptBefore(p, s, here)); here != nil {
				maps.Copy(here, keeps(s.Bound))
			}
			c.checkEmptied(p, i)
			c.checkMadeOfReadable(p, i, readable)
		}
	}
	for _, e := range c.def.Spec.Effects { // when it is released, whatever was kept before may be there
		c.checkReferences(c.prog.Effects[e.Name].BoundRelease, all, all)
	}
}

// keeps are the secret outputs that a call makes.
func keeps(a *program.Action) names {
	made := names{}
	for param, v := range a.With {
		if fields, isObject := v.Written().(map[string]any); isObject && a.Spec.Params[param].Keeps {
			for name := range fields {
				made[name] = true
			}
		}
	}
	return made
}

// keptAt is which secret outputs some way to each phase has made; a phase that no way leads to is not in it.
func (c *linter) keptAt() map[string]names {
	at := map[string]names{c.def.Spec.Initial: {}}
	queue := []string{c.def.Spec.Initial}
	for _, r := range c.prog.Recover {
		at[r.To], queue = names{}, append(queue, r.To)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		p := c.prog.Phases[queue[0]]
		load := maps.Clone(at[p.Name])
		for i := range p.StepList {
			maps.Copy(load, keeps(p.StepList[i].Bound))
		}
		for _, e := range p.Edges() {
			before, reached := at[e.To]
			if !reached {
				before = names{}
				at[e.To] = before
			}
			n := len(before)
			if maps.Copy(before, load); !reached || len(before) > n {
				queue = append(queue, e.To)
			}
		}
	}
	return at
}

// keptBefore is what may be kept when a step runs. One with a condition may wait for a later step of an earlier round.
func (c *linter) keptBefore(p *program.Phase, s *program.Step, here names) names {
	if s.IfExpr == nil || here == nil {
		return here
	}
	all := maps.Clone(here)
	for i := range p.StepList {
		maps.Copy(all, keeps(p.StepList[i].Bound))
	}
	return all
}

// checkReferences looks at the references in the parameters of a call; kept is nil where the call is never made.
func (c *linter) checkReferences(a *program.Action, all, kept names) {
	for _, param := range slices.Sorted(maps.Keys(a.With)) {
		a.With[param].Walk([]string{param}, func(at []string, v *expr.Value) bool {
			ref, err := program.AsSecretRef(v.Written())
			switch allowed := mayStand(a, at); {
			case allowed && err != nil:
				c.findSecret(v.Path, fmt.Sprintf("the reference to a secret cannot be read: %v", err), "write {secret: {name: NAME, key: KEY}} or {secretOutput: NAME}")
			case allowed && ref != nil:
				c.checkKept(v.Path, ref.Output, all, kept)
			case ref != nil && isReference(a, ref):
				c.findSecret(v.Path, fmt.Sprintf("a reference to a secret has no meaning in %s of %s", strings.Join(at, "."), a.Use),
					"write it in headers or body of HTTPRequest, or in stringData of a Secret that Apply writes; a Job takes it by valueFrom.secretKeyRef")
			}
			return ref == nil
		})
	}
}

// findSecret says once what stands in spec.actions, however many steps name it.
func (c *linter) findSecret(path, message, fix string) {
	x := c.def.Finding(path, "PG024", message, fix)
	if !slices.ContainsFunc(c.diags, func(d diag.Diagnostic) bool { return d.Pos == x.Pos && d.Message == x.Message }) {
		c.diags = append(c.diags, x)
	}
}

// mayStand tells whether a call puts a value in place of a reference.
func mayStand(a *program.Action, at []string) bool {
	switch a.Spec.Params[at[0]].Secrets {
	case program.SecretsAnywhere:
		return true
	case program.SecretsInSecret:
		return len(at) == 3 && at[1] == "stringData" && program.SecretsInSecret.Within(a.With[at[0]].Written()) != nil
	}
	return false
}

// isReference: in the content of an object, {secret: {name, key}} may be a field of its kind.
func isReference(a *program.Action, ref *program.SecretRef) bool {
	return a.Spec.Writes == nil && a.Spec.Runs == "" || ref.Output != "" || ref.Format != ""
}

func (c *linter) checkKept(path, output string, all, kept names) {
	switch {
	case output == "" || strings.Contains(output, "${") || kept == nil || kept[output]:
	case all[output]:
		c.findSecret(path, fmt.Sprintf("no way that leads here keeps secret output %s", output), "keep it in an earlier step, with secretOutputs")
	default:
		c.findSecret(path, fmt.Sprintf("no step keeps secret output %s", output), diag.Instead(output, "secret outputs", slices.Sorted(maps.Keys(all))))
	}
}

// checkEmptied finds what reads an output that is empty because its content is kept as a secret.
func (c *linter) checkEmptied(p *program.Phase, i int) {
	s := &p.StepList[i]
	for param := range s.Bound.With {
		for _, output := range s.Bound.Spec.Params[param].Empties {
			if c.isUsed(p, i, touched{}, output) {
				c.findSecret(s.Path, fmt.Sprintf("result.%s of step %s is read, and always empty: with %s, nothing of it can be read", output, s.Label, param),
					"ask another output, or split the request")
			}
		}
	}
}

// readableFrom tells whether an expression reads, be it through variables, what came from outside and is in the status.
// Results are those of the first n steps of a phase, or assigned to state values before.
func (c *linter) readableFrom(p *program.Phase, n int, e *expr.Expr, state names) (from string) {
	for _, o := range c.outputsOf(e) {
		if slices.ContainsFunc(p.StepList[:n], func(s program.Step) bool { return s.Bound.Spec.External && isContentOf(s, o) }) {
			from = o.String()
		}
	}
	c.through(e, func(e *expr.Expr) {
		for _, name := range e.Reads(expr.VarState) {
			if state[name] {
				from = expr.VarState + "." + name
			}
		}
	})
	return from
}

// isContentOf tells whether an output is one of a step, and content: a number or a truth value is none.
func isContentOf(s program.Step, read output) bool {
	for name, t := range s.Bound.Spec.Outputs {
		if read.isOf(s.Label, name, true) && (t == expr.TypeString || t == expr.TypeObject || t == expr.TypeStrings || t == expr.TypeAny) {
			return true
		}
	}
	return false
}

// readableState are the state values that came from outside.
func (c *linter) readableState() names {
	state := names{}
	for n := -1; n < len(state); {
		n = len(state)
		for _, p := range c.prog.Order {
			for _, e := range p.Edges() {
				for _, a := range e.Sets {
					if c.readableFrom(p, len(p.StepList), a.Expr, state) != "" {
						state[a.Name] = true
					}
				}
			}
		}
	}
	return state
}

// checkMadeOfReadable finds a Secret whose content all can read where it came from.
func (c *linter) checkMadeOfReadable(p *program.Phase, i int, state names) {
	s := &p.StepList[i]
	to, known := touches(s.Bound.Spec.Writes, s.Bound)
	if !known || to.group != "" || to.kind != "Secret" || s.Bound.With[s.Bound.Spec.Writes.Param] == nil {
		return
	}
	s.Bound.With[s.Bound.Spec.Writes.Param].Walk(nil, func(at []string, v *expr.Value) bool {
		if !v.IsText() || !slices.Contains([]string{"data", "stringData"}, at[0]) {
			return true
		}
		v.Each(func(e *expr.Expr) {
			if from := c.readableFrom(p, i, e, state); from != "" {
				c.findSecret(v.Path, fmt.Sprintf("%s of a Secret is made of %s, which everybody can read who may read the object", strings.Join(at, "."), from),
					"keep it with secretOutputs of the step that asks for it, and write {secretOutput: NAME} here")
			}
		})
		return false
	})
}
