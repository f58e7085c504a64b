package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/prove"
)

// proved are the machines that must hold.
func proved(t testing.TB) map[string]*fsm.Machine {
	t.Helper()
	b, diags := program.LoadBindings("mcpserver.bindings.yaml", readFile(t, "../docs/machines/mcpserver.bindings.yaml"))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return map[string]*fsm.Machine{
		"datastore-migration": shipped(t).Machine,
		"mcpserver":           machineOf(t, "mcpserver.yaml", readFile(t, "../phases/mcpserver.yaml"), b),
	}
}

func TestMachinesAreProved(t *testing.T) {
	for name, m := range proved(t) {
		t.Run(name, func(t *testing.T) {
			report, diags := prove.Prove(m, prove.Options{})
			for _, d := range diags {
				t.Errorf("%s\n\t%s", d, strings.Join(d.Trace, "\n\t"))
			}
			if n := len(m.Definition().Spec.Invariants); n == 0 || len(report.Invariants) != 8+n {
				t.Errorf("%d invariants in the file, proved are %v", n, report.Invariants)
			}
			if missing := report.EdgesNotTaken; missing != nil {
				t.Errorf("the proof does not go by %v", missing)
			}
			if report.States < len(m.Phases()) || report.Transitions < report.States {
				t.Errorf("%d states and %d transitions", report.States, report.Transitions)
			}
		})
	}
}

func BenchmarkProve(b *testing.B) {
	for name, m := range proved(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var report prove.Report
			for b.Loop() {
				report, _ = prove.Prove(m, prove.Options{})
			}
			b.ReportMetric(float64(report.States), "states")
		})
	}
}

