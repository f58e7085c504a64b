package fsm

import (
	"context"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Request is how a one-shot request of a machine is made, and where it matters.
type Request struct {
	Name string `json:"name"`
	// Annotation is the one whose value is the token; empty when the token does not
	// come from an annotation of the object.
	Annotation string `json:"annotation,omitempty"`
	// Params are the annotations that parameters read, by parameter; a parameter
	// that reads none is not among them.
	Params map[string]string `json:"params,omitempty"`
	// Phases are those with an exit or a step that waits for the request.
	Phases []string `json:"phases,omitempty"`
}

// Requests lists the one-shot requests in document order.
func (m *Machine) Requests() []Request {
	var all []Request
	for _, src := range m.def.Spec.Requests {
		q := Request{Name: src.Name, Annotation: expr.AnnotationOf(src.Token), Params: map[string]string{}}
		for name, text := range src.Params {
			if a := expr.AnnotationOf(text); a != "" {
				q.Params[name] = a
			}
		}
		for _, p := range m.prog.Order {
			if waitsFor(p, src.Name) {
				q.Phases = append(q.Phases, p.Name)
			}
		}
		all = append(all, q)
	}
	return all
}

// waitsFor tells whether a request can move an object out of the phase or on to
// the next step; these are the places that record the token.
func waitsFor(p *program.Phase, request string) bool {
	asks := func(e *expr.Expr) bool { return slices.Contains(e.Reads(expr.VarRequest), request) }
	return slices.ContainsFunc(p.Exits, func(x program.Exit) bool { return asks(x.WhenExpr) }) ||
		slices.ContainsFunc(p.StepList, func(s program.Step) bool { return asks(s.UntilExpr) })
}

// Accepts tells whether a token would be a new request for an object, given as it
// is stored: neither the token that was acted on last nor one that `valid`
// refuses. A request that the machine does not have accepts none.
func (m *Machine) Accepts(request, token string, st v1alpha1.MachineStatus, self map[string]any) bool {
	q := m.prog.Requests[request]
	return q != nil && m.Run(st, Observation{Self: StaticObject(self), Now: time.Now}).isNew(context.Background(), q, token)
}
