package sim

import (
	"reflect"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

var reasonOfCondition = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// checkStatus finds what the schema of a CRD would refuse, and what is in place
// without being in the ledger.
func (w *World) checkStatus() {
	st := w.Stored
	if len(st.History) > v1alpha1.HistoryLimit || len(st.Blocked) > 16 || len(st.Held) > 32 || len(st.OnDelete) > 512 {
		w.defect("the status is out of bounds: %d transitions, %d blocked, %d held", len(st.History), len(st.Blocked), len(st.Held))
	}
	for _, h := range st.History {
		if len(h.Reason) > 128 || len(h.Message) > 512 {
			w.defect("a transition is out of bounds: %+v", h)
		}
	}
	for _, b := range st.Blocked {
		if len(b.Because) > 1024 || len(b.Got) > 1024 {
			w.defect("blocked is out of bounds: %+v", b)
		}
	}
	w.checkLedger()
	w.checkConditions()
	w.checkInvariants()
}

// checkInvariants asks those of the file, whenever what they are about has changed.
func (w *World) checkInvariants() {
	s := fsm.Situation{Phase: w.Stored.Phase, Held: w.Stored.HeldNames(), InPlace: w.InPlace(), Deleting: w.deleting, Gone: w.gone}
	if reflect.DeepEqual(s, w.checked) {
		return
	}
	w.checked = s
	for _, name := range w.Machine.Broken(s) {
		w.defect("invariant %s is not true in phase %s with held %v, in place %v", name, s.Phase, s.Held, s.InPlace)
	}
}

func (w *World) checkLedger() {
	for _, name := range w.InPlace() {
		if !w.Stored.IsHeld(name) && !w.kept[name] {
			w.defect("%s is in place, but not in the stored ledger %v", name, w.Stored.HeldNames())
		}
	}
}

func (w *World) checkConditions() {
	var raised []string
	for _, c := range w.Shown.Conditions {
		if !reasonOfCondition.MatchString(c.Reason) {
			w.defect("condition %s: %q is not a reason", c.Type, c.Reason)
		}
		if c.Status == metav1.ConditionTrue {
			raised = append(raised, c.Type)
		}
	}
	if len(raised) > 1 {
		w.defect("conditions %v are true together", raised)
	}
}
