package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// world plays the API server, the driver and everything that actions touch. It
// checks, at every command, what must hold in every run of every machine.
type world struct {
	t        *testing.T
	m        *Machine
	bindings Bindings
	now      time.Time

	// What the API server stores.
	self      map[string]any
	stored    v1alpha1.MachineStatus
	shown     Summary
	version   int
	finalizer bool
	deleting  bool
	gone      bool

	// What actions and guards answer; a list is used up from its front, its last
	// answer stays.
	actions map[string][]answer
	guards  map[string]guardAnswer
	// conflict is in the v3 datastore, where it is seen only once v3 is uncovered.
	conflict bool

	// taken are the effects in place; released and called count for comparison.
	taken    map[string]bool
	released map[string]bool
	asked    map[string]int
	acted    []string

	// interrupt is asked before and after each command is carried out; true kills
	// the driver there.
	interrupt func(cmd Command, done bool) bool
	// rival writes the object behind the driver's back, before the next write.
	rival bool
	trace strings.Builder
}

type answer struct {
	Outcome
	takes time.Duration
}

var (
	errCrash    = errors.New("crash")
	errConflict = errors.New("conflict")
	epoch       = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
)

func newWorld(t *testing.T, file string, data []byte, b Bindings) *world {
	t.Helper()
	def, diags := Load(file, data)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	m, diags := Bind(def, b)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	return worldOf(t, m, b)
}

func worldOf(t *testing.T, m *Machine, b Bindings) *world {
	return &world{t: t, m: m, bindings: b, now: epoch, version: 1,
		self:    map[string]any{"metadata": map[string]any{"name": "x"}, "spec": map[string]any{}},
		actions: map[string][]answer{}, guards: map[string]guardAnswer{},
		taken: map[string]bool{}, released: map[string]bool{}, asked: map[string]int{}}
}

func (w *world) say(format string, args ...any) { fmt.Fprintf(&w.trace, format+"\n", args...) }

func (w *world) view() View {
	asked := map[string]bool{}
	return View{
		Self: w.self, Deleting: w.deleting, Finalizer: w.finalizer, Now: func() time.Time { return w.now },
		Guard: func(name string) (bool, string, error) {
			if asked[name] {
				w.t.Errorf("guard %s is asked twice in one run", name)
			}
			asked[name] = true
			w.asked[name]++
			g, known := w.guards[name]
			if !known {
				return true, "", nil
			}
			return g.open, g.seen, g.err
		},
	}
}

// pass is one reconcile. It answers the command that ended it.
func (w *world) pass() (Command, error) {
	base := w.version
	run := w.m.Run(w.stored, w.view())
	for range 100 {
		cmd := run.Next()
		if w.interrupt != nil && w.interrupt(cmd, false) {
			return cmd, errCrash
		}
		err := w.obey(run, cmd, base)
		if err == nil && cmd.Do != Act && w.interrupt != nil && w.interrupt(cmd, true) {
			err = errCrash
		}
		if err != nil || cmd.Do != Act {
			return cmd, err
		}
	}
	w.t.Fatal("a run does not end")
	return Command{}, nil
}

func (w *world) obey(run *Run, cmd Command, base int) error {
	switch cmd.Do {
	case Act:
		o := w.act(cmd)
		if w.interrupt != nil && w.interrupt(cmd, true) {
			return errCrash // the deed is done, and nobody knows
		}
		run.Done(o)
	case Commit:
		if err := w.store(run, base); err != nil {
			return err
		}
		w.say("commit %s", w.describe(cmd.Took))
	case Sleep:
		if err := w.store(run, base); err != nil {
			return err
		}
		w.say("sleep %s", cmd.After)
	case AddFinalizer, RemoveFinalizer:
		if (cmd.Do == AddFinalizer) == w.finalizer {
			w.t.Errorf("%s is asked for, but finalizer is %t", cmd.Do, w.finalizer)
		}
		w.finalizer = cmd.Do == AddFinalizer
		w.version++
		w.gone = w.deleting && !w.finalizer
		w.say("%s", cmd.Do)
	default:
		w.t.Fatalf("unknown command %q", cmd.Do)
	}
	return nil
}

func (w *world) describe(took *v1alpha1.Transition) string {
	if took == nil {
		return fmt.Sprintf("at step %d, held %v", w.stored.Cursor, w.stored.Held)
	}
	s := fmt.Sprintf("%s → %s (%s)", firstOf(took.From, "·"), took.To, took.Reason)
	if took.Message != "" {
		s += ": " + took.Message
	}
	return s
}

func (w *world) act(cmd Command) Outcome {
	var a answer
	if answers := w.actions[cmd.Action]; len(answers) > 0 {
		a = answers[0]
		if len(answers) > 1 {
			w.actions[cmd.Action] = answers[1:]
		}
	} else {
		a.Outputs = sampleOutputs(w.bindings.Actions[cmd.Action])
		if _, sees := a.Outputs["conflicts"]; sees && w.conflict && w.taken["apiService"] {
			a.Outputs["conflicts"] = 1
		}
	}
	w.now = w.now.Add(a.takes)
	w.acted = append(w.acted, cmd.Action)
	w.effect(cmd, a.Outcome)
	w.say("act %s%s", cmd.Action, showOutcome(a.Outcome))
	return a.Outcome
}

