package fsm

import (
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// View is what the driver observed of the object before a run.
type View struct {
	// Self is the object as unstructured data.
	Self map[string]any
	// Deleting is true once the object has a deletion timestamp.
	Deleting bool
	// Finalizer is true when the object bears the machine's finalizer.
	Finalizer bool
	// GenerationChanged is true when the spec changed since the last status write.
	GenerationChanged bool
	// Guard answers a named Go guard: whether it is open, what was seen, or an
	// error. It is called at most once per name and run, only when needed.
	Guard func(name string) (open bool, seen string, err error)
	// Now is the clock.
	Now func() time.Time
	// Random answers numbers in [0,1) for jitter; nil means no jitter.
	Random func() float64
}

// Verb is what the driver must do next.
type Verb string

// The commands of a run.
const (
	// Act: call the action and hand its outcome to Done.
	Act Verb = "Act"
	// Commit: write the status with a precondition on the resource version, then
	// start a new run from what was written.
	Commit Verb = "Commit"
	// AddFinalizer: add the machine's finalizer, then start a new run.
	AddFinalizer Verb = "AddFinalizer"
	// RemoveFinalizer: remove the machine's finalizer; the object may be gone then.
	RemoveFinalizer Verb = "RemoveFinalizer"
	// Sleep: write the status if it changed; come back after Command.After, or
	// when something changes if that is 0.
	Sleep Verb = "Sleep"
)

// Command is one thing to do.
type Command struct {
	Do Verb
	// Action, Step and With belong to Act. Effect is set when the action gives
	// back a held effect.
	Action, Step, Effect string
	With                 Params
	// After belongs to Sleep.
	After time.Duration
	// Took is the edge that a Commit makes durable; nil when there is none.
	Took *v1alpha1.Transition
}

// Run is one pass over an object: a notebook that is thrown away afterwards.
// It is not safe for concurrent use.
type Run struct {
	m      *Machine
	view   View
	st     v1alpha1.MachineStatus
	result map[string]any
	guards map[string]guardAnswer

	// acting is what Done will hear about; began is when it was asked for.
	acting *Command
	began  time.Time
	// next is a command decided by Done or by a transition.
	next    *Command
	message string
	stall   *stall
}

type guardAnswer struct {
	open bool
	seen string
	err  error
}

type stall struct{ reason, message string }

// longStep is how long a step may take before its end is made durable at once,
// so that a crash does not repeat it.
const longStep = time.Second

// Run starts a pass from a stored status, which is not changed.
func (m *Machine) Run(status v1alpha1.MachineStatus, v View) *Run {
	r := &Run{m: m, view: v, st: *status.DeepCopy(), guards: map[string]guardAnswer{}}
	r.result = decodeResult(r.st.Result)
	return r
}

// Status is what is to be stored now.
func (r *Run) Status() v1alpha1.MachineStatus {
	st := *r.st.DeepCopy()
	st.Name, st.Revision = r.m.def.Metadata.Name, r.m.def.Revision
	st.Result = encodeResult(r.result)
	st.OnDelete = r.onDelete()
	return st
}

// Next answers what to do. After Act it must not be called before Done.
func (r *Run) Next() Command {
	if r.next != nil {
		return *r.next
	}
	if r.st.Phase == "" {
		return r.begin()
	}
	p := r.phase()
	if p == nil {
		return r.unknownPhase()
	}
	if r.view.Deleting && !r.view.Finalizer {
		return r.sleep(0) // nothing of ours holds it: it is gone in a moment
	}
	if p.End {
		return Command{Do: RemoveFinalizer}
	}
	if cmd := r.deletion(p); cmd != nil {
		return *cmd
	}
	if cmd := r.deadline(p); cmd != nil {
		return *cmd
	}
	if cmd := r.admit(p); cmd != nil {
		return *cmd
	}
	if cmd := r.steps(p); cmd != nil {
		return *cmd
	}
	return r.exits(p)
}

func (r *Run) phase() *phase { return r.m.prog.phases[r.st.Phase] }

func (r *Run) now() metav1.MicroTime {
	return metav1.NewMicroTime(r.view.Now().Truncate(time.Microsecond))
}

func (r *Run) begin() Command {
	if r.view.Deleting && !r.view.Finalizer {
		return r.sleep(0)
	}
	r.enter(r.m.def.Spec.Initial, "", "Created", "")
	return *r.next
}

func (r *Run) unknownPhase() Command {
	r.stall = &stall{reason: "UnknownPhase", message: fmt.Sprintf(
		"phase %q is not in revision %s of machine %s: restore the phase in the machine file, or add it to spec.upgrade.phaseMap",
		r.st.Phase, r.m.def.Revision, r.m.def.Metadata.Name)}
	r.message = r.stall.message
	return r.sleep(0)
}

// deletion is total: it asks no guard of the machine's author.
func (r *Run) deletion(p *phase) *Command {
	if !r.view.Deleting || p.Deletion {
		return nil
	}
	switch {
	case p.OnDelete.To != "":
		return r.take(p, deleteEvent, "DeletionRequested", "", nil)
	case p.OnDelete.None && len(r.st.Held) == 0:
		return &Command{Do: RemoveFinalizer}
	case p.OnDelete.None:
		r.stall = &stall{"EffectsHeld", fmt.Sprintf("held: %v; a machine that holds effects here has a defect", r.st.Held)}
		cmd := r.sleep(0)
		return &cmd
	}
	return nil // hold: go on
}

func (r *Run) deadline(p *phase) *Command {
	if p.Timeout == nil || r.st.Deadline == nil || r.view.Now().Before(r.st.Deadline.Time) {
		return nil
	}
	if p.Timeout.To != "" {
		return r.take(p, timeoutEvent, firstOf(p.Timeout.Reason, "Timeout"),
			fmt.Sprintf("%s lasted longer than %s: %s", p.Name, p.Timeout.After, r.waitingFor()), nil)
	}
	r.stall = &stall{p.Timeout.Stalled, fmt.Sprintf("%s lasts longer than %s", p.Name, p.Timeout.After)}
	return nil
}

// waitingFor tells what the last pass had been waiting for.
func (r *Run) waitingFor() string {
	if len(r.st.Blocked) == 0 {
		return "no step was blocked"
	}
	b := r.st.Blocked[0]
	return clip(firstOf(b.Got, b.Because), 160)
}

// admit checks the preconditions, then puts the finalizer in place: nothing
// that needs undoing may happen before.
func (r *Run) admit(p *phase) *Command {
	if r.view.Finalizer || p.Deletion || p.Terminal != "" {
		return nil
	}
	for i, q := range p.require {
		ok, seen, err := r.truth(q.when)
		if err != nil {
			r.fail(Outcome{Err: fmt.Errorf("checking whether %s: %w", q.When, err), Class: ClassUnavailable}, p.retry, p)
			return r.next
		}
		if !ok {
			return r.take(p, requireEvent(i), q.Reason, firstOf(q.message.render(r.vars()), seen), nil)
		}
	}
	if r.m.def.Spec.Finalizer == "" {
		return nil
	}
	return &Command{Do: AddFinalizer}
}

// steps walks on from the cursor; nil means that the last step is done.
func (r *Run) steps(p *phase) *Command {
	for int(r.st.Cursor) < len(p.steps) {
		s := &p.steps[r.st.Cursor]
		if r.st.Step == "" {
			now := r.now()
			r.st.Step, r.st.StepSince = s.name, &now
		}
		if s.cond != nil {
			ok, _, err := r.truth(s.cond)
			if err != nil {
				r.fail(Outcome{Err: fmt.Errorf("if %s: %w", s.If, err), Class: ClassUnavailable}, s.retry, p)
				return r.next
			}
			if !ok {
				r.advance()
				continue
			}
		}
		if cmd := r.oneStep(s); cmd != nil {
			return cmd
		}
	}
	return nil
}

func (r *Run) oneStep(s *step) *Command {
	switch {
	case s.wait > 0:
		if left := s.wait - r.view.Now().Sub(r.st.StepSince.Time); left > 0 {
			r.message = firstOf(s.message.render(r.vars()), "Waiting "+s.Wait)
			cmd := r.sleep(left)
			return &cmd
		}
		r.advance()
		return nil
	case s.Undo != "":
		if len(r.st.Held) == 0 {
			r.advance()
			return nil
		}
		last := r.m.prog.effects[r.st.Held[len(r.st.Held)-1]]
		return r.act(Command{Action: last.Release, Effect: last.Name, Step: s.name})
	case s.acquires != "" && !slices.Contains(r.st.Held, s.acquires):
		// The ledger is written before the deed: a crash in between costs a
		// release of something that was never taken, which is harmless.
		r.st.Held = append(r.st.Held, s.acquires)
		return r.commit(nil)
	}
	return r.act(Command{Action: s.Action, Step: s.name, With: s.With})
}

func (r *Run) act(cmd Command) *Command {
	cmd.Do = Act
	r.acting, r.began = &cmd, r.view.Now()
	return &cmd
}

func (r *Run) commit(took *v1alpha1.Transition) *Command {
	r.next = &Command{Do: Commit, Took: took}
	return r.next
}

// Done tells the outcome of the action that Next asked for.
func (r *Run) Done(o Outcome) {
	cmd, p := r.acting, r.phase()
	if cmd == nil {
		return
	}
	r.acting = nil
	s := &p.steps[r.st.Cursor]
	if w := o.wait(); w != nil {
		r.wait(s, w)
		return
	}
	if o.Err != nil {
		r.fail(o, s.retry, p)
		return
	}
	r.st.Attempts, r.st.Blocked = 0, nil
	r.merge(o.Outputs)
	switch {
	case cmd.Effect != "":
		r.drop(cmd.Effect)
	case s.releases != "":
		r.drop(s.releases)
	}
	if cmd.Effect == "" && r.reached(s) {
		r.advance()
	}
	if r.next == nil && r.view.Now().Sub(r.began) >= longStep {
		r.commit(nil)
	}
}

func (r *Run) wait(s *step, w *WaitError) {
	r.st.Attempts = 0
	r.message = firstOf(s.message.render(r.vars()), w.Message)
	r.st.Blocked = []v1alpha1.Blocked{{Step: s.name, Because: "the step is not done", Got: clip(w.Message, 1024)}}
	after := w.After
	if after <= 0 {
		after = s.poll
	}
	cmd := r.sleep(after)
	r.next = &cmd
}

// reached is false while the step's `until` is not true; the run sleeps then.
func (r *Run) reached(s *step) bool {
	if s.until == nil {
		return true
	}
	ok, seen, err := r.truth(s.until)
	if err == nil && ok {
		return true
	}
	r.st.Blocked = []v1alpha1.Blocked{{Step: s.name, Because: clip(s.Until, 1024), Got: seen}}
	r.message = firstOf(s.message.render(r.vars()), fmt.Sprintf("Waiting in step %s until %s", s.name, s.Until))
	cmd := r.sleep(s.poll)
	r.next = &cmd
	return false
}

func (r *Run) drop(effect string) {
	r.st.Held = slices.DeleteFunc(r.st.Held, func(h string) bool { return h == effect })
}

func (r *Run) advance() {
	r.st.Cursor++
	r.st.Step, r.st.StepSince = "", nil
}

// exits are looked at once the steps are done; the first open one is taken.
func (r *Run) exits(p *phase) Command {
	r.st.Blocked = nil
	for i, x := range p.next {
		ok, seen, err := true, "", error(nil)
		if x.when != nil {
			ok, seen, err = r.truth(x.when)
		}
		if err == nil && ok {
			return *r.take(p, nextEvent(i), x.Reason, x.message.render(r.vars()), x.when)
		}
		r.st.Blocked = append(r.st.Blocked, v1alpha1.Blocked{To: x.To, Because: clip(x.When, 1024), Got: seen})
	}
	r.message = p.message.render(r.vars())
	r.st.Cursor, r.st.Step, r.st.StepSince = 0, "", nil // the next look begins with the first step
	if p.Terminal != "" && p.Poll == "" {
		return r.sleep(0)
	}
	return r.sleep(p.poll)
}

// take moves along an edge of the table.
func (r *Run) take(p *phase, event, reason, message string, guard *expr) *Command {
	to, err := r.m.prog.table.fire(p.Name+"."+event, p.Name, func() error {
		if guard == nil {
			return nil
		}
		if ok, seen, err := r.truth(guard); err != nil || !ok {
			return fmt.Errorf("guard %s: %s", guard.text, seen)
		}
		return nil
	})
	if err != nil {
		r.stall = &stall{"IllegalTransition", err.Error()}
		r.message = err.Error()
		cmd := r.sleep(p.poll)
		return &cmd
	}
	r.recordRequests(guard)
	r.enter(to, p.Name, firstOf(reason, event), message)
	return r.next
}

func (r *Run) enter(to, from, reason, message string) {
	now := r.now()
	t := v1alpha1.Transition{From: from, To: to, At: now, Reason: clip(reason, 128), Message: clip(message, 256)}
	if r.st.Since != nil {
		t.Took = metav1.Duration{Duration: now.Sub(r.st.Since.Time).Round(time.Millisecond)}
	}
	history := append(r.st.History, t)
	r.st.History = history[max(0, len(history)-v1alpha1.HistoryLimit):]
	r.st.Phase, r.st.Since = to, &now
	r.st.Step, r.st.StepSince, r.st.Cursor, r.st.Attempts = "", nil, 0, 0
	r.st.Blocked, r.st.NextCheck, r.st.Deadline = nil, nil, nil
	r.result, r.stall = nil, nil
	if d := r.m.prog.phases[to].timeout; d > 0 {
		deadline := metav1.NewMicroTime(now.Add(d))
		r.st.Deadline = &deadline
	}
	r.message = firstOf(message, reason)
	r.commit(&t)
}

// fail decides between retry and catch.
func (r *Run) fail(o Outcome, policy retry, p *phase) {
	r.st.Attempts++
	text := o.Err.Error()
	class, reason := o.Class, ""
	if t := o.terminal(); t != nil {
		class, reason = ClassTerminal, t.Reason
	}
	exhausted := policy.attempts > 0 && r.st.Attempts >= policy.attempts
	for i, e := range p.OnError {
		// A class that is retried for ever could never be caught: an explicit
		// mention of it then catches at once.
		named := Class(e.Is) == class && (class == ClassTerminal || policy.attempts == 0)
		if named || exhausted && (Class(e.Is) == class || Class(e.Is) == ClassAny) || class == ClassTerminal && Class(e.Is) == ClassAny {
			r.next = r.take(p, errorEvent(i), firstOf(e.Reason, reason), text, nil)
			return
		}
	}
	if exhausted && policy.to != "" {
		r.next = r.take(p, r.retryEvent(p, policy), "RetriesExhausted", text, nil)
		return
	}
	delay := policy.delay(r.st.Attempts, r.view.Random)
	if class == ClassTerminal || exhausted {
		r.stall, delay = &stall{firstOf(reason, "RetriesExhausted"), text}, policy.max
	}
	delay = max(delay, o.RetryAfter)
	r.st.Blocked = []v1alpha1.Blocked{{Step: r.st.Step, Because: fmt.Sprintf("%s error, attempt %d", class, r.st.Attempts), Got: clip(text, 1024)}}
	r.message = fmt.Sprintf("%s (attempt %d, next in %s)", text, r.st.Attempts, delay.Round(100*time.Millisecond))
	cmd := r.sleep(delay)
	r.next = &cmd
}

func (r *Run) retryEvent(p *phase, policy retry) string {
	if policy.to == p.retry.to {
		return retryEvent
	}
	return stepRetryEvent(int(r.st.Cursor))
}

func (q retry) delay(attempt int32, random func() float64) time.Duration {
	d := min(float64(q.base)*math.Pow(q.factor, float64(attempt-1)), float64(q.max))
	if random != nil {
		d *= 1 + q.jitter*(2*random()-1)
	}
	return time.Duration(d)
}

// sleep ends the run; a deadline cuts it short.
func (r *Run) sleep(after time.Duration) Command {
	if r.st.Deadline != nil && r.stall == nil {
		if left := max(r.st.Deadline.Sub(r.view.Now()), time.Millisecond); after == 0 || left < after {
			after = left
		}
	}
	r.st.NextCheck = nil
	if p := r.phase(); after > 0 && p != nil && p.Kind != "steady" && p.Terminal == "" {
		next := metav1.NewMicroTime(r.view.Now().Add(after).Truncate(time.Second))
		r.st.NextCheck = &next
	}
	return Command{Do: Sleep, After: after}
}
