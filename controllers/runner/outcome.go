package runner

import (
	"errors"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// outcomeOf classifies the error of an action. Only an action itself can call
// an error terminal: one that nobody foresaw is worth another try.
func outcomeOf(outputs map[string]any, err error) fsm.Result {
	var wait *fsm.WaitError
	var terminal *fsm.TerminalError
	o := fsm.Result{Outputs: outputs, Err: err}
	switch {
	case err == nil, errors.As(err, &wait):
	case errors.As(err, &terminal):
		o.Class = fsm.ClassTerminal
	default:
		o.Class, o.RetryAfter = fsm.Class(apierrors.Classify(err)), apierrors.RetryAfter(err)
		if o.Class == fsm.ClassTerminal {
			o.Class = fsm.ClassUnavailable
		}
	}
	return o
}
