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
func (r *Run) loop(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	if r.round == nil {
		if err := r.beginRound(ctx, s); err != nil {
			return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
		}
	}
	return r.each(ctx, s, p)
}

func (r *Run) each(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	l := r.round
	if len(l.left) == 0 {
		return r.endLoop(ctx, s, p)
	}
	if d := r.outOfTime(ctx, s, p); d != nil {
		return d
	}
	under := l.left[:min(l.parallel, len(l.left))]
	for _, it := range under {
		if l.looked[it.Key] || !r.onRecord(s, it) {
			continue
		}
		r.item = it
		d, err := r.ask(ctx, s)
		switch {
		case err != nil:
			r.itemEnds(ctx, s, Result{Err: err, Class: program.ClassInvalid})
			if r.next != nil {
				return r.next
			}
			return r.each(ctx, s, p)
		case d.External && !l.due:
			l.looked[it.Key] = true
		default:
			return r.act(d, s)
		}
	}
	if d := r.holdItems(ctx, s, p, under); d != nil {
		return d
	}
	return r.endRound(ctx, s, p, under)
}

// onRecord tells whether the action may be called for an item: what it takes is in the ledger.
func (r *Run) onRecord(s *program.Step, it *item) bool {
	return s.Acquires == "" || it.Taken || r.st.IsHeld(v1alpha1.Keyed(s.Acquires, it.Key))
}

// holdItems puts the effect on record for all that are about to take it, in one write: as late as can be, so that they are many.
func (r *Run) holdItems(ctx context.Context, s *program.Step, p *program.Phase, under []*item) *Decision {
	taken := false
	for _, it := range under {
		if r.onRecord(s, it) {
			continue
		}
		r.item = it
		h, err := r.entry(ctx, r.m.prog.Effects[s.Acquires], s.Bound)
		if err == nil {
			err = r.roomFor(h)
		}
		if err != nil {
			return r.fail(ctx, Result{Err: fmt.Errorf("%s: %w", it.Key, err), Class: program.ClassInvalid}, s.Backoff, p)
		}
		r.st.Held, it.Taken, taken = append(r.st.Held, h), true, true
	}
	if !taken {
		return nil
	}
	if err := r.saveItems(); err != nil {
		return r.fail(ctx, Result{Err: err, Class: program.ClassInvalid}, s.Backoff, p)
	}
	return r.commitItems()
}

// commitItems stores how far the items are. Where none waits, the next may be called at once, even outside the cluster.
func (r *Run) commitItems() *Decision {
	if r.round.waits == "" {
		r.due, r.called = time.Time{}, false
	}
	return r.commit(nil)
}

// maxLedger is how many bytes are held together: with all else, etcd takes no more than 1.5 MiB by default.
const maxLedger = 512 << 10

func (r *Run) roomFor(h v1alpha1.HeldEffect) error {
	size := len(h.String())
	for _, other := range r.st.Held {
		size += len(other.Name) + len(other.Release) + len(other.With) + len(other.Acquired)
	}
	if len(r.st.Held) >= v1alpha1.HeldLimit || size > maxLedger {
		return Terminal("TooMuchHeld", "%d effects are held with %d bytes, and no more than %d with %d are stored: release some before, or take fewer items at a time", len(r.st.Held), size, v1alpha1.HeldLimit, maxLedger)
	}
	return nil
}

// itemDone takes the outcome of the action for an item.
func (r *Run) itemDone(ctx context.Context, s *program.Step, o Result) {
	if w, is := errors.AsType[*WaitError](o.Err); is {
		r.itemWaits(w.Message, w.After)
		return
	}
	if o.Err == nil {
		text, err := encodeResult(o.Outputs)
		if r.item.outputs = decodeResult(text); err != nil {
			o.Err = Terminal("BadOutputs", "%s: %w", s.Action, err)
		}
	}
	if o.Err == nil {
		o = r.checked(ctx, s)
	}
	if o.Err == nil {
		if asked := r.truth(ctx, s.UntilExpr); !asked.open {
			r.itemWaits(fmt.Sprintf("until %s; seen: %s", s.Until, asked.got), 0)
			return
		}
	}
	r.itemEnds(ctx, s, o)
}

