package fsm

import (
	"cmp"
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// adopt gives a status that another revision wrote the names of this one. It answers whether
// the phase begins again.
func (s *state) adopt() (again bool) {
	if u := s.m.def.Spec.Upgrade; u != nil {
		for i := range s.st.Held {
			h := &s.st.Held[i]
			effect, key := v1alpha1.CutKey(h.Name)
			h.Name = v1alpha1.Keyed(successor(u.EffectMap, effect), key)
		}
		s.adoptRequests(u.RequestMap)
	}
	return s.goOn()
}

// goOn finds the step at which an object goes on whose phase another revision drove: where
// it stands if the phase does the same, else where the file says, else at the first. The
// stepIndex would count other steps; and steps are idempotent, so that none is left out. It
// answers whether it is the first.
func (s *state) goOn() (again bool) {
	p, u := s.phase(), s.m.def.Spec.Upgrade
	if p == nil || s.st.PhaseRevision == p.Revision {
		return false
	}
	at := -1
	if u != nil && u.StepMap[s.st.Step] != "" {
		at = slices.IndexFunc(p.StepList, func(step program.Step) bool { return step.Label == u.StepMap[s.st.Step] })
	}
	if at < 0 {
		s.restart()
		return true
	}
	s.st.StepIndex, s.st.Step, s.st.Streak, s.st.Loop = int32(at), p.StepList[at].Label, nil, nil // it may ask for something else, of another list
	return false
}

// adoptRequests makes one of two that have one name by now, as after a rollback: the API server
// would refuse both. The newer one is the last.
func (s *state) adoptRequests(names map[string]string) {
	var adopted []v1alpha1.RequestStatus
	for _, q := range s.st.Requests {
		q.Name = successor(names, q.Name)
		if i := slices.IndexFunc(adopted, func(old v1alpha1.RequestStatus) bool { return old.Name == q.Name }); i >= 0 {
			q = after(q.Name, q.Token, append(marks(q), marks(adopted[i])...))
			adopted = slices.Delete(adopted, i, i+1)
		}
		adopted = append(adopted, q)
	}
	s.st.Requests = adopted
}

func successor(names map[string]string, old string) string { return cmp.Or(names[old], old) }

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
