package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The exit codes, so that scripts can tell what happened without reading it.
const (
	exitFindings = 1
	exitUsage    = 2
	exitTimedOut = 3
	exitWaits    = 4
)

// What is told already, on stdout or on stderr, and makes an exit code.
var (
	// errFindings says that the command did its work and found something, or that what
	// it watched has failed.
	errFindings = errors.New("there are findings")
	// errTimedOut says that --timeout was over first.
	errTimedOut = errors.New("timed out")
	// errWaits says that nothing moves before a person has acted.
	errWaits = errors.New("it waits for a person")
)

var exitCodes = map[error]int{errFindings: exitFindings, errTimedOut: exitTimedOut, errWaits: exitWaits}

func exitCode(s streams, err error) int {
	for told, code := range exitCodes {
		if errors.Is(err, told) {
			return code
		}
	}
	fmt.Fprintln(s.err, "kubectl-phasegate:", err)
	return exitUsage
}

// tell prints an error that is an answer, and answers the one that makes its exit code.
func tell(s streams, answer, code error) error {
	fmt.Fprintln(s.err, answer)
	return code
}

// finish waits, for as long as --timeout says; 0 is for ever. Where that is over first,
// it tells what wait answered and ends with the exit code for it. Any other end is wait's.
func finish(ctx context.Context, s streams, timeout time.Duration, wait func(context.Context) error) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := wait(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tell(s, fmt.Errorf("timed out after %s: %w", timeout, err), errTimedOut)
	}
	return err
}
