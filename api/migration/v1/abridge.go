package v1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditionReconciling is the runner's.
const conditionReconciling = "Reconciling"

// historyShown is how many transitions leave room for the rest.
const historyShown = 3

// Abridge takes out of the status what people need not see in the object, so that kubectl
// describe prints at most 60 lines: copyAhead, verified, lateWrites, the mode of an enforced lock, of
// progress notCopied, onlyInV3, ownersWithheld and typeDetails, and what the machine has done before.
// The MachineState has all of it, and `kubectl phasegate status` shows it.
func (m *DatastoreMigration) Abridge() {
	s := &m.Status
	s.CopyAhead, s.Verified, s.LateWrites, s.Machine.Requests = nil, nil, nil, nil
	for i := range s.Conditions {
		// What status.observedGeneration says need not be said of each: clients fall back to that.
		if c := &s.Conditions[i]; c.ObservedGeneration == s.ObservedGeneration {
			c.ObservedGeneration = 0
		}
	}
	s.Machine.ShowHistory(historyShown)
	if s.Lock != nil && s.Lock.Mode == LockEnforced {
		m.abridgeLock()
	}
	if p := s.Progress; p != nil {
		p.NotCopied, p.OnlyInV3, p.OwnersWithheld, p.TypeDetails = "", "", 0, nil
		if p.CurrentType == "" {
			p.ObjectsPerSecond = 0
		} else { // the counts and the message say where it stands
			s.Machine.Result = ""
			s.Machine.ShowHistory(1)
		}
	}
	if !meta.IsStatusConditionTrue(s.Conditions, ConditionConflict) {
		return
	}
	// Ready is False, and Conflict says why: Reconciling says no more.
	meta.RemoveStatusCondition(&s.Conditions, conditionReconciling)
	s.Machine.ShowHistory(1)
	s.Machine.Result = "" // the step found the conflicts
}

// abridgeLock shows the end of the lock as the deadline, where it comes before that of the
// phase: a migration that still waits then rolls back.
func (m *DatastoreMigration) abridgeLock() {
	s := &m.Status
	end, phase := s.Lock.Deadline, s.Machine.Deadline
	if end != nil && (phase == nil || end.Time.Before(phase.Time)) {
		at := metav1.NewMicroTime(end.Time)
		s.Machine.Deadline = &at
	}
	s.Lock = nil
}
