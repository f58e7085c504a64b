package diff_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/diag"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/show/diff"
)

const before = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: door}
spec:
  for: {apiVersion: example.org/v1, kind: Door}
  initial: Closed
  effects:
  - {name: lock, acquire: Lock, release: Unlock}
  phases:
  - name: Closed
    steps: [{action: Look}, {action: Lock, with: {turns: 2}}, {undo: held}, {action: Look}]
    next: [{to: Open, when: 'self.a > 1'}, {to: Broken, when: 'self.b'}]
    timeout: {after: 2h, to: Broken}
    poll: 5s
  - {name: Open, terminal: success}
  - {name: Broken, terminal: failure}
`

// file is the machine above after replacements, old and new by turns.
func file(t *testing.T, name string, replace ...string) *program.Definition {
	t.Helper()
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(before, replace[i]) {
			t.Fatalf("%q is not in the machine", replace[i])
		}
	}
	def, diags := program.Load(name, []byte(strings.NewReplacer(replace...).Replace(before)))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return def
}

func TestMachines(t *testing.T) {
	cases := map[string]struct {
		why     string
		replace []string
		want    diff.Report
		strands bool
	}{
		"Nothing": {why: "the same file under another name"},
		"Comment": {why: "a comment changes nothing", replace: []string{"kind: Machine\n", "kind: Machine # a door\n"}},
		"Values": {
			why:     "each value is named as the file names it",
			replace: []string{"turns: 2", "turns: 3", "2h", "3h", "self.a > 1", "self.a > 2", "    poll: 5s\n", "    keeps: [lock]\n"},
			want: diff.Report{Phases: []diff.Change{{Phase: "Closed", What: "changed", Words: []string{
				`keeps added: ["lock"]`, "next[Open].when: self.a > 1 → self.a > 2", "poll removed: 5s",
				"steps[Lock].with.turns: 2 → 3", "timeout.after: 2h → 3h",
			}}}},
		},
		"Steps": {
			why:     "steps are told apart by what they are called, and two of a name by a number",
			replace: []string{"[{action: Look}, {action: Lock, with: {turns: 2}}, {undo: held}, {action: Look}]", "[{action: Lock, with: {turns: 2}}, {wait: 5s}, {action: Look}, {undo: held}]"},
			want: diff.Report{Phases: []diff.Change{{Phase: "Closed", What: "changed", Words: []string{
				`steps[5s] added: {"wait":"5s"}`, `steps[Look #2] removed: {"action":"Look"}`,
				"steps in another order: Look, Lock, held → Lock, Look, held",
			}}}},
		},
		"Exits": {
			why:     "the first open exit is taken: their order matters",
			replace: []string{"[{to: Open, when: 'self.a > 1'}, {to: Broken, when: 'self.b'}]", "[{to: Broken, when: 'self.b'}, {to: Open, when: 'self.a > 1'}]"},
			want:    diff.Report{Phases: []diff.Change{{Phase: "Closed", What: "changed", Words: []string{"next in another order: Open, Broken → Broken, Open"}}}},
		},
		"Machine": {
			why:     "what stands outside of phases",
			replace: []string{"initial: Closed", "initial: Open\n  finalizer: a/b", "name: door", "name: gate"},
			want:    diff.Report{Machine: []string{"finalizer added: a/b", "initial: Closed → Open", "another machine: gate, not door"}},
		},
		"Removed": {
			why:     "nobody knows where an object of that phase belongs",
			replace: []string{"  - {name: Broken, terminal: failure}\n", "  - {name: Halted, steps: [{action: Look}], next: [{to: Open}]}\n"},
			want: diff.Report{
				Phases: []diff.Change{
					{Phase: "Halted", What: "added", Words: []string{"steps: Look", "leads to: Open"}},
					{Phase: "Broken", What: "removed", Words: []string{"no entry in spec.upgrade.phaseMap: an object here would be Stalled (UnknownPhase)"}},
				},
				Dangers: []string{"phase Broken is gone and spec.upgrade.phaseMap does not say what follows it: an object there would be Stalled (UnknownPhase)"},
			},
			strands: true,
		},
		"Renamed": {
			why:     "phaseMap says what became of it",
			replace: []string{"  - {name: Broken, terminal: failure}\n", "  - {name: Halted, terminal: failure, showAs: Broken}\n", "  initial", "  upgrade: {phaseMap: {Broken: Halted}}\n  initial"},
			want: diff.Report{
				Machine: []string{`upgrade added: {"phaseMap":{"Broken":"Halted"}}`},
				Phases: []diff.Change{
					{Phase: "Halted", What: "renamed", Was: "Broken", Words: []string{"showAs added: Broken"}},
					{Phase: "Broken", What: "removed", Words: []string{"an object here goes on in Halted"}},
				},
			},
		},
		"Effect": {
			why:     "an object may hold what the new file has never heard of",
			replace: []string{"name: lock,", "name: bolt,"},
			want: diff.Report{
				Machine: []string{`effects[bolt] added: {"acquire":"Lock","name":"bolt","release":"Unlock"}`, `effects[lock] removed: {"acquire":"Lock","name":"lock","release":"Unlock"}`},
				Dangers: []string{"effect lock is gone and spec.upgrade.effectMap does not say what follows it: an object that holds it releases it by `undo: held` only, as it is on record"},
			},
			strands: true,
		},
		"Renames": {
			why:     "the maps say what became of each",
			replace: []string{"name: lock,", "name: bolt,", "  initial", "  upgrade: {effectMap: {lock: bolt}, stepMap: {Peek: Look}, requestMap: {ring: knock}}\n  initial"},
			want: diff.Report{Machine: []string{`effects[bolt] added: {"acquire":"Lock","name":"bolt","release":"Unlock"}`, `effects[lock] removed: {"acquire":"Lock","name":"lock","release":"Unlock"}`,
				`upgrade added: {"effectMap":{"lock":"bolt"},"requestMap":{"ring":"knock"},"stepMap":{"Peek":"Look"}}`,
				"effect lock is bolt now", "step Peek is Look now", "request ring is knock now"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			older, newer := file(t, "old.yaml"), file(t, "new.yaml", tc.replace...)
			got := diff.Machines(older, newer)
			tc.want.Old, tc.want.New = "old.yaml ("+older.Revision+")", "new.yaml ("+newer.Revision+")"
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if got.Stranding() != tc.strands {
				t.Errorf("%s: stranding is %v", tc.why, got.Stranding())
			}
		})
	}
}

