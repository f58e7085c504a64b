package fsm_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
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
			w.Delete()
			w.settle()
		},
	},
	"conflict": {
		why: "the way through WaitingForConflictResolution with everything locked",
		tell: func(w *world) {
			w.conflict = true
			w.settle()
			w.conflict = false
			w.Tick(10 * time.Second)
			w.settle()
			w.Delete()
			w.settle()
		},
	},
	"failure": {
		why: "a rollback from the fullest ledger, a retry, and an abort",
		tell: func(w *world) {
			w.Give("Verify", failing(fsm.Terminal("Bad", "bad"), ""))
			w.settle()
			w.Annotate(map[string]string{"phasegate.dev/retry": "1"})
			w.settle()
			w.Delete()
			w.settle()
		},
	},
	"abort": {
		why: "a deletion while the copy is going on",
		tell: func(w *world) {
			w.Give("CopyResources", failing(fsm.Wait("copying"), ""))
			w.settle()
			w.Delete()
			w.settle()
		},
	},
}

func TestCrashAnywhereEndsTheSame(t *testing.T) {
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told *world
			begin := func() *simulate.Fake { told = shipped(t); return told.Fake }
			crashes, changed := simulate.CrashEverywhere(begin, func(*simulate.Fake) { s.tell(told) })
			if crashes == 0 || !told.Gone() {
				t.Fatalf("%s: the story has no end: %+v", s.why, told.Ending())
			}
			for _, c := range changed {
				t.Errorf("%s: a crash %s changes the end (-calm +crashed):\n%s%v", s.why, c.Where, cmp.Diff(c.Calm, c.Crashed), c.Defects)
			}
		})
	}
}

func TestRivalWriteAnywhereEndsTheSame(t *testing.T) {
	calm := shipped(t)
	passes := 0
	calm.Interrupt = func(cmd fsm.Decision, done bool) bool {
		if cmd.Do == fsm.Commit && !done {
			passes++
		}
		return false
	}
	stories["failure"].tell(calm)
	for at := range passes {
		w := shipped(t)
		n := 0
		w.Interrupt = func(cmd fsm.Decision, done bool) bool {
			if cmd.Do == fsm.Commit && !done {
				w.ConflictNext = n == at
				n++
			}
			return false
		}
		stories["failure"].tell(w)
		if d := cmp.Diff(calm.Ending(), w.Ending()); d != "" {
			t.Errorf("somebody else writing before commit %d changes the end (-calm +rival):\n%s", at, d)
		}
	}
}

// reach brings a world to rest in a phase of the shipped machine.
var reach = map[string]func(w *world){
	"Pending": func(w *world) { w.Give("Preflight", answer(map[string]any{"blockers": []string{"x"}})); w.settle() },
	"Migrating": func(w *world) {
		w.Give("Verify", answer(map[string]any{"different": 1}))
		w.settle()
	},
	"WaitingForConflictResolution": func(w *world) {
		w.conflict = true
		w.settle()
	},
	"Converged": func(w *world) {
		w.Give("ObserveRollout", answer(map[string]any{"pending": []string{"calico-node"}}))
		w.settle()
	},
	"Complete": func(w *world) { w.settle() },
	"RollingBack": func(w *world) {
		w.Give("Verify", failing(fsm.Terminal("Bad", "bad"), ""))
		w.Give("UnlockV3", failing(errors.New("no"), program.ClassUnavailable))
		w.settle()
		w.Give("UnlockV3")
	},
	"Failed": func(w *world) {
		w.Give("Verify", failing(fsm.Terminal("Bad", "bad"), ""))
		w.settle()
	},
	"Rejected": func(w *world) { w.GiveGuard("onlyMigration", simulate.GuardAnswer{}); w.settle() },
	"Aborting": func(w *world) {
		w.Give("Verify", answer(map[string]any{"different": 1}))
		w.settle()
		w.Give("RestoreAPIService", failing(errors.New("no"), program.ClassUnavailable))
		w.Delete()
		w.settle()
		w.Give("RestoreAPIService")
	},
	"CleaningUp": func(w *world) {
		w.settle()
		w.Give("DeleteV1CRDs", failing(fsm.Wait("22 left"), ""))
		w.Delete()
		w.settle()
		w.Give("DeleteV1CRDs")
	},
}

func TestDeletionFromEveryPhase(t *testing.T) {
	// What the machine keeps from the point of no return on; nothing else may be left.
	kept := []string{"apiService", "v1Fence", "v1Lock", "v1Owners", "v3Copies"}
	cases := map[string]struct {
		why  string
		left []string
		path []string
	}{
		"Pending":                      {"nothing was taken", nil, []string{"Aborting", "Deleted"}},
		"Migrating":                    {"everything is taken", nil, []string{"Aborting", "Deleted"}},
		"WaitingForConflictResolution": {"a person may give up while it is locked", nil, []string{"Aborting", "Deleted"}},
		"RollingBack":                  {"a rollback that is stuck goes on", nil, []string{"Aborting", "Deleted"}},
		"Failed":                       {"nothing is held", nil, []string{"Aborting", "Deleted"}},
		"Rejected":                     {"no finalizer was ever added", nil, nil},
		"Converged":                    {"the point of no return: first Complete, then clean up", kept, []string{"Complete", "CleaningUp", "Deleted"}},
		"Complete":                     {"clean up", kept, []string{"CleaningUp", "Deleted"}},
		"Aborting":                     {"it is being deleted already", nil, []string{"Deleted"}},
		"CleaningUp":                   {"it is being deleted already", kept, []string{"Deleted"}},
	}
	for phase, c := range cases {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			w := shipped(t)
			reach[phase](w)
			if w.Stored.Phase != phase {
				t.Fatalf("rests in %s", w.Stored.Phase)
			}
			before := len(w.Stored.History)
			w.Delete()
			for range 5 { // what the phase had been waiting for comes true meanwhile
				w.Give("ObserveRollout")
				w.settle()
				w.Tick(5 * time.Minute)
			}
			var path []string
			for _, h := range w.Stored.History[before:] {
				path = append(path, h.To)
			}
			if !w.Gone() {
				t.Errorf("%s: the object is still there, in %s", c.why, w.Stored.Phase)
			}
			if d := cmp.Diff(c.path, path); d != "" {
				t.Errorf("%s: path (-want +got):\n%s", c.why, d)
			}
			if left := w.InPlace(); !slices.Equal(left, c.left) {
				t.Errorf("%s: left in place %v, want %v", c.why, left, c.left)
			}
		})
	}
	t.Run("all phases are covered", func(t *testing.T) {
		for _, p := range shipped(t).Machine.Phases() {
			if _, ok := cases[p]; !ok && p != "Deleted" {
				t.Errorf("no case for phase %s", p)
			}
		}
	})
}
