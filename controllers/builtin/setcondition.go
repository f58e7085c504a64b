package builtin

import (
	"context"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var setConditionSpec = fsm.ActionSpec{
	Doc: "Sets a condition of the object itself. It is written with the pass, not before.",
	Params: map[string]fsm.Param{
		"type":    {Type: fsm.TypeString, Required: true, Doc: "of the condition; not Ready, Reconciling or Stalled, which are derived from the phase"},
		"status":  {Type: fsm.TypeString, Doc: "True (the default), False or Unknown"},
		"reason":  {Type: fsm.TypeString, Required: true, Doc: "one CamelCase word"},
		"message": {Type: fsm.TypeString, Doc: "for people; cut after 1024 bytes"},
	},
}

// maxConditions bounds what templates in `type` can do to the status.
const maxConditions = 16

// The API server refuses a status with a condition of another form, and the
// object could not move any more.
var (
	conditionType   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)
)

const maxConditionType = 253

func setCondition(_ context.Context, c *call) (outputs, error) {
	status, err := c.choice("status", string(metav1.ConditionTrue), string(metav1.ConditionFalse), string(metav1.ConditionUnknown))
	if err != nil {
		return nil, err
	}
	kind, reason := c.with.String("type", ""), c.with.String("reason", "")
	derived := []string{fsm.ConditionReady, fsm.ConditionReconciling, fsm.ConditionStalled}
	switch {
	case slices.Contains(derived, kind):
		return nil, fsm.Terminal("ReservedCondition", "condition %s is derived from the phase: set another one", kind)
	case len(kind) > maxConditionType || !conditionType.MatchString(kind):
		return nil, fsm.Terminal("BadParameter", "type %q cannot be the type of a condition: write one CamelCase word", runner.Cut(kind, maxConditionType))
	case !conditionReason.MatchString(reason):
		return nil, fsm.Terminal("BadParameter", "reason %q cannot be the reason of a condition: write one CamelCase word", runner.Cut(reason, maxConditionType))
	}
	var full bool
	c.report(func(all *[]metav1.Condition) {
		if full = meta.FindStatusCondition(*all, kind) == nil && len(*all) >= maxConditions; full {
			return
		}
		meta.SetStatusCondition(all, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: runner.Cut(c.with.String("message", ""), maxText),
			ObservedGeneration: c.owner.GetGeneration(), LastTransitionTime: metav1.NewTime(c.now()),
		})
	})
	if full {
		return nil, fsm.Terminal("TooManyConditions", "the status has %d conditions already: use fewer types", maxConditions)
	}
	return nil, nil
}