// after is a revision that a program can drive.
const after = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: door}
spec:
  for: {apiVersion: example.org/v1, kind: Door}
  initial: Closed
  finalizer: example.org/door
  upgrade: {phaseMap: {Broken: Halted}, effectMap: {bolt: lock}, stepMap: {Peek: Look, Vault: Jump}}
  effects:
  - {name: lock, acquire: Lock, release: Unlock}
  phases:
  - name: Closed
    steps: [{action: Look}, {action: Lock}]
    next: [{to: Open, when: 'self.a > 1'}]
    timeout: {after: 2h, to: Undone}
    onDelete: {to: Leaving}
  - {name: Open, terminal: success, onDelete: {to: Leaving}}
  - {name: Halted, terminal: failure, onDelete: {to: Leaving}}
  - {name: Undone, steps: [{undo: held}], next: [{to: Halted}], onDelete: {to: Leaving}}
  - name: Leaving
    deletion: true
    steps: [{name: Jump, action: Look}, {undo: held}]
    next: [{to: Deleted}]
  - {name: Deleted, deletion: true, end: true}
`

func TestImpacts(t *testing.T) {
	def, diags := program.Load("after.yaml", []byte(after))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	newer, diags := fsm.Bind(def, program.Bindings{Actions: map[string]program.ActionSpec{
		"Look": {}, "Lock": {}, "Unlock": {}, "Hang": {}}})
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewMicroTime(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	cases := map[string]struct {
		why     string
		st      v1alpha1.MachineStatus
		want    diff.Impact
		strands bool
	}{
		"New": {why: "no machine has touched it", want: diff.Impact{To: "Closed", Words: "begins in Closed"}},
		"OnDuty": {why: "changed steps begin the phase again, but not its deadline", st: v1alpha1.MachineStatus{Phase: "Closed", Revision: "sha256:old", PhaseRevision: "sha256:other", Deadline: &at},
			want: diff.Impact{Phase: "Closed", To: "Closed", Words: "goes on in Closed, from its first step again (what the steps do has changed), with the deadline that it has"}},
		"SameRevision": {why: "nothing changes for it", st: v1alpha1.MachineStatus{Phase: "Closed", Revision: newer.Revision(), Held: v1alpha1.Held("lock")},
			want: diff.Impact{Phase: "Closed", To: "Closed", Words: "goes on in Closed"}},
		"AtRest": {why: "a terminal phase has no steps to repeat", st: v1alpha1.MachineStatus{Phase: "Open"}, want: diff.Impact{Phase: "Open", To: "Open", Words: "goes on in Open"}},
		"Mapped": {why: "phaseMap says where", st: v1alpha1.MachineStatus{Phase: "Broken"}, want: diff.Impact{Phase: "Broken", To: "Halted", Words: "goes on in Halted (spec.upgrade.phaseMap)"}},
		"SameSteps": {why: "what changed elsewhere in the file is nothing to it", st: v1alpha1.MachineStatus{Phase: "Closed", Step: "Look", Revision: "sha256:old", PhaseRevision: newer.Resumed(v1alpha1.MachineStatus{Phase: "Closed"}).PhaseRevision},
			want: diff.Impact{Phase: "Closed", To: "Closed", Words: "goes on in Closed"}},
		"Stranded": {why: "nobody knows where it belongs", st: v1alpha1.MachineStatus{Phase: "Ajar"}, strands: true,
			want: diff.Impact{Phase: "Ajar", Words: "STRANDED: Stalled (UnknownPhase) until the phase is back or spec.upgrade.phaseMap names its successor"}},
		"Step": {why: "stepMap says where", st: v1alpha1.MachineStatus{Phase: "Closed", Step: "Peek"},
			want: diff.Impact{Phase: "Closed", To: "Closed", Words: "goes on in Closed, from its step Look (spec.upgrade.stepMap)"}},
		"StepElsewhere": {why: "its phase has no such step", st: v1alpha1.MachineStatus{Phase: "Closed", Step: "Vault"},
			want: diff.Impact{Phase: "Closed", To: "Closed", Words: "goes on in Closed, from its first step again (it is not stored what the steps did)"}},
		"MappedEffect":   {why: "effectMap names its successor", st: v1alpha1.MachineStatus{Phase: "Open", Held: v1alpha1.Held("bolt")}, want: diff.Impact{Phase: "Open", To: "Open", Words: "goes on in Open"}},
		"RecordedEffect": {why: "what releases it is stored with it", st: v1alpha1.MachineStatus{Phase: "Open", Held: []v1alpha1.HeldEffect{{Name: "key", Release: "Hang"}}}, want: diff.Impact{Phase: "Open", To: "Open", Words: "goes on in Open"}},
		"LostRelease": {why: "nothing in the program releases it", st: v1alpha1.MachineStatus{Phase: "Open", Held: []v1alpha1.HeldEffect{{Name: "lock", Release: "Drop"}, {Name: "key", Release: "Drop"}}}, strands: true,
			want: diff.Impact{Phase: "Open", To: "Open", Leaks: []string{"key"},
				Words: "goes on in Open; LEAK: it holds key, which the new revision cannot release: `undo: held` stops there"}},
		"Leaking": {why: "it holds what the new revision does not know", st: v1alpha1.MachineStatus{Phase: "Open", Held: v1alpha1.Held("lock", "key")}, strands: true,
			want: diff.Impact{Phase: "Open", To: "Open", Leaks: []string{"key"},
				Words: "goes on in Open; LEAK: it holds key, which the new revision cannot release: `undo: held` stops there"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Object = "shop/door"
			got := diff.ImpactOf(newer, "shop/door", &tc.st)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			r := diff.Report{Dangers: []string{"to others"}, Impacts: []diff.Impact{got}}
			if r.Stranding() != tc.strands {
				t.Errorf("%s: stranding is %v; with live objects, only they count", tc.why, r.Stranding())
			}
		})
	}
}

func TestText(t *testing.T) {
	r := diff.Report{
		Old: "old.yaml (1)", New: "new.yaml (2)", Machine: []string{"initial: A → B"},
		Phases:  []diff.Change{{Phase: "B", What: "renamed", Was: "A", Words: []string{"poll added: 5s"}}},
		Dangers: []string{"phase C is gone"},
	}
	offline := `old: old.yaml (1)
