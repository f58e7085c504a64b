package fsm

import (
	"slices"
	"time"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
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
		q := Request{Name: src.Name, Annotation: annotationOf(src.Token), Params: map[string]string{}}
		for name, text := range src.Params {
			if a := annotationOf(text); a != "" {
				q.Params[name] = a
			}
		}
		for _, p := range m.prog.order {
			if p.waitsFor(src.Name) {
				q.Phases = append(q.Phases, p.Name)
			}
		}
		all = append(all, q)
	}
	return all
}

// waitsFor tells whether a request can move an object out of the phase or on to
// the next step; these are the places that record the token.
func (p *phase) waitsFor(request string) bool {
	asks := func(e *expr) bool { return slices.Contains(e.reads(varRequest), request) }
	return slices.ContainsFunc(p.next, func(x exit) bool { return asks(x.when) }) ||
		slices.ContainsFunc(p.steps, func(s step) bool { return asks(s.until) })
}

// Accepts tells whether a token would be a new request for an object, given as it
// is stored: neither the token that was acted on last nor one that `valid`
// refuses. A request that the machine does not have accepts none.
func (m *Machine) Accepts(request, token string, st v1alpha1.MachineStatus, self map[string]any) bool {
	q := m.prog.requests[request]
	return q != nil && m.Run(st, Input{Self: StaticObject(self), Now: time.Now}).isNew(q, token)
}

// annotationOf finds the annotation of the object that an expression reads first.
func annotationOf(text string) string {
	tree := syntax(text)
	if tree == nil {
		return ""
	}
	found := ""
	celast.PreOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		path := selected(e)
		if found == "" && len(path) == 4 && slices.Equal(path[:3], []string{varSelf, "metadata", "annotations"}) {
			found = path[3]
		}
	}))
	return found
}

// selected reads a.b, a.?b, a["b"] and a[?"b"] alike: the names from the outside
// in; nil of any other expression.
func selected(e celast.Expr) []string {
	var operand celast.Expr
	var name string
	switch e.Kind() {
	case celast.IdentKind:
		return []string{e.AsIdent()}
	case celast.SelectKind:
		operand, name = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case celast.CallKind:
		call := e.AsCall()
		if !slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName()) ||
			call.Args()[1].Kind() != celast.LiteralKind {
			return nil
		}
		operand = call.Args()[0]
		name, _ = call.Args()[1].AsLiteral().Value().(string)
	}
	if operand == nil || name == "" {
		return nil
	}
	if path := selected(operand); path != nil {
		return append(path, name)
	}
	return nil
}
