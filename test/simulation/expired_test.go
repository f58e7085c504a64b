package simulation

import (
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// hear notes when the last look came to its end.
func (p *play) hear(tell func(simulate.Event)) func(simulate.Event) {
	return func(e simulate.Event) {
		if strings.HasPrefix(e.Text, "sleep ") {
			p.slept = p.w.Now()
		}
		if tell != nil {
			tell(e)
		}
	}
}

// expired: a wait does not last longer than the lock may, but for a step that fails and is tried again at its poll.
func (p *play) expired(st *v1alpha1.MachineStatus) {
	lock, locked := p.w.Own["lock"].(map[string]any)
	if !locked || st.Phase != "WaitingForConflictResolution" {
		return
	}
	deadline, err := time.Parse(time.RFC3339, lock["deadline"].(string))
	if late := p.slept.Sub(deadline); err != nil || late > 6*time.Second {
		p.fail("%s waits with v1 locked, %s after the deadline of the lock", st.Phase, late)
	}
}
