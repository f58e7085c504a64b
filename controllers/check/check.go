// Package check asks questions about a cluster and shows the answers: to the first
// step of a migration, to `manager check` and to `kubectl phasegate check`.
//
// It knows how a question is asked and shown. The questions that are about one
// controller only are next to that controller; those here are about any cluster.
package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Level says how bad a finding is.
type Level string

const (
	// Failure keeps a migration from starting.
	Failure Level = "failure"
	// Warning keeps nobody from anything.
	Warning Level = "warning"
	// Info is what was seen.
	Info Level = "info"
)

// Finding is one thing that was found. Messages and remedies are parts of a sentence,
// without a full stop.
type Finding struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + ": " + f.Remedy
}

// Check is a question. Run changes nothing, and may be called any number of times,
// also at the same time as others. An error says that the question could not be
// answered.
type Check struct {
	// ID is kebab-case and stays the same for ever: users search for it.
	ID string
	// Title says what is true when nothing is found.
	Title string
	// Waivable says that a person may decide to go on although it fails.
	Waivable bool
	Run      func(context.Context) ([]Finding, error)
}

// Answer is what came of one check.
type Answer struct {
	Check
	Findings []Finding
	Err      error
}

// Ask runs checks at the same time, and answers in their order.
func Ask(ctx context.Context, checks []Check) []Answer {
	answers := make([]Answer, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() {
			findings, err := c.Run(ctx)
			answers[i] = Answer{Check: c, Findings: findings, Err: err}
		})
	}
	group.Wait()
	return answers
}

// Split sorts what was found: what must be done first, as "<id>: <message>: <remedy>",
// and what should be known. The error is that of the questions that have no answer.
func Split(answers []Answer) (blockers, warnings []string, err error) {
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("check %s: %w", a.ID, a.Err))
		}
		for _, f := range a.Findings {
			text := a.ID + ": " + f.String()
			switch f.Level {
			case Failure:
				blockers = append(blockers, text)
			case Warning:
				warnings = append(warnings, text)
			case Info:
			}
		}
	}
	return blockers, warnings, errors.Join(errs...)
}
