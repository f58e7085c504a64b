package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/expr"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Bounds of a run, so that no machine and no scenario runs for ever.
const (
	// MaxLooks is how often a machine may look at its object in all.
	MaxLooks = 20_000
	// MaxTime is how far the clock may move in all.
	MaxTime = 10 * 365 * 24 * time.Hour

	maxCommands = 1000 // in one look
	maxRestless = 200  // looks at one moment
)

// Epoch is when every world begins. Its fraction of a second is there because
// real clocks have one.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// What can happen to a look.
var (
	// ErrCrash: the driver was killed. What it had not stored is forgotten.
	ErrCrash = errors.New("crash")
	// ErrConflict: somebody else wrote the object meanwhile.
	ErrConflict = errors.New("conflict")
	// ErrRestless: the machine looks again and again while the clock stands still.
	ErrRestless = fmt.Errorf("the machine looked %d times without waiting in between", maxRestless)
	// ErrTooLong: the run passed MaxLooks or MaxTime.
	ErrTooLong = fmt.Errorf("the run is longer than %d looks or %d years", MaxLooks, MaxTime/(365*24*time.Hour))
)

// Fake is one object, its machine, and the driver of both. It is not safe for concurrent use.
type Fake struct {
	world
	// Interrupt is asked before and after each command is carried out; true kills
	// the driver there.
	Interrupt func(cmd fsm.Decision, done bool) bool
	crash     *crashPoint

	// wake is when the driver comes back by itself. paced is what it remembers for View.Due.
	wake  time.Time
	paced *time.Time
	limit int
}

// world is what there is without the driver: the API server, and what actions change.
type world struct {
	journal
	given
	// Machine drives the object. Another one is what a changed file is.
	Machine *fsm.Machine
	// Stored is the state: the truth, and all that a pass begins with. A test may change
	// it as a person with an editor would. It keeps its last content when it is deleted.
	Stored v1alpha1.MachineStatus
	// Shown and ShownMachine are the view: the status of the object as the API server has
	// it. A write of the ledger leaves it as it was, and so does a crash after a write of
	// the state; the next pass repairs it.
	Shown        fsm.Summary
	ShownMachine v1alpha1.MachineStatus
	// Own are fields of the status that the machine does not write: those of the kind,
	// as its actions report them.
	Own map[string]any
	// Fields are those of spec.status that are shown.
	Fields map[string]any
	// Finalizers of the object, those of others included.
	Finalizers []string
	// ConflictNext makes another process write the state right before the next write of it.
	ConflictNext bool
	// TrustView begins each pass with the view instead of the state, and writes both in each
	// commit: a defect of a driver, which a test that is worth anything finds.
	TrustView bool
	// Respond answers for an action, by the name that the machine calls it; false
	// leaves it to what was given.
	Respond func(action string, cmd fsm.Decision) (Answer, bool)
	// Called lists the actions called, in order.
	Called []string

	// What else the API server stores: everything but status and finalizers.
	content              map[string]any
	generation, observed int64
	version              int
	deleting, gone       bool
	// vanished: gone without its machine having let it go.
	vanished bool
	// dirty: the driver has to look, at once.
	dirty bool
	// The state has a version of its own; deleted is true once it was deleted.
	stateVersion int
	// recorded is the finalizer that the state has on record.
	recorded string
	deleted  bool
	// adopted is the machine whose names inPlace and kept have.
	adopted *fsm.Machine

	// inPlace are the effects taken and not released; kept are those that the
	// machine leaves in place for good.
	inPlace, released, kept map[string]bool
	// checked is the situation that the invariants of the file were asked about last.
	checked program.InvariantState
}

// journal is the clock, and what has happened.
type journal struct {
	// Tell hears what happens.
	Tell func(Event)
	// Defects are violations of what must hold in every run of every machine: each
	// is a defect of the engine or of whoever changed Stored.
	Defects []string

	now   time.Time
	looks int
	noted map[string]bool
}

// Event is one thing that happened.
type Event struct {
	// At counts from the beginning of the world.
	At time.Duration
	// Look numbers the looks of the driver, from 1; 0 is before the first.
	Look int
	Kind EventKind
	Text string
}

// EventKind is what an event is about.
type EventKind string

