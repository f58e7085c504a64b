package fsm

import (
	"slices"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// Holds tells whether an effect is held that an action of the program takes. A status of an
// older revision is read by upgrade.effectMap.
func (m *Machine) Holds(st *v1alpha1.MachineStatus, action string) bool {
	return m.holds(st, func(e program.Effect) bool { return e.BoundAcquire.Use == action })
}

// HoldsRole tells whether an effect is held that has a role.
func (m *Machine) HoldsRole(st *v1alpha1.MachineStatus, role string) bool {
	return m.holds(st, func(e program.Effect) bool { return e.Role == role })
}

func (m *Machine) holds(st *v1alpha1.MachineStatus, is func(program.Effect) bool) bool {
	return slices.ContainsFunc(st.Held, func(h v1alpha1.HeldEffect) bool {
		e, known := m.prog.Effects[h.Name]
		if u := m.def.Spec.Upgrade; !known && u != nil {
			e, known = m.prog.Effects[u.EffectMap[h.Name]]
		}
		return known && is(e)
	})
}
