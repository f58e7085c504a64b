// Package machinestore keeps the machines that are in force: the compiled-in ones,
// with the files of a directory laid over them, reloaded while the program runs.
//
// A file takes effect as a whole or not at all. One with an error is refused, told
// of in the log and in metrics, and the last good machine of its name goes on. A
// file that was removed gives way to the compiled-in machine of its name; where
// there is none, the last good one goes on until the program ends.
//
// A file that some object could not go on with is refused too, as the engine says. The
// states of objects are read by Options.Objects; the package knows no cluster.
//
// When the program starts there is no last good machine. Where a file is refused then, the
// compiled-in machine of its name takes its place if nothing is under way by another one;
// else nothing drives its objects until the file is corrected. Other machines run.
package machinestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// lookEvery is how often the directory is read. It is small and mostly in memory,
// and reading it works the same for a mounted ConfigMap, a network file system and
// an editor that writes a new file. A change counts once it was read twice, so
// that a file that is half written is not judged.
const lookEvery = time.Second

// askEvery is how often objects are asked whether a compiled-in machine may take the place of
// a file that was refused at the start: another process may have brought them to an end.
const askEvery = 10 * time.Second

// Options say where machine files are and what they may name.
type Options struct {
	// Shipped are the compiled-in files.
	Shipped fs.FS
	// Dir is the directory of files that replace them or add to them; empty: none.
	Dir string
	// Bindings answers what the machine of a file may name.
	Bindings func(*fsm.Definition) (fsm.Bindings, error)
	// Runs tells whether this process drives the objects of a machine; nil: of all. A file of
	// another one is judged for the log only.
	Runs func(machine string) bool
	// Objects answers the states of the objects that a machine drives; nil: nobody asks, and
	// a file is taken whatever they are.
	Objects Objects
	Log     logr.Logger
	// Looked is called each time that Start has looked at the directory; nil: nobody asks.
	Looked func()
}

// Store holds the machines in force. Its methods may be called from any goroutine.
type Store struct {
	Options
	shipped map[string]*fsm.Machine
	metrics *gauges

	// seen is the last reading of the directory, judged the last that was acted on.
	// Only Load and Start use them.
	seen, judged []file

	mu      sync.RWMutex
	now     verdict
	changed chan struct{}
}

// Load reads and checks every file. What is wrong with one is told by the log and Refusals.
// The error is about the compiled-in machines, or a directory that cannot be listed.
func Load(o Options) (*Store, error) {
	shipped := judge(nil, nil, read(o.Shipped, ""), o.Bindings)
	if err := errorOf(shipped.refused); err != nil {
		return nil, fmt.Errorf("the compiled-in machines: %w", err)
	}
	s := &Store{Options: o, shipped: shipped.inForce, changed: make(chan struct{})}
	s.seen = s.reading()
	s.judged = s.seen
	first := judge(s.shipped, nil, s.judged, o.Bindings)
	if len(first.refused) > 0 && first.refused[0].file == o.Dir {
		return nil, errorOf(first.refused)
	}
	s.metrics = newGauges()
	s.metrics.count(verdict{inForce: first.inForce}, first)
	s.publish(verdict{}, first)
	return s, nil
}

func (s *Store) runs(machine string) bool { return s.Runs == nil || machine == "" || s.Runs(machine) }

func errorOf(refused []refusal) error {
	var all diag.Diagnostics
	for _, r := range refused {
		all = append(all, r.findings...)
	}
	return all.Err()
}

func (s *Store) reading() []file {
	if s.Dir == "" {
		return nil
	}
	return read(os.DirFS(s.Dir), s.Dir)
}

// NeedLeaderElection is false: a manager that waits to lead must know of a change
// when it begins to.
func (s *Store) NeedLeaderElection() bool { return false }

// Start watches the directory until ctx is done. It is called once, by the manager.
func (s *Store) Start(ctx context.Context) error {
	s.warn(ctx)
	s.fallBack(ctx)
	ticker, asking := time.NewTicker(lookEvery), time.NewTicker(askEvery)
	defer ticker.Stop()
	defer asking.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asking.C:
			s.fallBack(ctx)
		case <-ticker.C:
			s.look(ctx)
			if s.Looked != nil {
				s.Looked()
			}
		}
	}
}

// look reads the directory once, and acts on what it reads for the second time. Where the
// objects cannot be asked, it does so at the next look.
func (s *Store) look(ctx context.Context) {
	files := s.reading()
	settled := same(files, s.seen)
	s.seen = files
	if !settled || same(files, s.judged) {
		return
	}
	last := s.verdict()
	next := judge(s.shipped, last.inForce, files, s.Bindings)
	if err := s.adopt(ctx, last, &next); err != nil {
		s.Log.Error(err, "a changed machine file waits, the last good machine goes on")
		return
	}
	s.judged = files
	s.metrics.count(last, next)
	s.publish(last, next)
}

