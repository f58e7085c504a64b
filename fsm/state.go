package fsm

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// state is where an object stands: what is to be stored of it, and what was observed.
type state struct {
	m     *Machine
	input Observation
	st    v1alpha1.MachineStatus
	// result is st.Result, decoded.
	result map[string]any
	// item is the one that a step with forEach is about now.
	item *item
}

// State is what is to be stored, in the run's own memory: for a proof, which makes very many runs and needs no copy.
func (s *state) State() *v1alpha1.MachineStatus { return &s.st }

func (s *state) phase() *program.Phase { return s.m.prog.Phases[s.st.Phase] }

func (s *state) now() metav1.MicroTime {
	return metav1.NewMicroTime(s.input.Now().Truncate(time.Microsecond))
}

// begun tells whether the steps have been, which come after the preconditions.
func (s *state) begun() bool { return s.st.StepIndex > 0 || s.st.Step != "" || len(s.st.Held) > 0 }

// restart makes the next look begin with the first step.
func (s *state) restart() {
	s.st.StepIndex, s.st.Step, s.st.StepEnteredAt, s.st.Loop, s.st.Streak = 0, "", nil, nil, nil
}

// enter begins a visit.
func (s *state) enter(to, reason, message string) *v1alpha1.Transition {
	now := s.now()
	took := s.note(v1alpha1.Transition{From: s.st.Phase, To: to, At: now, Reason: program.Word(reason), Message: expr.Clip(message, 512)})
	s.st.EnteredAt, s.st.FirstEnteredAt, s.st.EnteredAs, s.st.Generation = &now, nil, "", s.input.Generation
	s.restart()
	s.st.Attempts, s.st.NotBefore, s.st.TriedGeneration = 0, nil, 0
	s.st.Result, s.result, s.st.Acquiring = "", nil, ""
	s.arrive(to)
	return took
}

func (s *state) note(t v1alpha1.Transition) *v1alpha1.Transition {
	if s.st.EnteredAt != nil {
		t.Took = metav1.Duration{Duration: t.At.Sub(s.st.EnteredAt.Time).Round(time.Millisecond)}
	}
	history := append(s.st.History, t)
	s.st.History = history[max(0, len(history)-v1alpha1.HistoryLimit):]
	return &t
}

// arrive stores the phase, and what it says of every object in it, but for the deadline.
func (s *state) arrive(to string) {
	p := s.m.prog.Phases[to]
	s.st.Phase, s.st.Blocked, s.st.Deadline = to, nil, nil
	s.st.Held = slices.DeleteFunc(s.st.Held, func(h v1alpha1.HeldEffect) bool { return slices.Contains(p.Keeps, h.Effect()) })
}

// fixed are the parameters that the action of a step has from the ledger: of two entries
// of one name, from the newest.
func (s *state) fixed(step *program.Step) (expr.Params, error) {
	for _, h := range slices.Backward(s.st.Held) {
		switch h.Name {
		case s.heldAs(step.Acquires):
			return decodeParams(h.Acquired)
		case s.heldAs(step.Releases):
			return decodeParams(h.With)
		}
	}
	return nil, nil
}

// removeHeld takes what was released off the ledger: the newest of its name.
func (s *state) removeHeld(effect string) {
	for i, h := range slices.Backward(s.st.Held) {
		if h.Name == effect {
			s.st.Held = slices.Delete(s.st.Held, i, i+1)
			return
		}
	}
}

// heldAs is the name under which the current step holds an effect.
func (s *state) heldAs(effect string) string {
	if s.item == nil || effect == "" {
		return effect
	}
	return v1alpha1.Keyed(effect, s.item.Key)
}
