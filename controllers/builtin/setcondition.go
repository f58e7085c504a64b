package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var setConditionSpec = fsm.ActionSpec{
	Doc: "Sets a condition of the object itself. It is written with the pass, not before.",
	Params: map[string]fsm.Param{
		"type":    {Type: fsm.TypeString, Required: true, Check: isConditionType, Doc: "of the condition; not Ready, Reconciling or Stalled, which are derived from the phase"},
		"status":  {Type: fsm.TypeString, Check: oneOf(string(metav1.ConditionTrue), string(metav1.ConditionFalse), string(metav1.ConditionUnknown)), Doc: "True (the default), False or Unknown"},
		"reason":  {Type: fsm.TypeString, Required: true, Check: isReason, Doc: "one CamelCase word"},
		"message": {Type: fsm.TypeString, Doc: "for people; cut after 1024 bytes"},
	},
}

// maxConditions bounds what templates in `type` can do to the status.
const maxConditions = 16

func setCondition(_ context.Context, c *call) (outputs, error) {
	kind, status := c.with.String("type", ""), c.with.String("status", string(metav1.ConditionTrue))
	var full bool
	c.report(func(all *[]metav1.Condition) {
		if full = meta.FindStatusCondition(*all, kind) == nil && len(*all) >= maxConditions; full {
			return
		}
		meta.SetStatusCondition(all, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: c.with.String("reason", ""), Message: runner.Cut(c.with.String("message", ""), maxText),
			ObservedGeneration: c.owner.GetGeneration(), LastTransitionTime: metav1.NewTime(c.now()),
		})
	})
	if full {
		return nil, fsm.Terminal("TooManyConditions", "the status has %d conditions already: use fewer types", maxConditions)
	}
	return nil, nil
}