// effect changes the world as the action would, and checks the ledger.
func (w *world) effect(cmd Command, o Outcome) {
	for _, e := range w.m.def.Spec.Effects {
		switch cmd.Action {
		case e.Acquire:
			if !slices.Contains(w.stored.Held, e.Name) {
				w.t.Errorf("%s is called, but %s is not in the committed ledger %v", cmd.Action, e.Name, w.stored.Held)
			}
			w.taken[e.Name] = true // an action that fails may have done half of it
		case e.Release:
			if o.Err == nil {
				delete(w.taken, e.Name)
				w.released[e.Name] = true
			}
		}
	}
}

func showOutcome(o Outcome) string {
	switch {
	case o.wait() != nil:
		return fmt.Sprintf(": wait %s: %s", o.wait().After, o.Err)
	case o.terminal() != nil:
		return fmt.Sprintf(": terminal %s: %s", o.terminal().Reason, o.Err)
	case o.Err != nil:
		return fmt.Sprintf(": %s: %s", o.Class, o.Err)
	}
	return ""
}

// sampleOutputs are the outputs of a day on which nothing is wrong: every list
// is empty, and every number 0.
func sampleOutputs(spec ActionSpec) map[string]any {
	zero := map[Type]any{TypeInt: 0, TypeBool: false, TypeString: "", TypeStrings: []string{}}
	out := map[string]any{}
	for name, t := range spec.Outputs {
		out[name] = zero[t]
	}
	return out
}

// store is the compare-and-swap, through JSON as a real API server would.
func (w *world) store(run *Run, base int) error {
	if w.rival {
		w.rival = false
		w.version++
	}
	if base != w.version {
		w.say("conflict")
		return errConflict
	}
	data, err := json.Marshal(run.Status())
	if err != nil {
		w.t.Fatal(err)
	}
	var st v1alpha1.MachineStatus
	if err := json.Unmarshal(data, &st); err != nil {
		w.t.Fatal(err)
	}
	w.checkStatus(st, run.Summary())
	old, _ := json.Marshal(w.stored)
	if string(old) != string(data) {
		w.version++
	}
	w.stored, w.shown = st, run.Summary()
	return nil
}

// settle passes until there is nothing to do before time goes on.
func (w *world) settle() {
	for range 200 {
		if w.gone {
			w.say("gone")
			return
		}
		if cmd, err := w.pass(); err == nil && cmd.Do == Sleep {
			return
		}
	}
	w.t.Fatal("the machine never comes to rest")
}

// delete is what `kubectl delete` does.
func (w *world) delete() {
	w.deleting, w.gone = true, !w.finalizer
	w.version++
}

func (w *world) outputs(action string, out map[string]any) {
	all := sampleOutputs(w.bindings.Actions[action])
	maps.Copy(all, out)
	w.actions[action] = []answer{{Outcome: Outcome{Outputs: all}}}
}

func (w *world) held() []string { return slices.Sorted(maps.Keys(w.taken)) }

// shipped is the machine of phases/datastore-migration.yaml with the names that
// its program has.
func shipped(t *testing.T) *world {
	t.Helper()
	shippedOnce.Do(func() {
		file := readFile(t, "../phases/datastore-migration.yaml")
		shippedWorld = newWorld(t, "datastore-migration.yaml", file, shippedBindings(t, file))
	})
	if shippedWorld == nil {
		t.Fatal("the shipped machine was refused")
	}
	w := worldOf(t, shippedWorld.m, shippedWorld.bindings)
	w.self["spec"] = map[string]any{"type": "APIServerToCRDs"}
	return w
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The shipped machine is loaded once: it is immutable, and crashed often.
var (
	shippedOnce  sync.Once
	shippedWorld *world
)

// shippedBindings adds the actions that the file names and that need no
// parameters and have no outputs; that the program has them is its own test.
func shippedBindings(t testing.TB, file []byte) Bindings {
	t.Helper()
	def, diags := Load("datastore-migration.yaml", file)
	if len(diags) > 0 {
		t.Fatal(diags.Err())
	}
	b := Bindings{Guards: migrationBindings.Guards, Actions: maps.Clone(migrationBindings.Actions)}
	for _, p := range def.Spec.Phases {
		for _, s := range p.Steps {
			if _, known := b.Actions[s.Action]; !known && s.Action != "" {
				b.Actions[s.Action] = ActionSpec{}
			}
		}
	}
	return b
}

var migrationBindings = Bindings{
	Guards: map[string]string{"onlyMigration": "", "v1CRDsInstalled": ""},
	Actions: map[string]ActionSpec{
		"Preflight":         {Outputs: map[string]Type{"blockers": TypeStrings}},
		"Plan":              {Outputs: map[string]Type{"problems": TypeStrings}},
		"DetectConflicts":   {Outputs: map[string]Type{"conflicts": TypeInt, "examples": TypeStrings}},
		"LockV1":            {},
		"UnlockV1":          {},
		"Drain":             {Params: map[string]Param{"quiet": {Type: TypeDuration}, "atMost": {Type: TypeDuration}}},
		"ParkAPIService":    {},
		"RestoreAPIService": {},
		"AwaitV3Served":     {},
		"LockV3":            {},
		"UnlockV3":          {Params: map[string]Param{"created": {Type: TypeString}}},
		"CopyResources":     {Outputs: map[string]Type{"conflicts": TypeInt, "examples": TypeStrings, "ownersWithheld": TypeInt}},
		"DeleteCopies":      {},
		"RemapOwners":       {},
		"Verify":            {Outputs: map[string]Type{"different": TypeInt, "examples": TypeStrings}},
		"ObserveRollout":    {Outputs: map[string]Type{"pending": TypeStrings}},
		"DeleteV1CRDs":      {},
	},
}
