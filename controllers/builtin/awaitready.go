package builtin

import (
	"context"
	"fmt"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

var awaitReadySpec = fsm.ActionSpec{
	Doc: "Waits until an object is what its spec says, by the rules of kstatus, as `helm install --wait` and Flux have them: a Deployment, " +
		"StatefulSet or DaemonSet is rolled out, a Job is complete, a claim is bound, and of any other kind the status is about the present generation, " +
		"and no condition says Ready=False, Reconciling or Stalled. One that has failed, for example a rollout after its progressDeadlineSeconds, is a Terminal error.",
	Check: kindOfTarget,
	Params: withTarget(map[string]fsm.Param{
		"missing": {Type: fsm.TypeString, Check: oneOf("wait", "ignore"), Doc: "what to do when there is no such object: wait (the default), or ignore: go on"},
	}),
	Reads:   &fsm.Target{Fields: []string{"status"}, Waits: true},
	Outputs: map[string]fsm.Type{"found": fsm.TypeBool, "message": fsm.TypeString},
}

func awaitReady(ctx context.Context, c *call) (outputs, error) {
	obj, err := c.target()
	if err != nil {
		return nil, err
	}
	found, err := c.find(ctx, obj, "get")
	switch {
	case err != nil:
		return nil, err
	case !found && c.with.String("missing", "wait") == "ignore":
		return outputs{"found": false, "message": ""}, nil
	case !found:
		return nil, fsm.Wait("%s is not there", title(obj))
	}
	is, err := status.Compute(obj)
	if err != nil {
		return nil, fmt.Errorf("read the status of %s: %w", title(obj), err)
	}
	message := runner.Cut(is.Message, maxText)
	switch is.Status {
	case status.CurrentStatus:
		return outputs{"found": true, "message": message}, nil
	case status.FailedStatus:
		return nil, fsm.Terminal("ObjectFailed", "%s has failed: %s: correct it, or delete this object", title(obj), message)
	}
	return nil, fsm.Wait("%s: %s", title(obj), message)
}