// itemWaits lets those behind it have their turn first.
func (r *Run) itemWaits(message string, after time.Duration) {
	l := r.round
	l.looked[r.item.Key] = true
	if l.waits == "" {
		l.waits = r.item.Key + ": " + message
	}
	if after > 0 && (l.after == 0 || after < l.after) {
		l.after = after
	}
	under := l.left[:min(l.parallel, len(l.left))]
	if at := slices.Index(under, r.item); at >= 0 {
		copy(under[at:], under[at+1:])
		under[len(under)-1] = r.item
	}
	r.stored(r.saveItems())
}

// itemEnds is for an item that is done, or has failed.
func (r *Run) itemEnds(ctx context.Context, s *program.Step, o Result) {
	l, p := r.round, r.phase()
	if o.Err != nil {
		l.looked[r.item.Key] = true
		o.Err = fmt.Errorf("%s: %w", r.item.Key, o.Err)
		_, terminal := errors.AsType[*TerminalError](o.Err)
		final := terminal || o.Class == program.ClassTerminal || s.Backoff.Ends(o.Class, r.st.Attempts+1)
		switch {
		case !final:
			l.failed = cmp.Or(l.failed, &o)
			return
		case len(r.st.Loop.Failed) >= int(s.Loop.Tolerated):
			r.fail(ctx, o, s.Backoff, p)
			return
		}
		r.st.Loop.Failed = append(r.st.Loop.Failed, expr.Clip(o.Err.Error(), v1alpha1.TextLimit))
	} else {
		r.st.Loop.Done++
		if s.Releases != "" {
			r.removeHeld(r.heldAs(s.Releases))
		}
		r.resetBackoff()
	}
	l.left = slices.DeleteFunc(l.left, func(it *item) bool { return it == r.item })
	r.stored(r.saveItems())
	if len(l.left) > 0 && r.input.Now().Sub(l.saved) >= longStep {
		r.commitItems()
	}
}

// stored is for an error that cannot be: what is left was stored before.
func (r *Run) stored(err error) {
	if err != nil {
		r.next = r.refuse(err)
	}
}

// endRound waits until what is under way can be looked at again.
func (r *Run) endRound(ctx context.Context, s *program.Step, p *program.Phase, under []*item) *Decision {
	l := r.round
	if l.failed != nil {
		return r.fail(ctx, *l.failed, s.Backoff, p)
	}
	if !l.due && s.Bound.Spec.External {
		return r.leaveOff(fmt.Sprintf("%s is called again at %s", s.Label, r.due.UTC().Format(time.RFC3339)), r.due)
	}
	if r.late(r.input.Now()) {
		return r.fail(ctx, r.timedOut(p, progress(r.st.Loop, len(under))+"; "+l.waits), s.Backoff, p)
	}
	r.resetBackoff()
	r.message = cmp.Or(s.Text.Render(r.value(ctx)), fmt.Sprintf("%s: %s", s.Label, progress(r.st.Loop, len(under))))
	r.st.Blocked = []v1alpha1.Blocked{{Step: s.Label, Guard: progress(r.st.Loop, len(under)), Value: expr.Clip(l.waits, v1alpha1.TextLimit)}}
	after := cmp.Or(l.after, s.PollEvery, defaultPoll)
	if r.called {
		r.polls(after)
	}
	return r.sleep(after)
}

func progress(l *v1alpha1.Loop, under int) string {
	text := fmt.Sprintf("%d of %d done, %d under way", l.Done, l.Total, under)
	if n := len(l.Failed); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	return text
}

// endLoop ends the step: its outputs are what came of the items.
func (r *Run) endLoop(ctx context.Context, s *program.Step, p *program.Phase) *Decision {
	failed := make([]any, len(r.st.Loop.Failed))
	for i, line := range r.st.Loop.Failed {
		key, _, _ := strings.Cut(line, ": ")
		failed[i] = key
	}
	if err := r.merge(s.Label, map[string]any{"done": int64(r.st.Loop.Done), "failed": failed}); err != nil {
		return r.fail(ctx, Result{Err: Terminal("BadOutputs", "%s: %w", s.Label, err)}, s.Backoff, p)
	}
	r.advance()
	return nil
}
