package fsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// A step with forEach calls its action for each item of a list. The list is stored when the step begins, and an item leaves
// it when it is done, so a crash repeats no more than what was done since the last write. Of those that are left, the first
// are under way. One run looks at each of them once, a round: what waits goes to the end of those under way, and an error
// that is tried again is told once the others had their turn.

// loop goes on with the items of the current step; nil means that the last is done.
func (c currentStep) loop(ctx context.Context) *Decision {
	if c.round == nil {
		if err := c.beginRound(ctx); err != nil {
			return c.invalid(ctx, err)
		}
	}
	return c.each(ctx)
}

func (c currentStep) each(ctx context.Context) *Decision {
	l := c.round
	if len(l.left) == 0 {
		return c.endLoop(ctx)
	}
	if d := c.outOfTime(ctx); d != nil {
		return d
	}
	under := l.left[:min(l.parallel, len(l.left))]
	for _, it := range under {
		if l.looked[it.Key] || !c.onRecord(it) {
			continue
		}
		c.item = it
		d, err := c.ask(ctx)
		switch {
		case err != nil:
			c.itemEnds(ctx, Result{Err: err, Class: program.ClassInvalid})
			if c.next != nil {
				return c.next
			}
			return c.each(ctx)
		case d.External && !l.due:
			l.looked[it.Key] = true
		default:
			return c.act(d)
		}
	}
	if d := c.holdItems(ctx, under); d != nil {
		return d
	}
	return c.endRound(ctx, under)
}

// onRecord tells whether the action may be called for an item: what it takes is in the ledger.
func (c currentStep) onRecord(it *item) bool {
	return c.s.Acquires == "" || it.Taken || c.st.IsHeld(v1alpha1.Keyed(c.s.Acquires, it.Key))
}

// holdItems puts the effect on record for all that are about to take it, in one write: as late as can be, so that they are many.
func (c currentStep) holdItems(ctx context.Context, under []*item) *Decision {
	taken := false
	for _, it := range under {
		if c.onRecord(it) {
			continue
		}
		c.item = it
		h, err := c.entry(ctx, c.m.prog.Effects[c.s.Acquires], c.s.Bound)
		if err == nil {
			err = c.roomFor(h)
		}
		if err != nil {
			return c.fail(ctx, Result{Err: fmt.Errorf("%s: %w", it.Key, err), Class: program.ClassInvalid})
		}
		c.st.Held, it.Taken, taken = append(c.st.Held, h), true, true
	}
	if !taken {
		return nil
	}
	if err := c.saveItems(); err != nil {
		return c.invalid(ctx, err)
	}
	return c.commitItems()
}

// commitItems stores how far the items are. Where none waits, the next may be called at once, even outside the cluster.
func (c currentStep) commitItems() *Decision {
	if c.round.waits == "" {
		c.due, c.called = time.Time{}, false
	}
	return c.commit(nil)
}

// maxLedger is how many bytes are held together: with all else, etcd takes no more than 1.5 MiB by default.
const maxLedger = 512 << 10

func (s *state) roomFor(h v1alpha1.HeldEffect) error {
	size := len(h.String())
	for _, other := range s.st.Held {
		size += len(other.Name) + len(other.Release) + len(other.With) + len(other.Acquired)
	}
	if len(s.st.Held) >= v1alpha1.HeldLimit || size > maxLedger {
		return Terminal("TooMuchHeld", "%d effects are held with %d bytes, and no more than %d with %d are stored: release some before, or take fewer items at a time", len(s.st.Held), size, v1alpha1.HeldLimit, maxLedger)
	}
	return nil
}

// itemDone takes the outcome of the action for an item.
func (c currentStep) itemDone(ctx context.Context, o Result) {
	if w, is := errors.AsType[*WaitError](o.Err); is {
		c.itemWaits(w.Message, w.After)
		return
	}
	if o.Err == nil {
		text, err := encodeResult(o.Outputs)
		if c.item.outputs = decodeResult(text); err != nil {
			o.Err = Terminal("BadOutputs", "%s: %w", c.s.Action, err)
		}
	}
	if o.Err == nil {
		o = c.checked(ctx)
	}
	if o.Err == nil {
		if asked := c.truth(ctx, c.s.UntilExpr); !asked.open {
			c.itemWaits(fmt.Sprintf("until %s; seen: %s", c.s.Until, asked.got), 0)
			return
		}
	}
	c.itemEnds(ctx, o)
}

