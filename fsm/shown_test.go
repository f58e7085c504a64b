package fsm_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// What status.phase shows is another program's business while an effect with showAs is held.
func TestShownByAnEffect(t *testing.T) {
	type shown struct{ Phase, Message, Info string }
	_ = shipped(t)
	m := shippedMachine
	for name, c := range map[string]struct {
		why   string
		phase string
		held  []string
		want  shown
	}{
		"nothing held":           {why: "as the phase is called", phase: "RollingBack", want: shown{"RollingBack", "RollingBack", "RollingBack"}},
		"others held":            {why: "they have no showAs", phase: "RollingBack", held: []string{"v1Fence", "v1Lock"}, want: shown{"RollingBack", "RollingBack", "RollingBack"}},
		"before the lock":        {why: "Calico's API server serves v3", phase: "WaitingForConflictResolution", held: []string{"v1Fence", "v3Copies"}, want: shown{"WaitingForConflictResolution", waits, "WaitingForConflictResolution"}},
		"a conflict under it":    {why: "the CRDs serve v3", phase: "WaitingForConflictResolution", held: []string{"v1Lock", "apiService", "v3Copies"}, want: shown{"Migrating", "WaitingForConflictResolution: " + waits, "WaitingForConflictResolution"}},
		"a rollback":             {why: "copies are deleted in v3", phase: "RollingBack", held: []string{"v1Lock", "apiService"}, want: shown{"Migrating", "RollingBack: RollingBack", "RollingBack"}},
		"an abort":               {why: "the same", phase: "Aborting", held: []string{"apiService"}, want: shown{"Migrating", "Aborting: Aborting", "Aborting"}},
		"the phase of that name": {why: "nothing is to be said twice", phase: "Migrating", held: []string{"apiService"}, want: shown{"Migrating", "The locked window. Lock v1, let writers finish, cut over to the v3 CRDs, copy, prove that both sides agree.", "Migrating"}},
		"a phase with its own":   {why: "metrics go on with it", phase: "Rejected", want: shown{"Failed", "Rejected", "Failed"}},
	} {
		st := v1alpha1.MachineStatus{Phase: c.phase, Held: v1alpha1.Held(c.held...), Revision: m.Revision()}
		got := m.Run(st, fsm.Observation{Finalizer: true, Now: func() time.Time { return simulate.Epoch }}).Summary()
		if diff := cmp.Diff(c.want, shown{got.Phase, got.Message, m.PhaseInfo(c.phase).Shown}); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}

const waits = "A v3 object exists with other content. Edit or delete one side; checked again every poll."
