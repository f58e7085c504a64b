package fsm

import (
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

var reasonOfCondition = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// checkStatus refuses what the CRD's schema would refuse.
func (w *world) checkStatus(st v1alpha1.MachineStatus, s Summary) {
	w.t.Helper()
	if len(st.History) > v1alpha1.HistoryLimit || len(st.Blocked) > 16 || len(st.Held) > 32 || len(st.OnDelete) > 512 {
		w.t.Errorf("the status is out of bounds: %d transitions, %d blocked, %d held", len(st.History), len(st.Blocked), len(st.Held))
	}
	for _, h := range st.History {
		if len(h.Reason) > 128 || len(h.Message) > 512 {
			w.t.Errorf("a transition is out of bounds: %+v", h)
		}
	}
	for _, b := range st.Blocked {
		if len(b.Because) > 1024 || len(b.Got) > 1024 {
			w.t.Errorf("blocked is out of bounds: %+v", b)
		}
	}
	w.checkConditions(s)
}

func (w *world) checkConditions(s Summary) {
	w.t.Helper()
	var raised []string
	for _, c := range s.Conditions {
		if !reasonOfCondition.MatchString(c.Reason) {
			w.t.Errorf("condition %s: %q is not a reason", c.Type, c.Reason)
		}
		if c.Status == metav1.ConditionTrue {
			raised = append(raised, c.Type)
		}
	}
	if len(raised) > 1 {
		w.t.Errorf("conditions %v are true together", raised)
	}
}
