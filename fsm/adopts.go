package fsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Adopts is an error where an object cannot go on with this machine: its phase is not known
// here, or something that it holds cannot be released. The status is one that any
// revision has stored.
func (m *Machine) Adopts(st v1alpha1.MachineStatus) error {
	r := m.Run(st, Observation{Now: time.Now})
	u := m.def.Spec.Upgrade
	if r.phase() == nil && st.Phase != "" && (u == nil || u.PhaseMap[st.Phase] == "") {
		return fmt.Errorf("it is in phase %s, which is not here: restore the phase, or name its successor in spec.upgrade.phaseMap", st.Phase)
	}
	for _, h := range r.st.Held {
		if _, _, err := m.release(h, notNow); err != nil && !errors.Is(err, errNotNow) {
			return err
		}
	}
	return nil
}

// Resumed is where an object goes on with this machine, of a status that any revision has
// stored. One that cannot go on stays in its phase.
func (m *Machine) Resumed(st v1alpha1.MachineStatus) v1alpha1.MachineStatus {
	r := m.Run(st, Observation{Now: time.Now})
	if st.Phase != "" && r.phase() == nil {
		r.unknownPhase(context.Background())
	}
	return r.Status()
}
