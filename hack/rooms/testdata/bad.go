// Package bad compares names of machine files with texts, in all ways that were ever used here.
package bad

import (
	"slices"
	"strings"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

const complete = "Complete"

var over = []string{complete, "Failed"}

var helps = map[string]string{"Plan": "look"}

func _(dm *migrationv1.DatastoreMigration, st *v1alpha1.MachineStatus, name string) bool {
	switch phase := dm.Status.Machine.Phase; {
	case phase == complete: // bad
		return true
	case phase != "" && phase == name: // the file's, both of them
		return true
	}
	switch st.Step {
	case "Plan": // bad
		return true
	}
	if slices.Contains(over, st.Phase) || slices.Contains([]string{"Deleted"}, dm.CurrentPhase()) { // bad
		return true
	}
	for _, h := range st.Held {
		if h.Name == "v1Lock" { // bad
			return true
		}
	}
	for _, held := range st.HeldNames() {
		if "v1Lock" == held { // bad
			return true
		}
	}
	for _, t := range st.History {
		if t.To == "RollingBack" || strings.HasPrefix(t.From, "Roll") { // bad
			return true
		}
	}
	if st.OnDelete != nil && strings.HasPrefix(st.OnDelete.Message, "hold: ") { // bad
		return true
	}
	if st.OnDelete != nil && st.OnDelete.Mode == v1alpha1.DeletionHold {
		return true
	}
	return st.IsHeld("v1Lock") || // bad
		helps[st.Step] != "" || // bad
		dm.Status.Phase == migrationv1.PhaseComplete // what Calico's API prescribes
}
