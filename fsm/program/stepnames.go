package program

import (
	"cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// StepName is what a status calls a step.
func StepName(s v1alpha1.Step) string {
	if s.Undo != "" {
		return cmp.Or(s.Name, "undo")
	}
	return cmp.Or(s.Name, s.Action, "wait")
}

// stepID does not change when steps are added or moved.
func stepID(s Step, p *Phase) string {
	if s.Action != s.Bound.Use {
		return s.Action
	}
	return p.Name + "/" + s.Label
}

// effectsOf names the effect that an action takes, and the one it gives back.
func effectsOf(action string, effects []v1alpha1.Effect) (acquires, releases string) {
	for _, e := range effects {
		switch action {
		case "":
		case e.Acquire:
			acquires = e.Name
		case e.Release:
			releases = e.Name
		}
	}
	return acquires, releases
}
