package simulate

import (
	"cmp"
	"encoding/json"
	"maps"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// state is what a pass begins with: nothing where no state is stored.
func (w *world) state() v1alpha1.MachineStatus {
	if w.TrustView {
		return w.ShownMachine
	}
	return w.Stored
}

func (w *world) hasState() bool { return w.Stored.Phase != "" && !w.deleted }

// behind tells that the view shows another phase than the state: after a crash.
func (w *world) behind() bool {
	return w.hasState() && !w.gone && w.ShownMachine.Phase != w.Stored.Phase
}

// store is the compare-and-swap of the state, through JSON as a real API server would. It
// creates the state before the first phase is entered.
func (w *world) store(run *fsm.Run, cmd fsm.Decision, base int) error {
	if w.ConflictNext {
		w.ConflictNext = false
		w.stateVersion++
	}
	if base != w.stateVersion {
		w.tell("conflict: another writer changed the state")
		return ErrConflict
	}
	st := run.Status()
	if st.Phase == "" {
		return nil
	}
	// What tells a person what is being waited for belongs to the view.
	st.Blocked, st.OnDelete = nil, nil
	data, err := json.Marshal(st)
	st = v1alpha1.MachineStatus{}
	if err == nil {
		err = json.Unmarshal(data, &st)
	}
	if err != nil {
		w.defect("the state cannot be stored: %v", err)
		return nil
	}
	if old, _ := json.Marshal(w.Stored); string(old) != string(data) {
		w.stateVersion++
	}
	w.Stored, w.recorded = st, w.finalizer()
	if cmd.Transition != nil {
		w.keep(cmd.Transition.To)
	}
	w.checkState()
	return nil
}

// finalizer is the one with which the object was begun, as its state says.
func (w *world) finalizer() string { return cmp.Or(w.recorded, w.Machine.Finalizer()) }

// keep notes what the machine leaves in place from a phase on.
func (w *world) keep(phase string) {
	for _, name := range w.Machine.Program().Phases[phase].Keeps {
		w.kept[name] = true
	}
}

// forget deletes the state of an object that is gone, of which nothing is held.
func (w *world) forget() {
	if w.gone && len(w.Stored.Held) == 0 {
		w.deleted = true
	}
}

// adopt renames what is in place as the machine in force renames what is held: it is the
// same thing.
func (w *world) adopt() {
	if w.Machine == w.adopted {
		return
	}
	w.adopted = w.Machine
	for _, known := range []map[string]bool{w.inPlace, w.released, w.kept} {
		for old := range maps.Clone(known) {
			if name := w.renamed(old); name != old {
				delete(known, old)
				known[name] = true
			}
		}
	}
}

func effectMap(m *fsm.Machine) map[string]string {
	if u := m.Definition().Spec.Upgrade; u != nil {
		return u.EffectMap
	}
	return nil
}

// held is the stored ledger, by the names of the machine in force.
func (w *world) held() []string {
	names := w.Stored.HeldNames()
	for i, old := range names {
		names[i] = w.renamed(old)
	}
	return names
}

// renamed is the name that the machine in force has for what is held.
func (w *world) renamed(old string) string {
	effect, key := v1alpha1.CutKey(old)
	return v1alpha1.Keyed(cmp.Or(effectMap(w.Machine)[effect], effect), key)
}

// LoseState is a person who deletes the state by hand, finalizer and all. It answers what
// was lost; a backup of it can be written to Stored again.
func (w *world) LoseState() v1alpha1.MachineStatus {
	lost := w.Stored
	w.Stored, w.recorded = v1alpha1.MachineStatus{}, ""
	w.stateVersion++
	w.dirty = true
	w.tell("the state is deleted by hand")
	return lost
}

// LoseView is what happens when the CRD of the object is replaced by one that does not have
// what the status shows, or when the object is restored without its status.
func (w *world) LoseView() {
	w.Shown, w.ShownMachine, w.observed = fsm.Summary{}, v1alpha1.MachineStatus{}, 0
	w.touch()
}

// Vanish is a person who removes all finalizers and deletes the object, or its CRD: the
// object is gone at once, whatever is held. The driver goes on until nothing is.
func (w *world) Vanish() {
	if w.gone {
		return
	}
	w.tell("all finalizers are removed by hand")
	w.vanished = len(w.Finalizers) > 0
	w.Finalizers = nil
	w.deleting = true
	w.touch()
	w.leave()
}
