package fsm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// The conditions that every machine-driven object has (kstatus).
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// The reasons of Ready in a steady phase whose look did not come to its end.
const (
	ReasonStepFailed  = "StepFailed"
	ReasonStepNotDone = "StepNotDone"
)

// Summary is what people and tools see of a run.
type Summary struct {
	// Phase is the display name: that of an effect that is held, else that of the phase.
	Phase string
	// Message is at most 1024 bytes. It begins with the display name of the phase where an effect
	// has another one.
	Message string
	// Conditions are Ready, Reconciling and Stalled, without times.
	Conditions []metav1.Condition
	// Unknown is true in a phase that this revision does not have.
	Unknown bool
}

// told is what a run says of a state.
type told struct {
	*state
	message string
	stall   *stall
	// created: the run has only begun the first visit.
	created bool
}

// Summary tells the state that Status stores, in the words of the API.
func (r *Run) Summary() Summary {
	s := told{&r.state, r.message, r.stall, r.next != nil && r.next.Transition != nil && r.next.Transition.From == ""}
	p := s.phase()
	if p == nil {
		return Summary{Phase: s.st.Phase, Message: s.message, Conditions: conditions("Unknown", s.message, nil, false, s.stall), Unknown: s.st.Phase != ""}
	}
	text := s.text(p)
	shown, message := cmp.Or(p.ShowAs, p.Name), text
	if by := s.shownByEffect(); by != "" && by != shown {
		shown, message = by, shown+": "+text
	}
	return Summary{
		Phase:      shown,
		Message:    expr.Clip(message, v1alpha1.TextLimit),
		Conditions: conditions(s.reason(p), expr.Clip(text, v1alpha1.TextLimit), p, s.incomplete(p), s.stall),
	}
}

// shownByEffect is what the newest effect that is held, of those that have a display name, shows.
func (s told) shownByEffect() string {
	for _, h := range slices.Backward(s.st.Held) {
		if e := s.m.prog.Effects[h.Effect()]; e.ShowAs != "" {
			return e.ShowAs
		}
	}
	return ""
}

func (s told) text(p *program.Phase) string {
	text := s.message
	if text == "" {
		text = s.defaultMessage(p)
	}
	if s.stall != nil && !strings.Contains(text, s.stall.message) {
		text = s.stall.message + ". " + text
	}
	if s.input.Deleting && p.OnDelete != nil && p.OnDelete.Hold != "" {
		text = p.OnDelete.Hold + ". " + text
	}
	return text
}

// defaultMessage is the message of a phase that has none: for a failure, its cause.
func (s told) defaultMessage(p *program.Phase) string {
	if t := s.cause(p); t != nil {
		return t.Reason + ": " + t.Message
	}
	if s.incomplete(p) {
		return "the steps of " + p.Name + " are not done yet"
	}
	return cmp.Or(p.Description, s.reason(p))
}

// cause is the transition that tells why a phase of failure was entered: the
// last one that says something, but none from before an earlier end.
func (s told) cause(p *program.Phase) *v1alpha1.Transition {
	if p.Terminal != v1alpha1.PhaseFailure {
		return nil
	}
	for i, t := range slices.Backward(s.st.History) {
		from := s.m.prog.Phases[t.From]
		if t.Message != "" {
			return &s.st.History[i]
		}
		if from == nil || from.Terminal != "" {
			return nil
		}
	}
	return nil
}

// incomplete tells that the look at a steady phase has not come to its end: a step fails,
// waits or was not reached yet. Nobody knows then whether the object is as its spec
// wants it, which may be newer than the last look that came there.
func (s told) incomplete(p *program.Phase) bool {
	if p.Kind != v1alpha1.PhaseSteady {
		return false
	}
	return s.created && len(p.StepList) > 0 || s.st.Step != "" || s.st.Attempts > 0
}

func (s told) reason(p *program.Phase) string {
	if s.incomplete(p) {
		if s.st.Attempts > 0 {
			return ReasonStepFailed
		}
		return ReasonStepNotDone
	}
	if p.Kind == v1alpha1.PhaseProgressing || p.Kind == "" && p.Terminal == "" {
		return program.Word(p.Name)
	}
	if t := s.cause(p); t != nil {
		return t.Reason
	}
	if n := len(s.st.History); n > 0 && s.st.History[n-1].Reason != "" {
		return s.st.History[n-1].Reason
	}
	return program.Word(p.Name)
}