// publish puts a verdict into force, and tells of what is different.
func (s *Store) publish(last, next verdict) {
	s.report(last, next)
	s.metrics.show(next)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = next
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Store) verdict() verdict {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.now
}

// report tells the log what is different now.
func (s *Store) report(last, next verdict) {
	for _, name := range slices.Sorted(maps.Keys(next.inForce)) {
		m, was := next.inForce[name], ""
		if m == last.inForce[name] {
			continue
		}
		if old := last.inForce[name]; old != nil {
			was = old.Revision()
		}
		s.Log.Info("machine in force", "machine", name, "file", m.File(), "revision", m.Revision(), "before", was)
		for _, d := range next.warnings[name] {
			s.Log.Info("machine file has a weakness", "machine", name, "finding", d.String())
		}
	}
	for _, r := range next.refused {
		for _, d := range r.findings {
			if !s.runs(r.machine) {
				s.Log.Info("machine file refused, "+s.instead(next, r.machine), "machine", r.machine, "finding", d.String())
				continue
			}
			s.Log.Error(errors.New(d.String()), "machine file refused, "+s.instead(next, r.machine), "machine", r.machine, "code", d.Code)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.waiting)) {
		if why := next.waiting[name]; why != "" && why != last.waiting[name] {
			s.Log.Error(errors.New(why), "the compiled-in machine does not take the place of a refused file", "machine", name)
		}
	}
	for _, name := range next.orphans {
		s.Log.Info("the file of a machine is gone; the machine goes on until this program ends, and its objects are left alone then",
			"machine", name, "file", next.inForce[name].File())
	}
}

// Names lists the machines in force. A name never disappears.
func (s *Store) Names() []string { return slices.Sorted(maps.Keys(s.verdict().inForce)) }

// Changed is closed at the next change of anything. Take it before reading, so
// that no change is missed.
func (s *Store) Changed() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.changed
}

// Of answers the machine of a name that is, or will be, in force.
func (s *Store) Of(name string) *Handle { return &Handle{Store: s, name: name} }

// Handle is one machine, whatever its revision.
type Handle struct {
	*Store
	name string
}

// InForce is the machine of this moment; nil if there never was one of the name. Once there
// is one, there always is.
func (h *Handle) InForce() *fsm.Machine { return h.verdict().inForce[h.name] }

// instead says what becomes of the objects of a machine whose file is refused.
func (s *Store) instead(now verdict, machine string) string {
	_, waits := now.waiting[machine]
	switch m := now.inForce[machine]; {
	case machine == "":
		return "it does not say which machine it is: those in force go on"
	case !s.runs(machine):
		return "this process does not run it"
	case waits:
		return strings.TrimSuffix("nothing drives the objects of machine "+machine+": "+now.waiting[machine], ": ")
	case m != nil && m == s.shipped[machine]:
		return "the compiled-in machine goes on"
	}
	return "the last good machine goes on"
}

// Refusal is a file that is not used.
type Refusal struct {
	// Machine is the one that the file is of; empty where it does not tell.
	Machine string
	// Finding says what is wrong with it, Note also what goes on instead.
	Finding, Note string
}

// Refusals are the files that are not used.
func (s *Store) Refusals() []Refusal {
	now := s.verdict()
	var all []Refusal
	for _, r := range now.refused {
		all = append(all, Refusal{Machine: r.machine, Finding: r.note(), Note: r.note() + "; " + s.instead(now, r.machine)})
	}
	return all
}

// NotDriven is an error that names the machines of this process that nothing drives; nil
// where there are none.
func (s *Store) NotDriven() error {
	now := s.verdict()
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(now.waiting)) {
		if s.runs(name) {
			notes = append(notes, s.instead(now, name))
		}
	}
	if len(notes) == 0 {
		return nil
	}
	return errors.New(strings.Join(notes, "; ") + "; correct the machine files that are refused")
}

// Await returns once the machine is in force; false when ctx is done before.
func (h *Handle) Await(ctx context.Context) bool {
	for {
		changed := h.Changed()
		if h.InForce() != nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// Refused says what is wrong with a newer file of the machine, and what goes on
// instead; empty while nothing is.
func (h *Handle) Refused() string {
	now := h.verdict()
	var notes []string
	for _, r := range now.refused {
		if r.machine == h.name {
			notes = append(notes, r.note())
		}
	}
	m := now.inForce[h.name]
	if len(notes) == 0 || m == nil {
		return ""
	}
	return fmt.Sprintf("revision %s goes on: %s", m.Revision(), strings.Join(notes, "; "))
}
