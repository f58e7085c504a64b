package machinestore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// drivenBy is the state of an object that a machine has driven.
func drivenBy(state v1alpha1.MachineState, m *fsm.Machine) v1alpha1.MachineState {
	state.Status.Revision = "sha256:other"
	if m != nil {
		state.Status.Revision = m.Revision()
	}
	return state
}

func compiledIn(t *testing.T) *fsm.Machine {
	t.Helper()
	s := load(t, options(""))
	return s.Of("door").InForce()
}

// The file of a compiled-in machine is refused when the program starts.
func TestFallBack(t *testing.T) {
	shipped := compiledIn(t)
	for name, c := range map[string]struct {
		why    string
		file   string // else one that names an unknown action
		states []v1alpha1.MachineState
		err    error
		others bool // another process runs it
		// driven: the compiled-in machine takes its place; else the error of NotDriven has these parts.
		driven bool
		want   []string
	}{
		"no objects":              {why: "nothing is under way", driven: true},
		"arrived":                 {why: "nothing is under way", states: []v1alpha1.MachineState{drivenBy(stands("front", "Open"), nil)}, driven: true},
		"by the compiled-in one":  {why: "it goes on as it was", states: []v1alpha1.MachineState{drivenBy(stands("front", "Closed"), shipped)}, driven: true},
		"under way":               {why: "the refused file may have had something else in mind for it, a gate for example", states: []v1alpha1.MachineState{drivenBy(stands("front", "Closed"), nil)}, want: []string{"nothing drives the objects of machine door", "Door house/front", "under way in phase Closed with revision sha256:other", "correct"}},
		"phase of its own":        {why: "the compiled-in one does not have it", states: []v1alpha1.MachineState{drivenBy(stands("front", "Ajar"), nil)}, want: []string{"Door house/front", "in phase Ajar, which is not here"}},
		"holds something":         {why: "the compiled-in one cannot release it", states: []v1alpha1.MachineState{drivenBy(stands("front", "Open", "bolt"), nil)}, want: []string{"bolt is held"}},
		"no answer":               {why: "nothing is guessed", err: errors.New("no route"), want: []string{"cannot be asked", "no route"}},
		"whose it is, is unknown": {why: "it may be this one's", file: "a: b: c", states: []v1alpha1.MachineState{drivenBy(stands("front", "Closed"), nil)}, want: []string{"under way in phase Closed"}},
		"another process":         {why: "that one judges it", states: []v1alpha1.MachineState{drivenBy(stands("front", "Closed"), nil)}, others: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.file == "" {
				c.file = unbound(door("2s"))
			}
			files{"mine.yaml": c.file}.write(t, dir)
			o := options(dir)
			o.Objects = asked(c.states, c.err)
			o.Runs = func(machine string) bool { return machine == "door" && !c.others }
			s := load(t, o)
			if s.Of("door").InForce() != nil {
				t.Errorf("%s: it is in force before the objects were asked", c.why)
			}
			s.fallBack(t.Context())
			got := s.state(t, dir)
			taken := slices.Contains(got.Metrics, "reloads_total door compiled-in 1")
			if in := got.InForce["door"] == "1s door.yaml"; in != c.driven || taken != c.driven {
				t.Errorf("%s: in force %v, metrics %v", c.why, got.InForce, got.Metrics)
			}
			checkNotDriven(t, s, c.why, c.want)
			files{"mine.yaml": door("3s")}.write(t, dir)
			s.Objects = asked(nil, nil) // as if they had come to an end
			s.lookTwice(t)
			if d := cmp.Diff(map[string]string{"door": "3s mine.yaml"}, s.state(t, dir).InForce); d != "" {
				t.Errorf("%s: once it is corrected (-want +got):\n%s", c.why, d)
			}
			checkNotDriven(t, s, c.why, nil)
		})
	}
}

// checkNotDriven looks for the parts of what is said; without any, nothing may be.
func checkNotDriven(t *testing.T, s *Store, why string, parts []string) {
	t.Helper()
	note := ""
	if err := s.NotDriven(); err != nil {
		note = err.Error()
	}
	for _, part := range parts {
		if !strings.Contains(note, part) {
			t.Errorf("%s: %q does not say %q", why, note, part)
		}
	}
	if (note == "") != (len(parts) == 0) {
		t.Errorf("%s: not driven: %q", why, note)
	}
}

// What keeps the compiled-in machine away may come to an end, by another process.
func TestFallBackLater(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": unbound(door("2s"))}.write(t, dir)
	o := options(dir)
	states := []v1alpha1.MachineState{drivenBy(stands("front", "Closed"), nil)}
	o.Objects = asked(states, nil)
	s := load(t, o)
	s.fallBack(t.Context())
	handle, waited := s.Of("door"), make(chan bool)
	go func() { waited <- handle.Await(t.Context()) }()
	if note := s.Refusals()[0].Note; handle.InForce() != nil || !strings.Contains(note, "nothing drives the objects of machine door") {
		t.Errorf("in force %v, %q", handle.InForce(), note)
	}
	states[0].Status.Phase = "Open"
	s.fallBack(t.Context())
	if !<-waited || handle.InForce() == nil {
		t.Error("who waits for it waits for ever")
	}
	if note := s.Refusals()[0].Note; !strings.Contains(note, "the compiled-in machine goes on") || s.NotDriven() != nil {
		t.Errorf("%q, %v", note, s.NotDriven())
	}
}

// A file that was removed is a decision: the compiled-in machine is in force then.
func TestRefusedFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": unbound(door("2s"))}.write(t, dir)
	o := options(dir)
	o.Objects = asked([]v1alpha1.MachineState{drivenBy(stands("front", "Closed"), nil)}, nil)
	s := load(t, o)
	files{}.write(t, dir)
	s.lookTwice(t)
	if d := cmp.Diff(map[string]string{"door": "1s door.yaml"}, s.state(t, dir).InForce); d != "" || s.NotDriven() != nil {
		t.Errorf("%v (-want +got):\n%s", s.NotDriven(), d)
	}
}

// An API server that does not answer must not look like a process that is wedged: it would
// be started anew again and again.
func TestAliveWhileObjectsAreAsked(t *testing.T) {
	dir := t.TempDir()
	files{"mine.yaml": unbound(door("2s"))}.write(t, dir)
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int32
		o := options(dir)
		o.Looked = func() { beats.Add(1) }
		o.Objects = func(ctx context.Context, _ string, _ func(*v1alpha1.MachineState)) error {
			<-ctx.Done()
			return ctx.Err()
		}
		s := load(t, o)
		s.fallBack(t.Context())
		if n := beats.Load(); n < int32(objectsTimeout/lookEvery) || s.NotDriven() == nil {
			t.Errorf("%d signs of life in %s, not driven: %v", n, objectsTimeout, s.NotDriven())
		}
	})
}