// itemWaits lets those behind it have their turn first.
func (c currentStep) itemWaits(message string, after time.Duration) {
	l := c.round
	l.looked[c.item.Key] = true
	if l.waits == "" {
		l.waits = c.item.Key + ": " + message
	}
	if after > 0 && (l.after == 0 || after < l.after) {
		l.after = after
	}
	under := l.left[:min(l.parallel, len(l.left))]
	if at := slices.Index(under, c.item); at >= 0 {
		copy(under[at:], under[at+1:])
		under[len(under)-1] = c.item
	}
	c.stored(c.saveItems())
}

// itemEnds is for an item that is done, or has failed.
func (c currentStep) itemEnds(ctx context.Context, o Result) {
	l := c.round
	if o.Err != nil {
		l.looked[c.item.Key] = true
		o.Err = fmt.Errorf("%s: %w", c.item.Key, o.Err)
		_, terminal := errors.AsType[*TerminalError](o.Err)
		final := terminal || o.Class == program.ClassTerminal || c.s.Backoff.Ends(o.Class, c.st.Attempts+1)
		switch {
		case !final:
			l.failed = cmp.Or(l.failed, &o)
			return
		case len(c.st.Loop.Failed) >= int(c.s.Loop.Tolerated):
			c.fail(ctx, o)
			return
		}
		c.st.Loop.Failed = append(c.st.Loop.Failed, expr.Clip(o.Err.Error(), v1alpha1.TextLimit))
	} else {
		c.st.Loop.Done++
		if c.s.Releases != "" {
			c.removeHeld(c.heldAs(c.s.Releases))
		}
	}
	c.resetBackoff()
	l.left = slices.DeleteFunc(l.left, func(it *item) bool { return it == c.item })
	c.stored(c.saveItems())
	if len(l.left) > 0 && c.input.Now().Sub(l.saved) >= longStep {
		c.commitItems()
	}
}

// stored is for an error that cannot be: what is left was stored before.
func (c currentStep) stored(err error) {
	if err != nil {
		c.next = c.refuse(err)
	}
}

// endRound waits until what is under way can be looked at again.
func (c currentStep) endRound(ctx context.Context, under []*item) *Decision {
	l := c.round
	if l.failed != nil {
		return c.fail(ctx, *l.failed)
	}
	if !l.due && c.s.Bound.Spec.External {
		return c.leaveOff(fmt.Sprintf("%s is called again at %s", c.s.Label, c.due.UTC().Format(time.RFC3339)), c.due)
	}
	if c.late(c.input.Now()) {
		return c.fail(ctx, c.timedOut(progress(c.st.Loop, len(under))+"; "+l.waits))
	}
	c.resetBackoff()
	c.message = cmp.Or(c.s.Text.Render(c.value(ctx)), fmt.Sprintf("%s: %s", c.s.Label, progress(c.st.Loop, len(under))))
	c.st.Blocked = []v1alpha1.Blocked{{Step: c.s.Label, Guard: progress(c.st.Loop, len(under)), Value: expr.Clip(l.waits, v1alpha1.TextLimit)}}
	after := cmp.Or(l.after, c.s.PollEvery, defaultPoll)
	if c.called {
		c.polls(after)
	}
	return c.sleep(after)
}

func progress(l *v1alpha1.Loop, under int) string {
	text := fmt.Sprintf("%d of %d done, %d under way", l.Done, l.Total, under)
	if n := len(l.Failed); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	return text
}

// endLoop ends the step: its outputs are what came of the items.
func (c currentStep) endLoop(ctx context.Context) *Decision {
	failed := make([]any, len(c.st.Loop.Failed))
	for i, line := range c.st.Loop.Failed {
		key, _, _ := strings.Cut(line, ": ")
		failed[i] = key
	}
	if err := c.merge(c.s.Label, map[string]any{"done": int64(c.st.Loop.Done), "failed": failed}); err != nil {
		return c.fail(ctx, Result{Err: Terminal("BadOutputs", "%s: %w", c.s.Label, err)})
	}
	if c.st.Loop.Done > 0 {
		c.recordRequests(ctx, c.s.UntilExpr)
	}
	c.advance()
	return nil
}
