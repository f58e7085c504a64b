package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// crashPoint is where the driver is killed next: once.
type crashPoint struct {
	// at is an action as the machine calls it, STEP or PHASE/STEP, or a verb of the engine.
	at   string
	done bool
	down time.Duration
}

func (c crashPoint) String() string { return beforeOrAfter(c.done) + " " + c.at }

func beforeOrAfter(done bool) string {
	if done {
		return "after"
	}
	return "before"
}

// Crash kills the driver once, the next time before or (done) after an action, a step that calls one (STEP or PHASE/STEP) or
// a verb such as Commit; it is down for a while then.
func (w *Fake) Crash(at string, done bool, down time.Duration) {
	w.crash = &crashPoint{at, done, down}
}

// Reconcile is one look of the driver at the object: a reconcile. It answers the
// command that ended it; the error is ErrCrash or ErrConflict.
func (w *Fake) Reconcile() (fsm.Decision, error) {
	w.looks++
	w.dirty, w.wake = true, time.Time{} // until the look came to its end
	w.adopt()
	w.record()
	base, before := w.stateVersion, given{actions: maps.Clone(w.given.actions), guards: maps.Clone(w.given.guards)}
	run := w.Machine.Run(w.state(), w.View())
	for range maxCommands {
		cmd := run.Decide(context.Background())
		durable, err := w.step(run, cmd, base)
		w.remember(cmd, err)
		if err != nil && !durable {
			// Nothing came of this look, so the next one meets the same world.
			w.given = before
		}
		if err != nil || cmd.Do != fsm.RunAction {
			return cmd, err
		}
	}
	w.defect("a look does not end")
	return fsm.Decision{Do: fsm.Requeue}, nil
}

// remember keeps what the driver has in memory between two looks: nothing after a crash.
func (w *Fake) remember(cmd fsm.Decision, err error) {
	switch {
	case errors.Is(err, ErrCrash):
		w.paced = nil
	case err == nil && (cmd.Do != fsm.RunAction || cmd.External):
		w.paced = cmd.Due
	}
}

// step carries out one command; durable tells whether the API server has it.
func (w *Fake) step(run *fsm.Run, cmd fsm.Decision, base int) (durable bool, err error) {
	name := string(cmd.Do)
	if cmd.Do == fsm.RunAction {
		name = w.written(run, cmd)
		err := run.Apply(context.Background(), func(_ context.Context, cmd fsm.Decision) (outcome fsm.Result, err error) {
			if w.killed(name, cmd, false) {
				return outcome, ErrCrash
			}
			if outcome = w.act(name, cmd); w.killed(name, cmd, true) { // its deed is done, and nobody knows
				err = ErrCrash
			}
			return outcome, err
		})
		return err == nil, err
	}
	if w.killed(name, cmd, false) {
		return false, ErrCrash
	}
	if err := w.write(run, cmd, base); err != nil {
		return false, err
	}
	if w.killed(name, cmd, true) {
		return true, ErrCrash
	}
	return true, w.show(run, cmd)
}

// WriteView is what the driver does after a command that changes what the status of the
// object shows. A crash before it is one after the command.
const WriteView fsm.Verb = "WriteView"

// show repairs the view, where there is an object. A write of the ledger alone does not.
func (w *Fake) show(run *fsm.Run, cmd fsm.Decision) error {
	w.forget()
	if ledger := cmd.Do != fsm.Requeue && cmd.Transition == nil; w.gone || ledger && !w.TrustView {
		return nil
	}
	if cmd.Early && w.ShownMachine.SamePosition(&w.Stored) {
		return nil
	}
	st := run.Status()
	if !reflect.DeepEqual(st, w.ShownMachine) || w.observed != w.generation {
		w.version++
	}
	w.Shown, w.ShownMachine, w.Fields, w.observed = run.Summary(), st, run.Shown(context.Background()), w.generation
	for _, found := range viewDefects(w.Shown, w.ShownMachine) {
		w.defect("%s", found)
	}
	if w.killed(string(WriteView), fsm.Decision{Do: WriteView, Transition: cmd.Transition}, true) {
		return ErrCrash
	}
	return nil
}

func (w *Fake) killed(name string, cmd fsm.Decision, done bool) bool {
	here := crashPoint{at: name, done: done}
	switch c := w.crash; {
	case c != nil && c.done == done && slices.Contains([]string{name, cmd.Step, w.Stored.Phase + "/" + cmd.Step}, c.at):
		here, w.crash = *c, nil
	case w.Interrupt == nil || !w.Interrupt(cmd, done):
		return false
	}
	w.dirty = true
	if here.down > 0 {
		w.tell("crash %s, down for %s", here, here.down)
	} else {
		w.tell("crash %s", here)
	}
	w.now = w.now.Add(here.down)
	return true
}