// The kinds of events.
const (
	// EventDid is something that the machine or the driver did.
	EventDid EventKind = "did"
	// EventNote is about the simulation itself.
	EventNote EventKind = "note"
)

// New makes a world with an object that was just created. The object may be nil;
// name, kind and what else the API server fills in may be left out. A
// status.machine in it is where the run goes on. The error says what is wrong
// with the object.
func New(m *fsm.Machine, object map[string]any) (*Fake, error) {
	w := &Fake{limit: MaxLooks, world: world{Machine: m, version: 1, generation: 1, dirty: true,
		journal: journal{now: Epoch, noted: map[string]bool{}}, given: given{actions: map[string]queue[Answer]{}, guards: map[string]queue[GuardAnswer]{}},
		inPlace: map[string]bool{}, released: map[string]bool{}, kept: map[string]bool{}}}
	if err := w.create(object); err != nil {
		return nil, err
	}
	w.adopted = m
	for _, name := range w.Stored.HeldNames() {
		w.inPlace[name] = true
	}
	return w, nil
}

// Now is the time in the world.
func (j *journal) Now() time.Time { return j.now }

// Gone tells whether the object was deleted and nobody keeps it any more.
func (w *world) Gone() bool { return w.gone }

// Over tells whether the object is gone, and its state too: nothing happens any more.
func (w *world) Over() bool { return w.gone && !w.hasState() }

// Deleting tells whether somebody asked for the deletion of the object.
func (w *world) Deleting() bool { return w.deleting }

// Version counts the writes to the object.
func (w *world) Version() int { return w.version }

// InPlace lists the effects that were taken and not released.
func (w *world) InPlace() []string { return slices.Sorted(maps.Keys(w.inPlace)) }

// Tick moves the clock while the driver is not running.
func (j *journal) Tick(d time.Duration) { j.now = j.now.Add(d) }

// Step sets the clock forward or back, as somebody with a wrong one would: a sleep
// lasts as long as it would have.
func (w *Fake) Step(d time.Duration) {
	w.now = w.now.Add(d)
	if !w.wake.IsZero() {
		w.wake = w.wake.Add(d)
	}
	if w.paced != nil {
		w.paced = new(w.paced.Add(d))
	}
}

// Wake makes the driver look, as the change of a watched object does.
func (w *world) Wake() { w.dirty = true }

// RunUntilIdle looks at once, and again until there is nothing to do before time goes
// on. The error is ErrRestless or ErrTooLong.
func (w *Fake) RunUntilIdle() error {
	w.dirty = true
	return w.Run(0, nil)
}

// Run lets time pass, and the driver look whenever it has to, until stop is true
// or the time is over. Stop is asked before and after each look; nil never stops. The
// error is ErrRestless or ErrTooLong.
func (w *Fake) Run(d time.Duration, stop func() bool) error {
	end := w.now.Add(d)
	if end.Sub(Epoch) > MaxTime || d > MaxTime {
		return ErrTooLong
	}
	for restless := 0; stop == nil || !stop(); {
		if !w.due() {
			if !w.advanceClock(end) {
				return nil
			}
			restless = 0
			continue
		}
		if restless++; restless > maxRestless {
			return ErrRestless
		}
		if w.looks >= w.limit {
			return ErrTooLong
		}
		_, _ = w.Reconcile() // what happened was told; a look that failed is repeated
	}
	return nil
}

// advanceClock moves the clock on to the next look, or to the end: false.
func (w *Fake) advanceClock(end time.Time) bool {
	if w.Over() || w.wake.IsZero() || w.wake.After(end) {
		if w.now.Before(end) {
			w.now = end
		}
		return false
	}
	w.now = w.wake
	return true
}

func (w *Fake) due() bool {
	return !w.Over() && (w.dirty || !w.wake.IsZero() && !w.wake.After(w.now))
}

func (j *journal) tell(format string, args ...any) { j.event(EventDid, format, args...) }

func (j *journal) event(kind EventKind, format string, args ...any) {
	if j.Tell != nil {
		j.Tell(Event{At: j.now.Sub(Epoch), Look: j.looks, Kind: kind, Text: expr.Clip(fmt.Sprintf(format, args...), maxText)})
	}
}

func (j *journal) defect(format string, args ...any) {
	j.Defects = append(j.Defects, fmt.Sprintf("%s: "+format, append([]any{j.now.Sub(Epoch)}, args...)...))
}