func conditions(reason, message string, p *program.Phase, incomplete bool, s *stall) []metav1.Condition {
	ready, reconciling, stalled := metav1.ConditionFalse, metav1.ConditionTrue, metav1.ConditionFalse
	stalledReason, stalledMessage := "WithinDeadline", ""
	switch {
	case s != nil:
		reconciling, stalled = metav1.ConditionFalse, metav1.ConditionTrue
		stalledReason, stalledMessage = s.reason, expr.Clip(s.message, v1alpha1.TextLimit)
	case p == nil:
	case p.Terminal == v1alpha1.PhaseFailure:
		reconciling, stalled = metav1.ConditionFalse, metav1.ConditionTrue
		stalledReason, stalledMessage = reason, message
	case p.Terminal == v1alpha1.PhaseSuccess, p.Kind == v1alpha1.PhaseSteady && !incomplete:
		ready, reconciling = metav1.ConditionTrue, metav1.ConditionFalse
	}
	return []metav1.Condition{
		{Type: ConditionReady, Status: ready, Reason: reason, Message: message},
		{Type: ConditionReconciling, Status: reconciling, Reason: reason, Message: message},
		{Type: ConditionStalled, Status: stalled, Reason: stalledReason, Message: stalledMessage},
	}
}

// waitingFor tells what the last pass had been waiting for. Of closed exits the first
// may be about something that nobody asks for: the phase's own words are better.
func (vs *values) waitingFor(ctx context.Context, p *program.Phase) string {
	if len(vs.st.Blocked) == 0 { // no driver stores it
		return expr.Clip(cmp.Or(vs.input.Message, vs.standing()), v1alpha1.TextLimit/4)
	}
	b := vs.st.Blocked[0]
	if message := p.Text.Render(vs.value(ctx)); b.Step == "" && message != "" {
		return message
	}
	return expr.Clip(cmp.Or(b.Value, b.Guard), 160)
}

// standing is how far the steps have come, as far as the state tells.
func (s *state) standing() string {
	switch {
	case s.st.Step != "" && s.st.Attempts > 0:
		return fmt.Sprintf("step %s has failed %d times in a row", s.st.Step, s.st.Attempts)
	case s.st.Step != "":
		return fmt.Sprintf("step %s was not done", s.st.Step)
	}
	return "all steps were done, and no exit was open"
}

// onDelete tells what a deletion would do now.
func (s *state) onDelete() *v1alpha1.DeletionStatus {
	p := s.phase()
	blocked := func(message string) *v1alpha1.DeletionStatus {
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionBlocked, Message: expr.Clip(message, 512)}
	}
	switch {
	case s.lost():
		return blocked("until its state is recovered")
	case s.st.Phase == "":
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate}
	case p == nil:
		return blocked("until the phase is known again")
	case p.Deletion:
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionInProgress}
	case p.OnDelete.Hold != "":
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionHold, Message: expr.Clip(p.OnDelete.Hold, 512)}
	case p.OnDelete.Immediate && len(s.st.Held) > 0:
		return blocked("nothing here releases " + strings.Join(s.st.HeldNames(), ", "))
	case p.OnDelete.Immediate:
		return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionImmediate}
	}
	return &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionTransition, To: p.OnDelete.To}
}

// OnDelete says what a deletion of an object in this state would do, as
// MachineStatus.OnDelete does, whose field not every CRD keeps. known is false where the
// machine has no such phase: another revision of it does.
func (m *Machine) OnDelete(st v1alpha1.MachineStatus) (does *v1alpha1.DeletionStatus, known bool) {
	s := state{m: m, st: st}
	return s.onDelete(), st.Phase == "" || s.phase() != nil
}

// Deletion says for people what a deletion does, as the status has it, else as the machine
// says: with what is released on the way. It is nil where nobody has looked at the object, and
// where the machine does not know.
func (m *Machine) Deletion(st v1alpha1.MachineStatus) *v1alpha1.DeletionStatus {
	does := st.OnDelete
	if does == nil && st.Phase != "" {
		if now, known := m.OnDelete(st); known {
			does = now
		}
	}
	if does == nil || does.Mode != v1alpha1.DeletionTransition || len(st.Held) == 0 || !m.undoes(does.To) {
		return does
	}
	releases := st.HeldNames()
	slices.Reverse(releases)
	return &v1alpha1.DeletionStatus{Mode: does.Mode, To: does.To, Message: expr.Clip("releases "+strings.Join(releases, ", "), 512)}
}

func (m *Machine) undoes(phase string) bool {
	p := m.prog.Phases[phase]
	return p != nil && slices.ContainsFunc(p.Steps, func(s v1alpha1.Step) bool { return s.Undo != "" })
}

// Status is what is to be stored now.
func (s *state) Status() v1alpha1.MachineStatus {
	st := *s.st.DeepCopy()
	st.Name, st.Revision = s.m.def.Metadata.Name, s.m.def.Revision
	if p := s.phase(); p != nil { // else a later revision may have it again
		st.PhaseRevision = p.Revision
	}
	st.OnDelete = s.onDelete()
	return st
}
