package simulate

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

var reasonOfCondition = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// checkState finds what the schema of MachineState would refuse, and what is in place
// without being in the ledger.
func (w *world) checkState() {
	st := w.Stored
	if len(st.History) > v1alpha1.HistoryLimit || len(st.Held) > v1alpha1.HeldLimit {
		w.defect("the state is out of bounds: %d transitions, %d held", len(st.History), len(st.Held))
	}
	names := map[string]bool{}
	for _, q := range st.Requests {
		if names[q.Name] {
			w.defect("request %s is in the state twice", q.Name)
		}
		names[q.Name] = true
	}
	for _, h := range st.History {
		if len(h.Reason) > 128 || len(h.Message) > 512 {
			w.defect("a transition is out of bounds: %+v", h)
		}
	}
	w.checkLedger()
	w.checkInvariants()
}

// checkInvariants asks those of the file, whenever what they are about has changed.
func (w *world) checkInvariants() {
	// An object that vanished was not let go by its machine: what must be true then is
	// what is true while it is being deleted.
	s := program.InvariantState{Phase: w.Stored.Phase, Held: fsm.HeldEffects(w.Stored.HeldNames()), InPlace: fsm.HeldEffects(w.InPlace()), Deleting: w.deleting, Gone: w.gone && !w.vanished}
	if !w.hasState() && !w.gone {
		return // lost: nobody knows
	}
	if reflect.DeepEqual(s, w.checked) {
		return
	}
	w.checked = s
	for _, name := range w.Machine.Broken(s) {
		w.defect("invariant %s is not true in phase %s with held %v, in place %v", name, s.Phase, s.Held, s.InPlace)
	}
}

func (w *world) checkLedger() {
	for _, name := range w.InPlace() {
		if effect, _ := v1alpha1.CutKey(name); !slices.Contains(w.held(), name) && !w.kept[effect] {
			w.defect("%s is in place, but not in the stored ledger %v", name, w.Stored.HeldNames())
		}
	}
}

// viewDefects are what the schema of the object's CRD would refuse, and conditions that contradict each other.
func viewDefects(shown fsm.Summary, st v1alpha1.MachineStatus) (found []string) {
	defect := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if len(st.Blocked) > 16 || len(st.OnDelete.String()) > 640 {
		defect("the status is out of bounds: %d blocked, on delete %q", len(st.Blocked), st.OnDelete)
	}
	for _, b := range st.Blocked {
		if len(b.Guard) > 1024 || len(b.Value) > 1024 {
			defect("blocked is out of bounds: %+v", b)
		}
	}
	var raised []string
	for _, c := range shown.Conditions {
		if !reasonOfCondition.MatchString(c.Reason) {
			defect("condition %s: %q is not a reason", c.Type, c.Reason)
		}
		if c.Status == metav1.ConditionTrue {
			raised = append(raised, c.Type)
		}
	}
	if len(raised) > 1 {
		defect("conditions %v are true together", raised)
	}
	return found
}
