package fsm

import (
	"fmt"
	"time"

	"github.com/phasegate/phasegate/fsm/machine/program"
)

// WaitError says "not yet": nothing is wrong, look again later.
type WaitError struct {
	// After overrides the poll interval when it is positive.
	After   time.Duration
	Message string
}

func (e *WaitError) Error() string { return e.Message }

// Wait makes a WaitError that is checked again at the poll interval.
func Wait(format string, args ...any) error {
	return &WaitError{Message: fmt.Sprintf(format, args...)}
}

// TerminalError says that trying again cannot help.
type TerminalError struct {
	// Reason is a CamelCase word for conditions and history.
	Reason string
	Err    error
}

func (e *TerminalError) Error() string { return e.Err.Error() }
func (e *TerminalError) Unwrap() error { return e.Err }

// Terminal makes a TerminalError; %w in the format keeps the cause.
func Terminal(reason, format string, args ...any) error {
	return &TerminalError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Result is what an action came to. The zero Result is success without outputs.
type Result struct {
	// Outputs of a successful action, merged into `result`.
	Outputs map[string]any
	// Err is nil, a WaitError, a TerminalError, or any other error: retried.
	Err error
	// Class of Err; ignored for a WaitError.
	Class program.Class
	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration
}
