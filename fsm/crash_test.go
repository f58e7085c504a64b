package fsm

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A story drives the shipped machine from its creation to its end, whatever
// happens to the driver on the way.
type story struct {
	why  string
	tell func(w *world)
}

var stories = map[string]story{
	"success": {
		why: "every step of the way to Complete and to the removal of v1",
		tell: func(w *world) {
			w.settle()
			w.delete()
			w.settle()
		},
	},
	"conflict": {
		why: "the way through WaitingForConflictResolution with everything locked",
		tell: func(w *world) {
			w.conflict = true
			w.settle()
			w.conflict = false
			w.now = w.now.Add(10 * time.Second)
			w.settle()
			w.delete()
			w.settle()
		},
	},
	"failure": {
		why: "a rollback from the fullest ledger, a retry, and an abort",
		tell: func(w *world) {
			w.actions["Verify"] = []answer{{Outcome: Outcome{Err: Terminal("Bad", "bad")}}}
			w.settle()
			w.self["metadata"] = map[string]any{"annotations": map[string]any{"phasegate.dev/retry": "1"}}
			w.settle()
			w.delete()
			w.settle()
		},
	},
	"abort": {
		why: "a deletion while the copy is going on",
		tell: func(w *world) {
			w.actions["CopyResources"] = []answer{{Outcome: Outcome{Err: Wait("copying")}}}
			w.settle()
			w.delete()
			w.settle()
		},
	},
}

// ending is what must not depend on crashes.
type ending struct {
	Gone     bool
	Phase    string
	Held     []string
	Taken    []string
	Released []string
	Path     []string
}

func (w *world) ending() ending {
	e := ending{Gone: w.gone, Phase: w.stored.Phase, Held: w.stored.Held, Taken: w.held(), Released: slices.Sorted(maps.Keys(w.released))}
	for _, h := range w.stored.History {
		e.Path = append(e.Path, h.To)
	}
	return e
}

func TestCrashAnywhereEndsTheSame(t *testing.T) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands := 0
			calm := shipped(t)
			calm.interrupt = func(Command, bool) bool { commands++; return false }
			s.tell(calm)
			want := calm.ending()
			if !want.Gone {
				t.Fatalf("%s: the story has no end: %+v", s.why, want)
			}
			for at := range commands {
				w := shipped(t)
				n := 0
				where := ""
				w.interrupt = func(cmd Command, done bool) bool {
					n++
					if n == at+1 {
						where = fmt.Sprintf("%s %s, done=%t", cmd.Do, cmd.Action, done)
					}
					return n == at+1
				}
				s.tell(w)
				if d := cmp.Diff(want, w.ending()); d != "" {
					t.Errorf("%s: a crash at command %d (%s) changes the end (-calm +crashed):\n%s", s.why, at, where, d)
				}
			}
		})
	}
}

func TestRivalWriteAnywhereEndsTheSame(t *testing.T) {
	calm := shipped(t)
	passes := 0
	calm.interrupt = func(cmd Command, done bool) bool {
		if cmd.Do == Commit && !done {
			passes++
		}
		return false
	}
	stories["failure"].tell(calm)
	for at := range passes {
		w := shipped(t)
		n := 0
		w.interrupt = func(cmd Command, done bool) bool {
			if cmd.Do == Commit && !done {
				w.rival = n == at
				n++
			}
			return false
		}
		stories["failure"].tell(w)
		if d := cmp.Diff(calm.ending(), w.ending()); d != "" {
			t.Errorf("somebody else writing before commit %d changes the end (-calm +rival):\n%s", at, d)
		}
	}
}

