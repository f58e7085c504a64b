package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// maxHeld is how long the line of a held effect may be; the CRDs say the same.
const maxHeld = 32 << 10

// hold writes the ledger before the deed: what is taken, and what releases it. A crash
// in between costs a release of something that was never taken, which is harmless.
func (c currentStep) hold(ctx context.Context) *Decision {
	h, err := c.entry(ctx, c.m.prog.Effects[c.s.Acquires], c.s.Bound)
	if err != nil {
		return c.invalid(ctx, err)
	}
	c.st.Held, c.st.Acquiring = append(c.st.Held, h), h.Name
	return c.commit(nil)
}

// entry is how the ledger has an effect that an action is about to take, or may have taken.
// The parameters of its release are resolved now: an edit of the object later on must not
// lead elsewhere.
func (vs *values) entry(ctx context.Context, e program.Effect, acquire *program.Action) (v1alpha1.HeldEffect, error) {
	h := v1alpha1.HeldEffect{Name: vs.heldAs(e.Name), Release: e.BoundRelease.Use}
	with, err := e.BoundRelease.Params(vs.value(ctx), nil)
	if err == nil {
		h.With, err = encodeParams(with)
	}
	if err != nil {
		return h, fmt.Errorf("what would release %s: %w", e.Name, err)
	}
	acquired, err := acquire.Varying(vs.value(ctx))
	if err != nil {
		return h, err
	}
	if h.Acquired, err = encodeParams(acquired); err != nil {
		return h, err
	}
	if n := len(h.String()); n > maxHeld { // the API server would refuse it
		return h, fmt.Errorf("the parameters of %s have %d bytes, more than the %d that are stored with what is held: shorten them in the machine file, or what they read in the object", h.Name, n, maxHeld)
	}
	return h, nil
}

// undo releases what was taken, as it was recorded.
func (c currentStep) undo(ctx context.Context, h v1alpha1.HeldEffect) *Decision {
	use, with, err := c.m.release(h, c.value(ctx))
	if err != nil {
		return c.invalid(ctx, err)
	}
	effect, key := v1alpha1.CutKey(h.Name)
	id := cmp.Or(c.m.prog.Effects[effect].Release, effect)
	if key != "" {
		id += "/" + key
	}
	return c.act(&Decision{Do: RunAction, Action: use, Step: c.s.Label, StepID: id, With: with, Key: key,
		Effect: h.Name, Releases: true, External: c.m.bindings.Actions[use].External})
}

// release is the action that releases an effect, and its parameters. The one on record
// comes first, whatever the file says by now. Where the program does not have it any more,
// the effect's release in the file takes its place, with the parameters on record.
func (m *Machine) release(h v1alpha1.HeldEffect, find expr.Evaluator) (use string, with expr.Params, err error) {
	recorded, err := decodeParams(h.With)
	if err != nil {
		return "", nil, Terminal("UnreadableEffect", "the parameters that release %s cannot be read (%w): correct them in the MachineState", h.Name, err)
	}
	spec, known := m.bindings.Actions[h.Release]
	if known && spec.Takes(recorded) == nil {
		return h.Release, recorded, nil
	}
	e, ok := m.prog.Effects[h.Effect()]
	if !ok {
		return "", nil, Terminal("UnknownEffect", "%s is held, but revision %s of machine %s has no such effect: restore it in the machine file, or name its successor in spec.upgrade.effectMap",
			h.Name, m.def.Revision, m.def.Metadata.Name)
	}
	if h.Release == "" || h.Release == e.BoundRelease.Use {
		with, err = e.BoundRelease.Params(find, recorded)
		return e.BoundRelease.Use, with, err
	}
	if err := e.BoundRelease.Spec.Takes(recorded); err != nil {
		return "", nil, Terminal("UnknownRelease", "%s is released by %s, which this program cannot do, and %s of revision %s takes other parameters: %w",
			h.Name, strings.TrimSpace(h.Release+" "+h.With), e.BoundRelease.Use, m.def.Revision, err)
	}
	return e.BoundRelease.Use, recorded, nil
}

// nextUndo is the place in the ledger of what an undo releases next; -1: there is nothing any more.
func (c currentStep) nextUndo(ctx context.Context) (int, error) {
	if c.s.Undo == program.UndoHeld {
		return len(c.st.Held) - 1, nil
	}
	of, err := c.keys(ctx, c.s.KeysExpr)
	if err != nil {
		return 0, fmt.Errorf("keys %s: %w", c.s.Keys, err)
	}
	for i, h := range slices.Backward(c.st.Held) {
		if effect, key := v1alpha1.CutKey(h.Name); effect == c.s.Undo && of(key) {
			return i, nil
		}
	}
	return -1, nil
}

// keys tells which keys an undo is for. For a proof it is each or none: which, it tries.
func (vs *values) keys(ctx context.Context, e *expr.Expr) (of func(string) bool, err error) {
	switch {
	case e == nil:
		return func(string) bool { return true }, nil
	case vs.input.Prove != nil:
		some, err := vs.input.Prove(e)
		return func(string) bool { return some }, err
	}
	v, err := vs.value(ctx)(e)
	if err != nil {
		return nil, err
	}
	native, err := expr.Native(v)
	if err != nil {
		return nil, err
	}
	list, is := native.([]any)
	if !is {
		return nil, errors.New("it is no list")
	}
	return func(key string) bool { return slices.Contains(list, any(key)) }, nil
}
