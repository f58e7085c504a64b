package program

import (
	"maps"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// work is what the steps of a phase do. Two phases of one work go on at each other's steps.
type work struct {
	Steps []deed
	// Variables and Requests are those that steps read, be it through others.
	Variables map[string]string
	Requests  map[string]v1alpha1.Request
}

// deed is what a step does: neither how it is called nor how often it is tried.
type deed struct {
	Action, Undo, If, Until string
	With                    map[string]any
	Wait                    bool
	Takes, Gives            string
	ForEach                 *v1alpha1.ForEach `json:",omitempty"`
	Keys                    string            `json:",omitempty"`
	FailWhen                string            `json:",omitempty"`
}

func (c *compiler) phaseRevision(p *Phase) string {
	w := work{Variables: map[string]string{}, Requests: map[string]v1alpha1.Request{}}
	for i := range p.StepList {
		s := &p.StepList[i]
		d := deed{Action: s.Bound.Use, Undo: s.Undo, If: s.If, Until: s.Until, Wait: s.Wait != "",
			Takes: s.Acquires, Gives: s.Releases, With: map[string]any{}, ForEach: s.ForEach, Keys: s.Keys, FailWhen: s.FailWhen}
		if l := s.Loop; l != nil {
			c.read(&w, l.In)
			c.read(&w, l.Key)
			c.read(&w, l.ParallelExpr)
		}
		c.read(&w, s.KeysExpr)
		for name, v := range s.Bound.With {
			d.With[name] = v.Written()
			v.Each(func(e *expr.Expr) { c.read(&w, e) })
		}
		c.read(&w, s.IfExpr)
		c.read(&w, s.FailWhenExpr)
		c.read(&w, s.UntilExpr)
		w.Steps = append(w.Steps, d)
	}
	return hashOf(w)
}

func (c *compiler) read(w *work, e *expr.Expr) {
	for _, name := range e.Reads(expr.VarVariables) {
		if f := c.prog.Variables[name]; f != nil && w.Variables[name] == "" {
			w.Variables[name] = f.Text
			c.read(w, f)
		}
	}
	for _, name := range e.Reads(expr.VarRequest) {
		if q := c.prog.Requests[name]; q != nil && w.Requests[name].Name == "" {
			w.Requests[name] = v1alpha1.Request{Name: name, Token: q.Token, Valid: q.Valid, Params: q.Params}
			for _, of := range append(slices.Collect(maps.Values(q.ParamExprs)), q.TokenExpr, q.ValidExpr) {
				c.read(w, of)
			}
		}
	}
}