// reach brings a world to rest in a phase of the shipped machine.
var reach = map[string]func(w *world){
	"Pending": func(w *world) { w.outputs("Preflight", map[string]any{"blockers": []string{"x"}}); w.settle() },
	"Migrating": func(w *world) {
		w.outputs("Verify", map[string]any{"different": 1})
		w.settle()
	},
	"WaitingForConflictResolution": func(w *world) {
		w.conflict = true
		w.settle()
	},
	"Converged": func(w *world) {
		w.outputs("ObserveRollout", map[string]any{"pending": []string{"calico-node"}})
		w.settle()
	},
	"Complete": func(w *world) { w.settle() },
	"RollingBack": func(w *world) {
		w.actions["Verify"] = []answer{{Outcome: Outcome{Err: Terminal("Bad", "bad")}}}
		w.actions["UnlockV3"] = []answer{{Outcome: Outcome{Err: fmt.Errorf("no"), Class: ClassUnavailable}}}
		w.settle()
		delete(w.actions, "UnlockV3")
	},
	"Failed": func(w *world) {
		w.actions["Verify"] = []answer{{Outcome: Outcome{Err: Terminal("Bad", "bad")}}}
		w.settle()
	},
	"Rejected": func(w *world) { w.guards["onlyMigration"] = guardAnswer{}; w.settle() },
	"Aborting": func(w *world) {
		w.outputs("Verify", map[string]any{"different": 1})
		w.settle()
		w.actions["RestoreAPIService"] = []answer{{Outcome: Outcome{Err: fmt.Errorf("no"), Class: ClassUnavailable}}}
		w.delete()
		w.settle()
		delete(w.actions, "RestoreAPIService")
	},
	"CleaningUp": func(w *world) {
		w.settle()
		w.actions["DeleteV1CRDs"] = []answer{{Outcome: Outcome{Err: Wait("22 left")}}}
		w.delete()
		w.settle()
		delete(w.actions, "DeleteV1CRDs")
	},
}

func TestDeletionFromEveryPhase(t *testing.T) {
	// What the machine keeps from the point of no return on; nothing else may be left.
	kept := []string{"apiService", "v1Lock", "v3Copies"}
	cases := map[string]struct {
		why  string
		left []string
		path []string
	}{
		"Pending":                      {"nothing was taken", nil, []string{"Aborting", "Gone"}},
		"Migrating":                    {"everything is taken", nil, []string{"Aborting", "Gone"}},
		"WaitingForConflictResolution": {"a person may give up while it is locked", nil, []string{"Aborting", "Gone"}},
		"RollingBack":                  {"a rollback that is stuck goes on", nil, []string{"Aborting", "Gone"}},
		"Failed":                       {"nothing is held", nil, []string{"Aborting", "Gone"}},
		"Rejected":                     {"no finalizer was ever added", nil, nil},
		"Converged":                    {"the point of no return: first Complete, then clean up", kept, []string{"Complete", "CleaningUp", "Gone"}},
		"Complete":                     {"clean up", kept, []string{"CleaningUp", "Gone"}},
		"Aborting":                     {"it is being deleted already", nil, []string{"Gone"}},
		"CleaningUp":                   {"it is being deleted already", kept, []string{"Gone"}},
	}
	for phase, c := range cases {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			w := shipped(t)
			reach[phase](w)
			if w.stored.Phase != phase {
				t.Fatalf("rests in %s", w.stored.Phase)
			}
			before := len(w.stored.History)
			w.delete()
			for range 5 { // what the phase had been waiting for comes true meanwhile
				delete(w.actions, "ObserveRollout")
				w.settle()
				w.now = w.now.Add(5 * time.Minute)
			}
			var path []string
			for _, h := range w.stored.History[before:] {
				path = append(path, h.To)
			}
			if !w.gone {
				t.Errorf("%s: the object is still there, in %s", c.why, w.stored.Phase)
			}
			if d := cmp.Diff(c.path, path); d != "" {
				t.Errorf("%s: path (-want +got):\n%s", c.why, d)
			}
			if left := w.held(); !slices.Equal(left, c.left) {
				t.Errorf("%s: left in place %v, want %v", c.why, left, c.left)
			}
		})
	}
	t.Run("all phases are covered", func(t *testing.T) {
		for _, p := range shipped(t).m.Phases() {
			if _, ok := cases[p]; !ok && p != "Gone" {
				t.Errorf("no case for phase %s", p)
			}
		}
	})
}
