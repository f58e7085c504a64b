package fsm

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

func (c currentStep) call(ctx context.Context) *Decision {
	d, err := c.ask(ctx)
	if err != nil {
		return c.invalid(ctx, err)
	}
	return c.act(d)
}

// ask is the action of a step. Where it is about an effect that is held, what its
// parameters read is what they read when the effect was taken.
func (c currentStep) ask(ctx context.Context) (*Decision, error) {
	fixed, err := c.fixed(c.s)
	var with expr.Params
	if err == nil {
		err = c.differs(ctx, fixed)
	}
	if err == nil {
		with, err = c.s.Bound.Params(c.value(ctx), fixed)
	}
	d := &Decision{Do: RunAction, Action: c.s.Bound.Use, Step: c.s.Label, StepID: c.s.ID, With: with, Releases: c.s.Releases != "", External: c.s.Bound.Spec.External}
	if c.item != nil {
		d.Key, d.StepID = c.item.Key, c.s.ID+"/"+c.item.Key
	}
	return d, err
}

// differs is an error where a step would take what is held already in another way: its release is on record for the way
// that it was taken, so neither would the object get what it asks for, nor the release undo it. What reads the time differs
// each time, and keeps what is on record.
func (c currentStep) differs(ctx context.Context, held expr.Params) error {
	if c.s.Acquires == "" || len(held) == 0 || c.input.Prove != nil || c.taking(c.s) {
		return nil
	}
	wanted, err := c.s.Bound.Varying(c.value(ctx))
	if err != nil {
		return err
	}
	text, err := encodeParams(wanted)
	if err != nil {
		return err
	}
	if wanted, err = decodeParams(text); err != nil { // as those on record were
		return err
	}
	for name, value := range wanted {
		was, known := held[name]
		if known && !reflect.DeepEqual(was, value) && !c.s.Bound.With[name].ReadsTime(c.m.prog.Variables) {
			name, was, value = difference(name, was, value)
			return Terminal("HeldOtherwise", "%s is held with %s: %s, and step %s would take it with %s: release it before, in a step of an earlier phase, or set %s back",
				c.heldAs(c.s.Acquires), name, plain(was), c.s.Label, plain(value), name)
		}
	}
	return nil
}

// difference is the first field that differs between two values that do, and what it is in each; null: it is not there.
func difference(path string, was, now any) (at string, a, b any) {
	one, _ := was.(map[string]any)
	other, _ := now.(map[string]any)
	if one == nil || other == nil {
		return path, was, now
	}
	for _, name := range slices.Sorted(maps.Keys(one)) {
		if !reflect.DeepEqual(one[name], other[name]) {
			return difference(path+"."+name, one[name], other[name])
		}
	}
	return path, was, now // something was added
}

// plain is a value as it may be written in a file, clipped.
func plain(v any) string {
	if text, is := v.(string); is {
		return expr.Clip(text, 120)
	}
	text, _ := json.Marshal(v) // it came out of JSON
	return expr.Clip(string(text), 120)
}

// taking tells whether the effect was put on record in this visit for the call that is about to be made, or repeated.
func (s *state) taking(step *program.Step) bool {
	return step.Acquires == s.st.Acquiring || s.item != nil && s.item.Taken
}

// act asks for an action, once it is due.
func (c currentStep) act(d *Decision) *Decision {
	c.began = c.input.Now()
	if d.External {
		if early := c.notDue(); early != nil && c.round == nil {
			return early
		}
		d.Due = new(c.began.Add(cmp.Or(c.s.PollEvery, defaultPoll)))
	}
	c.acting = d
	return d
}

// Asks tells whether the action that runs would be asked for in the same way of the object as it is by
// now, at the same moment: whether what the step reads of it is unchanged. It is for the time in which Apply calls it.
func (r *Run) Asks(ctx context.Context, self func() (map[string]any, error)) bool {
	if r.acting == nil {
		return false
	}
	s := r.atStep().s
	if s.Undo != "" {
		return true // by what is on record
	}
	before, now := *r, *r
	before.input.Now = func() time.Time { return r.began }
	now.input.Now, now.input.Self, now.self = before.input.Now, self, nil
	if !now.truth(ctx, s.IfExpr).open {
		return false
	}
	fixed, err := r.fixed(s)
	if err != nil {
		return false
	}
	asked, errBefore := s.Bound.Params(before.value(ctx), fixed)
	asks, errNow := s.Bound.Params(now.value(ctx), fixed)
	return errBefore == nil && errNow == nil && reflect.DeepEqual(asked, asks)
}
