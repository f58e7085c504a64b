// Package machines keeps the machines that are in force: the compiled-in ones,
// with the files of a directory laid over them, reloaded while the program runs.
//
// A file takes effect as a whole or not at all. One with an error is refused, told
// of in the log and in metrics, and the last good machine of its name goes on. A
// file that was removed gives way to the compiled-in machine of its name; where
// there is none, the last good one goes on until the program ends.
//
// A file that some object could not go on with is refused too, as the engine says. The
// states of objects are read by Options.Objects; the package knows no cluster.
package machines

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
)

// lookEvery is how often the directory is read. It is small and mostly in memory,
// and reading it works the same for a mounted ConfigMap, a network file system and
// an editor that writes a new file. A change counts once it was read twice, so
// that a file that is half written is not judged.
const lookEvery = time.Second

// Options say where machine files are and what they may name.
type Options struct {
	// Shipped are the compiled-in files.
	Shipped fs.FS
	// Dir is the directory of files that replace them or add to them; empty: none.
	Dir string
	// Bindings answers what the machine of a file may name.
	Bindings func(*fsm.Definition) (fsm.Bindings, error)
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

// Load reads and checks every file. The error has one line for each finding, and
// no machine is in force then.
func Load(o Options) (*Store, error) {
	shipped := judge(nil, nil, read(o.Shipped, ""), o.Bindings)
	if err := errorOf(shipped.refused); err != nil {
		return nil, fmt.Errorf("the compiled-in machines: %w", err)
	}
	s := &Store{Options: o, shipped: shipped.inForce, changed: make(chan struct{})}
	s.seen = s.reading()
	s.judged = s.seen
	first := judge(s.shipped, s.shipped, s.judged, o.Bindings)
	if err := errorOf(first.refused); err != nil {
		return nil, err
	}
	s.metrics = newGauges()
	s.metrics.show(first)
	s.report(verdict{}, first)
	s.now = first
	return s, nil
}

func errorOf(refused []refusal) error {
	var all fsm.Diagnostics
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
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
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
	s.report(last, next)
	s.metrics.show(next)
	s.metrics.count(last, next)

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
			s.Log.Error(errors.New(d.String()), "machine file refused, the last good machine goes on", "machine", r.machine, "code", d.Code)
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

// InForce is the machine of this moment; nil if there never was one of the name.
func (h *Handle) InForce() *fsm.Machine { return h.verdict().inForce[h.name] }

// Refusals say of each file that is not used what is wrong with it.
func (s *Store) Refusals() []string {
	var notes []string
	for _, r := range s.verdict().refused {
		notes = append(notes, r.note())
	}
	return notes
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