// proofOf answers what a proof finds, each finding with its trace as lines below.
func proofOf(t *testing.T, file string, data string) []string {
	t.Helper()
	def, diags := program.Load(file, []byte(data))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	b := everything(def)
	m := fsm.Provable(def, b)
	if m == nil {
		_, diags := fsm.Bind(def, b)
		t.Fatal(diags)
	}
	_, diags = prove.Prove(m, prove.Options{})
	var lines []string
	for _, d := range diags {
		lines = append(lines, d.String())
		for _, line := range d.Trace {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

func TestMistakesOfOrderAreFound(t *testing.T) {
	cases := map[string]struct {
		why  string
		want []string
		// right are pairs of what is wrong and what would be right.
		right []string
	}{
		"abort-skips-unlock": {
			why: "a lock is taken where a deletion does not release it yet",
			want: []string{
				"abort-skips-unlock.yaml:34:11: PG201: invariant noLeak: the object is gone, and oldLock is still in place: release it on this path with a step {undo: held}, or name it in keeps",
				"  Pending: LockOld done",
				"  kubectl delete",
				"  → Leaving",
				"  → Deleted",
				"  the finalizer is removed",
			},
			right: []string{"timeout: {after: 1h, to: Aborting}\n    onDelete: {to: Leaving}", "timeout: {after: 1h, to: Aborting}\n    onDelete: {to: Aborting}"},
		},
		"unlock-before-stored": {
			why: "the new side is opened before the phase that says so is stored",
			want: []string{
				`unlock-before-stored.yaml:16:35: PG201: invariant copiesAreClosed: not true with phase Moving, held [oldLock, copies], in place [oldLock, copies]: !("copies" in held) || "newLock" in inPlace: change the order of the steps on this way, or correct the invariant`,
				"  → Moving (Started)",
				"  Moving: LockNew done",
				"  Moving: Copy done",
				"  Moving: UnlockNew done",
			},
			right: []string{
				"    - {action: UnlockNew}\n", "",
				"{to: Moved,", "{to: Opened,",
				"  - {name: Moved, terminal: success, keeps: [oldLock, copies], onDelete: {to: Leaving}}", opened,
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := string(readFile(t, "testdata/machines/"+name+".yaml"))
			got := proofOf(t, name+".yaml", file)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if len(got) > 1+6 {
				t.Errorf("the trace is longer than 6 events")
			}
			if got := proofOf(t, name+".yaml", replaced(t, file, c.right...)); got != nil {
				t.Errorf("put right, and still:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// opened is where a point of no return belongs: in a phase of its own, stored first.
const opened = `  - name: Opened
    pointOfNoReturn: true
    keeps: [oldLock, copies]
    steps: [{action: UnlockNew}]
    next: [{to: Moved}]
    timeout: {after: 1h, stalled: StillClosed}
    onDelete: {hold: goes on}
  - {name: Moved, terminal: success, onDelete: {to: Leaving}}`

// replaced fails when there is nothing to replace.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("nothing to replace: %q", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// soundMachine breaks no invariant.
const soundMachine = `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: sound}
spec:
  for: {apiVersion: example.org/v1, kind: Sound}
  initial: Work
  finalizer: example.org/sound
  effects:
  - {name: lock, acquire: Lock, release: Unlock}
  phases:
  - name: Work
    steps: [{action: Lock}]
    next: [{to: Back}]
    onDelete: {to: Aborting}
  - name: Back
    steps: [{undo: held}]
    next: [{to: Done}]
    onDelete: {to: Aborting}
  - {name: Done, terminal: success, onDelete: {to: Aborting}}
  - name: Aborting
    deletion: true
    steps: [{undo: held}]
    next: [{to: Deleted}]
  - {name: Deleted, deletion: true, end: true}
`

func TestInvariants(t *testing.T) {
	cases := map[string]struct {
		why string
		// change makes the sound machine break something, twin would be right.
		change, twin []string
		want         []string
	}{
		"noLeak": {
			why:    "a deletion that releases nothing",
			change: []string{"deletion: true\n    steps: [{undo: held}]", "deletion: true\n    steps: [{action: Say}]"},
			twin:   []string{"deletion: true\n    steps: [{undo: held}]", "deletion: true\n    steps: [{action: Say}, {undo: held}]"},
			want: []string{
				"sound.yaml:20:11: PG201: invariant noLeak: the object is gone, and lock is still in place: release it on this path with a step {undo: held}, or name it in keeps",
				"  Work: Lock done", "  kubectl delete", "  → Aborting", "  → Deleted", "  the finalizer is removed",
			},
		},
		"released": {
			why:    "an end of the work that holds something",
			change: []string{"next: [{to: Back}]", "next: [{to: Back, when: 'result.n > 0'}, {to: Done, reason: Short}]"},
			twin:   []string{"{name: Done,", "{name: Done, keeps: [lock],", "next: [{to: Back}]", "next: [{to: Back, when: 'result.n > 0'}, {to: Done, reason: Short}]"},
			want: []string{
				"sound.yaml:19:12: PG201: invariant released: Done is terminal, and lock is held: release it in a phase before this one, or name it in keeps",
				"  Work: Lock done", "  → Done (Short)",
			},
		},
		"deletable": {
			why:    "a deletion that goes on only while something is held, after releasing it",
			change: []string{"next: [{to: Deleted}]", "next: [{to: Deleted, when: '\"lock\" in held'}]\n    poll: 1m"},
			twin:   []string{"next: [{to: Deleted}]", "next: [{to: Deleted, when: '!(\"lock\" in held)'}]\n    poll: 1m"},
			want: []string{
				"sound.yaml:20:11: PG201: invariant deletable: a deletion never ends from here, even if every action succeeds: let every phase of the deletion lead to one with end: true, whatever is held",
				"  kubectl delete", "  → Aborting",
			},
		},
		"noReturn": {
			why:    "an undo of what was held when the point of no return was passed",
			change: []string{"- name: Back\n", "- name: Back\n    pointOfNoReturn: true\n"},
			twin:   []string{"- name: Back\n", "- name: Back\n    pointOfNoReturn: true\n    keeps: [lock]\n"},
			want: []string{
				"sound.yaml:17:13: PG201: invariant noReturn: lock was held at the point of no return, and is released by an undo: name it in keeps of the point of no return, release it there in a step, or do not lead here",
				"  Work: Lock done", "  → Back",
			},
		},
		"legal": {
			why:    "an object that is let go at once while it holds something",
			change: []string{"next: [{to: Back}]\n    onDelete: {to: Aborting}", "next: [{to: Back}]\n    onDelete: {immediate: true}"},
			twin:   []string{"{name: Done, terminal: success, onDelete: {to: Aborting}}", "{name: Done, terminal: success, onDelete: {immediate: true}}"},
			want: []string{
				"sound.yaml:11:11: PG201: invariant deletable: a deletion never ends from here, even if every action succeeds; it also breaks legal: let every phase of the deletion lead to one with end: true, whatever is held",
				"  kubectl delete",
			},
		},
		"ofTheFile": {
			why:    "an order that only its author can know",
			change: []string{"  phases:", "  invariants:\n  - {name: lockedAtWork, expr: 'phase.name != \"Back\" || \"lock\" in inPlace'}\n  phases:"},
			twin:   []string{"  phases:", "  invariants:\n  - {name: lockedAtWork, expr: 'phase.name == \"Back\" || phase.kind == \"progressing\" && (!phase.end || held.size() == 0)'}\n  phases:"},
			want: []string{
				"sound.yaml:11:32: PG201: invariant lockedAtWork: not true with phase Back, held [], in place []: phase.name != \"Back\" || \"lock\" in inPlace: change the order of the steps on this way, or correct the invariant",
				"  Work: Lock done", "  → Back", "  Back: Unlock done",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := proofOf(t, "sound.yaml", soundMachine); got != nil {
				t.Fatalf("the sound machine:\n%s", strings.Join(got, "\n"))
			}
			got := proofOf(t, "sound.yaml", replaced(t, soundMachine, c.change...))
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if got := proofOf(t, "sound.yaml", replaced(t, soundMachine, c.twin...)); got != nil {
				t.Errorf("the twin:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// Each invariant of the shipped machine forbids something that could be written.
func TestInvariantsOfTheShippedMachineBite(t *testing.T) {
	file := string(readFile(t, "../phases/datastore-migration.yaml"))
	cases := map[string]struct {
		why    string
		change []string
		want   []string
	}{
		"copiesAreClosed": {
			why:    "v3 is open while it is filled, so an abort could take away what others wrote",
			change: []string{"    - {action: LockV3}\n", "", "    - {action: CopyResources}\n", "    - {action: CopyResources}\n    - {action: LockV3}\n"},
			want:   []string{"→ Migrating (ReadyToCutOver)", "Migrating: CopyResources done"},
		},
		"copiesAreInReach": {
			why:    "a side door that is given up takes with it the way to what was copied through it",
			change: []string{" && !(\"v3Lock\" in held)'}", "'}"},
			want: []string{
				"Pending: OpenSideDoor done",
				"another revision of the file begins the phase again",
				"Pending: CloseSideDoor done",
			},
		},
		"lockedBehindFence": {
			why: "v1 is only asked not to write, where it could be kept from it",
			change: []string{"    - {action: BlockV1Writes, with: {prove: false}} # refuses nothing before the lock; API servers load it while objects are copied\n", "", "    - {action: BlockV1Writes} # refuses nothing before the lock; verified here\n", "",
				"    - {action: DetachV1Owners}\n", "    - {action: BlockV1Writes}\n    - {action: DetachV1Owners}\n"},
			want: []string{"→ Migrating (ReadyToCutOver)", "Migrating: LockV1 done"},
		},
		"disabledOnlyDetached": {
			why:    "the garbage collector finds objects outside Calico whose owner is not there",
			change: []string{"    - {action: DetachDependents} # as late as possible: dependents created later are not detached\n", "", "    - {action: LockV3}\n", "    - {action: DetachDependents}\n    - {action: LockV3}\n"},
			want:   []string{"→ Migrating (ReadyToCutOver)", "Migrating: DetachV1Owners done", "Migrating: DisableAPIService done"},
		},
		"disabledOnlyLocked": {
			why: "the API server of Calico is taken away while v1 is written",
			change: []string{"    - action: LockV1\n      with: {deadline: 30m, grace: 200ms} # at the deadline the migration rolls back; grace is for addresses that are being assigned\n", "",
				"    - {action: DisableAPIService}\n", "    - {action: DisableAPIService}\n    - {action: LockV1}\n"},
			want: []string{"→ Migrating (ReadyToCutOver)", "Migrating: DisableAPIService done"},
		},
		"failureLeavesNothing": {
			why:    "a rollback that releases nothing",
			change: []string{"    - {undo: held}\n    next:\n    - {to: Failed,", "    - {wait: 1s}\n    next:\n    - {to: Failed,"},
			want:   []string{"Pending: BlockV1Writes fails for good", "→ RollingBack (Terminal)", "→ Failed (RolledBack)"},
		},
		"pendingIsFree": {
			why:    "a lock that is taken before all is known",
			change: []string{"    - action: Plan\n", "    - {action: LockV1}\n    - action: Plan\n"},
			want:   []string{"Pending: LockV1 done"},
		},
		"abortIsComplete": {
			why:    "an abort after the point of no return",
			change: []string{"onDelete: {hold: 'Converged cannot be rolled back; deletion goes on after Complete'}", "onDelete: {to: Aborting}"},
			want: []string{ // that of noReturn, which is broken there first
				"→ Migrating (ReadyToCutOver)",
				"Migrating: LockV3 done",
				"→ Converged (AllVerified)",
				"kubectl delete",
				"→ Aborting",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			def, diags := program.Load("changed.yaml", []byte(replaced(t, file, c.change...)))
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			_, diags = prove.Prove(fsm.Provable(def, shippedBindings(t)), prove.Options{})
			for _, d := range diags {
				_, also, _ := strings.Cut(d.Message, "it also breaks ")
				if strings.HasPrefix(d.Message, "invariant "+name+":") || slices.Contains(strings.Split(also, ", "), name) {
					if d := cmp.Diff(c.want, d.Trace); d != "" {
						t.Errorf("%s (-want +got):\n%s", c.why, d)
					}
					return
				}
			}
			t.Errorf("%s, and %s holds: %v", c.why, name, diags)
		})
	}
}

func TestWaysThroughManyGuardsDoNotMultiply(t *testing.T) {
	var steps strings.Builder
	const n = 20
	for i := range n {
		fmt.Fprintf(&steps, "\n    - {action: A%d, if: 'self.spec.x > %d'}", i, i)
	}
	file := replaced(t, soundMachine, " [{action: Lock}]", steps.String())
	def, diags := program.Load("sound.yaml", []byte(file))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	report, diags := prove.Prove(fsm.Provable(def, everything(def)), prove.Options{})
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if report.States > 4*n*n {
		t.Errorf("%d steps have %d states", n, report.States)
	}
}
