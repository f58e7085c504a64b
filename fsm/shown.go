package fsm

import (
	"context"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// maxShown is how many bytes a field of the status has at most, as JSON.
const maxShown = 4 << 10

// Shown is what the fields of spec.status come to now, as JSON brings it back. One that cannot be evaluated, that is null or
// nothing, or is too long, is not among them: it is not shown. They decide nothing, and what they cost is not the run's.
func (r *Run) Shown(ctx context.Context) map[string]any {
	if r.input.Prove != nil {
		return nil
	}
	spent := r.spent
	defer func() { r.spent = spent }()
	r.spent = 0
	shown := map[string]any{}
	for _, f := range r.m.prog.Status {
		if value := r.shown(ctx, f.Expr); value != nil {
			shown[f.Name] = value
		}
	}
	return shown
}

func (vs *values) shown(ctx context.Context, e *expr.Expr) (value any) {
	v, err := vs.value(ctx)(e)
	if err != nil {
		return nil
	}
	native, err := expr.Native(v)
	if err != nil {
		return nil
	}
	text, err := encode("the field", map[string]any{"of": native})
	if err != nil || len(text) > maxShown {
		return nil
	}
	var fields map[string]any
	if utiljson.Unmarshal([]byte(text), &fields) != nil {
		return nil // not reached: it came out of a value
	}
	return fields["of"]
}

// Shows tells whether a field of the status is one of spec.status.
func (m *Machine) Shows(name string) bool {
	_, is := m.def.Spec.Status[name]
	return is
}
