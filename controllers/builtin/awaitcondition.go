package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var awaitConditionSpec = fsm.ActionSpec{
	Doc:   "Waits until a condition of an object has a status, or until the object is gone. A condition that is about an older generation does not count.",
	Check: kindOfTarget,
	Params: withTarget(map[string]fsm.Param{
		"type":   {Type: fsm.TypeString, Doc: "of the condition, for example Available"},
		"status": {Type: fsm.TypeString, Doc: "of the condition; default True"},
		"gone":   {Type: fsm.TypeBool, Doc: "true: wait until there is no such object, instead"},
	}),
	Reads:   &fsm.Target{Fields: []string{"status"}, Waits: true},
	Outputs: map[string]fsm.Type{"reason": fsm.TypeString, "message": fsm.TypeString},
}

// maxText is how many bytes of somebody else's text go into our status.
const maxText = 1024

func awaitCondition(ctx context.Context, c *call) (outputs, error) {
	kind, gone := c.with.String("type", ""), c.with.Bool("gone", false)
	if (kind == "") != gone {
		return nil, fsm.Terminal("BadParameter", "AwaitCondition waits for a type or for gone: give one of the two")
	}
	obj, err := c.target()
	if err != nil {
		return nil, err
	}
	found, err := c.find(ctx, obj, "get")
	switch {
	case err != nil:
		return nil, err
	case gone && found:
		return nil, fsm.Wait("%s is still there", title(obj))
	case gone:
		return outputs{"reason": "", "message": ""}, nil
	case !found:
		return nil, fsm.Wait("%s is not there", title(obj))
	}
	return c.judge(obj, kind, c.with.String("status", "True"))
}

func (c *call) judge(obj *unstructured.Unstructured, kind, want string) (outputs, error) {
	condition := conditionOf(obj, kind)
	if condition == nil {
		return nil, fsm.Wait("%s has no condition %s", title(obj), kind)
	}
	field := func(name string) string {
		text, _, _ := unstructured.NestedString(condition, name)
		return runner.Cut(text, maxText)
	}
	if got := field("status"); got != want {
		return nil, fsm.Wait("%s has %s=%s, not %s: %s %s", title(obj), kind, got, want, field("reason"), field("message"))
	}
	if observed, told := observedGeneration(obj, condition); told && observed < obj.GetGeneration() {
		return nil, fsm.Wait("%s has %s=%s for generation %d, and is at %d", title(obj), kind, want, observed, obj.GetGeneration())
	}
	return outputs{"reason": field("reason"), "message": field("message")}, nil
}

// conditionOf is nil when the object has no such condition.
func conditionOf(obj *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range all {
		if condition, ok := item.(map[string]any); ok && condition["type"] == kind {
			return condition
		}
	}
	return nil
}

// observedGeneration is that of the condition, else that of the whole status.
func observedGeneration(obj *unstructured.Unstructured, condition map[string]any) (generation int64, told bool) {
	if own, found, _ := unstructured.NestedInt64(condition, "observedGeneration"); found {
		return own, true
	}
	generation, told, _ = unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	return generation, told
}
