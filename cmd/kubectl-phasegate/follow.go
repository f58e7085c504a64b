package main

import (
	"context"
	"errors"
	"io"
	"time"

	apierrs "k8s.io/apimachinery/pkg/api/errors"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/fsm/printable"
	"github.com/phasegate/phasegate/resources/apierrors"
)

var errReplaced = errors.New("it was deleted, and another object has its name")

const (
	// lookEvery is how often an object is read while somebody watches.
	lookEvery = 500 * time.Millisecond
	// patience is how long a wait for a person must last to end the watch: what was mended
	// a moment ago is not seen before the machine looks again, within 10 seconds.
	patience = 12 * time.Second
)

type follower struct {
	// look reads it anew.
	look     func(context.Context) (statusview.Overview, error)
	patience time.Duration
}

// sight is one look at an object.
type sight struct {
	overview statusview.Overview
	// err says why nothing new was seen.
	err  error
	gone bool
}

// code is the exit code of a watch that ended with this look.
func (now sight) code(s streams) error {
	switch {
	case now.gone:
		say(s.err, "%s is gone: it was in %s.", now.overview.Name, now.overview.Phase)
		return nil
	case now.overview.Outcome == statusview.Failed:
		return errFindings
	case now.overview.Outcome == statusview.WaitsForPerson:
		return errWaits
	}
	return nil
}

// picture is a sight for a terminal.
func (now sight) picture(v statusview.View) string {
	seen := printable.Value(now.overview)
	text := seen.String(v)
	if now.err != nil {
		text += "\n‼ not seen since " + now.overview.Now.Format(time.TimeOnly) + ": " + printable.Line(now.err.Error()) + "\n"
	}
	return text + "\nCtrl-C stops watching; the object goes on."
}

// follow shows every change, live where s.err is a terminal. The error says that it could
// not go on; the answer tells the last that was seen all the same.
func (f follower) follow(ctx context.Context, first statusview.Overview, s streams, v statusview.View) (sight, error) {
	show := lines(s.err)
	if terminal := terminalOf(s.err); terminal != nil {
		v.Style = styleFor(s.err)
		live := openScreen(terminal)
		defer live.close()
		show = func(now sight) { live.draw(now.picture(v)) }
	}
	now := sight{overview: first}
	var waits time.Time // since when it waits for a person
	for {
		var over bool
		over, waits = f.isOver(now, waits)
		show(now)
		if over {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, errors.New("it is still in " + now.overview.Phase + ": wait longer with --timeout")
		case <-time.After(lookEvery):
		}
		var err error
		if now, err = f.next(ctx, now); err != nil {
			return now, err
		}
	}
}

// next looks again. An API server that does not answer is waited for.
func (f follower) next(ctx context.Context, last sight) (sight, error) {
	now, err := f.look(ctx)
	switch {
	case apierrors.ObjectNotFound(err) || errors.Is(err, errReplaced):
		return sight{overview: last.overview, gone: true}, nil
	case apierrs.IsForbidden(err) || apierrs.IsUnauthorized(err):
		return last, err
	case err != nil:
		return sight{overview: last.overview, err: err}, nil
	}
	now.Orphans = last.overview.Orphans // read once, at the beginning
	return sight{overview: now}, nil
}

func (f follower) isOver(now sight, waits time.Time) (bool, time.Time) {
	switch now.overview.Outcome {
	case statusview.Succeeded, statusview.Failed:
		return true, waits
	case statusview.WaitsForPerson:
		if waits.IsZero() {
			waits = now.overview.Now
		}
		return now.gone || now.overview.Now.Sub(waits) >= f.patience, waits
	}
	return now.gone, time.Time{}
}

func lines(to io.Writer) func(sight) {
	last := ""
	return func(now sight) {
		line := now.overview.Line()
		if now.err != nil {
			line = time.Now().UTC().Format(time.RFC3339) + " " + now.err.Error()
		}
		if told := line[len(time.RFC3339)-5:]; told != last { // without the time
			say(to, "%s", line)
			last = told
		}
	}
}
