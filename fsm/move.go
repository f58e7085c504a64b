package fsm

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// exits are looked at once the steps are done; the first open one is taken.
func (r *Run) exits(ctx context.Context, p *program.Phase) *Command {
	r.calm()
	for _, x := range p.Exits {
		asked := r.truth(ctx, x.WhenExpr)
		if asked.open {
			return r.take(ctx, program.NextEvent(x.Exit), x.Text.Render(r.value(ctx)), x.WhenExpr)
		}
		if len(r.st.Blocked) == v1alpha1.BlockedLimit {
			continue
		}
		r.st.Blocked = append(r.st.Blocked, v1alpha1.Blocked{To: x.To, Guard: asked.because, Value: asked.got})
	}
	r.message = p.Text.Render(r.value(ctx))
	r.restart()
	if p.External {
		r.polls(cmp.Or(p.PollEvery, defaultPoll))
	}
	if p.Terminal != "" && p.Poll == "" {
		return r.sleep(0)
	}
	return r.sleep(p.PollEvery)
}

func (r *Run) enter(to, from, reason, message string) {
	now := r.now()
	r.noteTransition(to, from, reason, message, now)
	r.st.EnteredAt, r.st.EnteredAs, r.st.Generation = &now, "", r.input.Generation
	r.restart()
	r.st.Attempts, r.st.NotBefore, r.st.TriedGeneration = 0, nil, 0
	r.timing = timing{again: r.again}
	r.st.Result, r.result, r.stall = "", nil, nil
	r.message = message // without one, the phase tells its own story
	r.arrive(to)
}

// rename goes on with a visit under the name that the phase has in this revision: its entry
// time and its deadline go on, and what its steps have made is found again.
func (r *Run) rename(to, reason string) {
	r.noteTransition(to, r.st.Phase, reason, "", r.now())
	if r.st.EnteredAs = cmp.Or(r.st.EnteredAs, r.st.Phase); r.st.EnteredAs == to {
		r.st.EnteredAs = ""
	}
	r.arrive(to)
	r.goOn()
}

func (r *Run) noteTransition(to, from, reason, message string, now metav1.MicroTime) {
	t := v1alpha1.Transition{From: from, To: to, At: now, Reason: program.Word(reason), Message: expr.Clip(message, 512)}
	if r.st.EnteredAt != nil {
		t.Took = metav1.Duration{Duration: now.Sub(r.st.EnteredAt.Time).Round(time.Millisecond)}
	}
	history := append(r.st.History, t)
	r.st.History = history[max(0, len(history)-v1alpha1.HistoryLimit):]
	r.commit(&t)
}

// arrive stores the phase, and what it says of every object in it.
func (r *Run) arrive(to string) {
	p := r.m.prog.Phases[to]
	r.st.Phase, r.st.Blocked, r.st.Deadline = to, nil, deadlineOf(p, r.st.EnteredAt)
	r.st.Held = slices.DeleteFunc(r.st.Held, func(h v1alpha1.HeldEffect) bool { return slices.Contains(p.Keeps, h.Name) })
}