// write carries out a command other than RunAction.
func (w *Fake) write(run *fsm.Run, cmd fsm.Decision, base int) error {
	switch cmd.Do {
	case fsm.Commit:
		if err := w.store(run, cmd, base); err != nil {
			return err
		}
		if cmd.Transition == nil {
			w.tell("commit at step %d, held %v", w.Stored.StepIndex, w.Stored.HeldNames())
		}
		if cmd.Transition != nil {
			w.tell("commit %s", describe(cmd.Transition)+w.values())
		}
	case fsm.Requeue:
		if err := w.store(run, cmd, base); err != nil {
			return err
		}
		w.dirty = false
		if w.forget(); w.Over() {
			return nil
		}
		if cmd.After == 0 {
			w.tell("sleep until something changes")
			return nil
		}
		w.wake = w.now.Add(cmd.After)
		w.tell("sleep %s", cmd.After)
	case fsm.AddFinalizer, fsm.RemoveFinalizer:
		w.setFinalizer(cmd.Do)
	default:
		w.defect("unknown command %q", cmd.Do)
	}
	return nil
}

// values is what was assigned, for a transition that is told.
func (w *Fake) values() string {
	if w.Stored.State == "" {
		return ""
	}
	return ", state " + flow(json.RawMessage(w.Stored.State))
}

func describe(took *v1alpha1.Transition) string {
	s := fmt.Sprintf("%s → %s (%s)", cmp.Or(took.From, "·"), took.To, took.Reason)
	if took.Message != "" {
		s += ": " + took.Message
	}
	return s
}

// View is what the driver observes now.
func (w *Fake) View() fsm.Observation {
	asked := map[string]bool{}
	return fsm.Observation{
		Self:       fsm.StaticObject(w.Self()),
		Deleting:   w.deleting,
		Gone:       w.gone,
		Message:    w.Shown.Message,
		Finalizer:  slices.Contains(w.Finalizers, w.finalizer()),
		Generation: w.generation,
		Observed:   w.observed,
		Due:        w.paced,
		Now:        w.Now,
		Guard: func(name string) (bool, string, error) {
			if asked[name] {
				w.defect("guard %s is asked twice in one look", name)
			}
			asked[name] = true
			g := w.guard(name)
			return g.Open, g.Seen, g.Err
		},
	}
}

// Difference is a crash that changed the end of a story.
type Difference struct {
	// Where the driver was killed, for people.
	Where         string
	Calm, Crashed Ending
	// Defects that the crash brought about.
	Defects []string

	// world is that of the crash.
	world *Fake
}

func (d Difference) String() string {
	if len(d.Defects) > 0 {
		return fmt.Sprintf("a crash %s: %s", d.Where, strings.Join(d.Defects, "; "))
	}
	return fmt.Sprintf("a crash %s changes the end: %s", d.Where, strings.Join(d.Crashed.against(d.Calm), "; "))
}

// CrashEverywhere tells a story once undisturbed, and once more for each place
// where the driver can be killed: before and after each command, the first time
// that it is given in a visit to a phase. Begin makes the world anew for each. It
// answers how many crashes there were, and those that ended otherwise.
func CrashEverywhere(begin func() *Fake, story func(*Fake)) (crashes int, changed []Difference) {
	calm, n, places := begin(), 0, []int{}
	seen := map[string]bool{}
	calm.Interrupt = func(cmd fsm.Decision, done bool) bool {
		n++
		st := calm.Stored
		place := fmt.Sprint(st.Phase, len(st.History), st.StepIndex, st.HeldNames(), cmd.Do, cmd.Action, cmd.Step, cmd.Key, cmd.Effect, done)
		if !seen[place] {
			seen[place] = true
			places = append(places, n)
		}
		return false
	}
	story(calm)
	want := calm.Ending()
	for _, at := range places {
		w, n, where := begin(), 0, ""
		w.Interrupt = func(cmd fsm.Decision, done bool) bool {
			if n++; n == at {
				where = fmt.Sprintf("%s %s in phase %s", beforeOrAfter(done),
					strings.TrimSpace(fmt.Sprint(cmd.Do, " ", cmd.Action)), w.Stored.Phase)
			}
			return n == at
		}
		story(w)
		if got := w.Ending(); len(w.Defects) > 0 || !reflect.DeepEqual(want, got) {
			changed = append(changed, Difference{Where: where, Calm: want, Crashed: got, Defects: w.Defects, world: w})
		}
	}
	return len(places), changed
}
