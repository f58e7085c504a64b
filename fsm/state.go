package fsm

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/expr"
	"github.com/phasegate/phasegate/fsm/program"
)

// state is where an object stands: what is to be stored of it, and what was observed.
type state struct {
	m     *Machine
	input Observation
	st    v1alpha1.MachineStatus
	// result is st.Result, decoded.
	result map[string]any
}

// State is what is to be stored, in the run's own memory: for a proof, which makes very many runs and needs no copy.
func (s *state) State() *v1alpha1.MachineStatus { return &s.st }

func (s *state) phase() *program.Phase { return s.m.prog.Phases[s.st.Phase] }

func (s *state) now() metav1.MicroTime {
	return metav1.NewMicroTime(s.input.Now().Truncate(time.Microsecond))
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

// begun tells whether the steps have been, which come after the preconditions.
func (s *state) begun() bool { return s.st.StepIndex > 0 || s.st.Step != "" || len(s.st.Held) > 0 }

// restart makes the next look begin with the first step.
func (s *state) restart() {
	s.st.StepIndex, s.st.Step, s.st.StepEnteredAt = 0, "", nil
}

// enter begins a visit.
func (s *state) enter(to, reason, message string) *v1alpha1.Transition {
	now := s.now()
	took := s.note(v1alpha1.Transition{From: s.st.Phase, To: to, At: now, Reason: program.Word(reason), Message: expr.Clip(message, 512)})
	s.st.EnteredAt, s.st.EnteredAs, s.st.Generation = &now, "", s.input.Generation
	s.restart()
	s.st.Attempts, s.st.NotBefore, s.st.TriedGeneration = 0, nil, 0
	s.st.Result, s.result = "", nil
	s.arrive(to)
	return took
}

// rename goes on with a visit under the name that the phase has in this revision: its entry
// time and its deadline go on, and what its steps have made is found again.
func (s *state) rename(to, reason string) *v1alpha1.Transition {
	took := s.note(v1alpha1.Transition{From: s.st.Phase, To: to, At: s.now(), Reason: program.Word(reason)})
	if s.st.EnteredAs = cmp.Or(s.st.EnteredAs, s.st.Phase); s.st.EnteredAs == to {
		s.st.EnteredAs = ""
	}
	s.arrive(to)
	s.goOn()
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

// arrive stores the phase, and what it says of every object in it.
func (s *state) arrive(to string) {
	p := s.m.prog.Phases[to]
	s.st.Phase, s.st.Blocked, s.st.Deadline = to, nil, deadlineOf(p, s.st.EnteredAt)
	s.st.Held = slices.DeleteFunc(s.st.Held, func(h v1alpha1.HeldEffect) bool { return slices.Contains(p.Keeps, h.Name) })
}