new: new.yaml (2)

the machine
  initial: A → B

phase B: renamed from A
  poll added: 5s
`
	if diff := cmp.Diff(offline+"\nDANGER\n  phase C is gone\n", r.Text()); diff != "" {
		t.Errorf("offline (-want +got):\n%s", diff)
	}
	r.Impacts = []diff.Impact{{Object: "shop/door", Phase: "A", To: "B", Words: "goes on in B"}}
	if diff := cmp.Diff(offline+"\nobjects: 1\n  shop/door in \"A\": goes on in B\n", r.Text()); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	same := diff.Report{Old: "a", New: "b"}
	if diff := cmp.Diff("old: a\nnew: b\n\nnothing that matters changed\n", same.Text()); diff != "" {
		t.Errorf("nothing (-want +got):\n%s", diff)
	}
}

// An object ends by the finalizer with which it began.
func TestFinalizerOfObjectsThatExist(t *testing.T) {
	of := func(finalizer string) *program.Definition {
		def := &program.Definition{Source: &diag.Source{}}
		def.Spec.Finalizer = finalizer
		return def
	}
	for name, c := range map[string]struct {
		why, older, newer string
		want              []string
	}{
		"renamed": {why: "an object under way has the old one", older: "a/old", newer: "a/new", want: []string{"finalizer: a/old → a/new", "objects that exist keep the finalizer a/old until they end"}},
		"removed": {why: "nor does it lose it", older: "a/old", want: []string{"finalizer removed: a/old", "objects that exist keep the finalizer a/old until they end"}},
		"added":   {why: "objects that exist get it", newer: "a/new", want: []string{"finalizer added: a/new"}},
		"same":    {why: "nothing changes", older: "a/old", newer: "a/old"},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, diff.Machines(of(c.older), of(c.newer)).Machine); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}
