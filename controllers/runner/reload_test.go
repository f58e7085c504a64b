package runner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// The pass that is at work when the file changes ends with the machine that it
// began with; the next one has the new one, stays where it is, and says so once.
func TestReloadDuringAPass(t *testing.T) {
	b := newBench(t)
	b.atWork()
	old := b.machine.Revision()
	b.work = func(context.Context, *scope) (map[string]any, error) {
		b.edit("poll: 7s", "poll: 9s")
		return map[string]any{"done": false}, nil
	}
	b.see()
	if got := b.stored().Status.Machine.Revision; got != old {
		t.Errorf("revision %s was stored by a pass of %s", got, old)
	}
	b.work = answer(map[string]any{"done": false}, nil)
	b.told()
	got := b.see()
	if got.Phase != "Working" || got.Result.RequeueAfter.String() != "9s" {
		t.Errorf("phase %s, again after %s, want Working after the new poll of 9s", got.Phase, got.Result.RequeueAfter)
	}
	want := []string{fmt.Sprintf("Normal MachineReloaded revision %s of machine errand replaces %s", b.machine.Revision(), old)}
	if diff := cmp.Diff(want, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.see()
	if diff := cmp.Diff([]string(nil), b.told()); diff != "" {
		t.Errorf("events of the next pass (-want +got):\n%s", diff)
	}
}

// An object in a phase that the new file does not have stays in it; a phaseMap
// leads on. The gauge shows no phase of a file that is gone.
func TestReloadWithoutThePhase(t *testing.T) {
	const done = "  - name: Done\n"
	b := newBench(t)
	b.passTo("Done")
	b.edit("to: Done", "to: Finished", done, "  - name: Finished\n")
	if got := b.see(); got.Phase != "Done" || got.Result.RequeueAfter != 0 {
		t.Errorf("got %+v, want it to rest in Done", got)
	}
	if c := b.stored().Status.Conditions; len(c) != 2 || c[1].Reason != "UnknownPhase" {
		t.Errorf("conditions %v, want Stalled with UnknownPhase", c)
	}
	b.edit("to: Done", "to: Finished", done, "  - name: Finished\n", "  phases:\n", "  upgrade: {phaseMap: {Done: Finished}}\n  phases:\n")
	if got := b.see(); got.Phase != "Finished" {
		t.Errorf("phase %s, want Finished, as the phaseMap says", got.Phase)
	}
	want := map[string]float64{"New": 0, "Working": 0, "Finished": 1, "Refused": 0, "Leaving": 0, "Deleted": 0}
	if diff := cmp.Diff(want, b.metrics("phasegate_phase")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// A program derives a status by the names that it knows: with the names of another revision
// it would take away what is still true, as the deadline of a lock.
func TestNothingIsDerivedOfAnUnknownPhase(t *testing.T) {
	b, locked := newBench(t), "Done"
	b.Program.Decorate = func(_ *fsm.Machine, obj *errand) {
		if obj.Status.Lock == nil {
			obj.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockCooperative}
		}
		if obj.Status.Machine.Phase != locked {
			obj.Status.Lock = nil
		}
	}
	b.passTo("Done")
	locked = "Finished" // as the next version of a program has it
	const done = "  - name: Done\n"
	b.edit("to: Done", "to: Finished", done, "  - name: Finished\n")
	b.see()
	if b.stored().Status.Lock == nil {
		t.Error("the lock of a phase that is not known is not shown any more")
	}
	locked = "none"
	b.edit("to: Done", "to: Finished", done, "  - name: Finished\n", "  phases:\n", "  upgrade: {phaseMap: {Done: Finished}}\n  phases:\n")
	b.see()
	if b.stored().Status.Lock != nil {
		t.Error("it is shown for ever")
	}
}

const (
	asked    = "errand.phasegate.dev/again"
	recorded = "errand.phasegate.dev/done-again"

	requests = "  requests:\n  - name: again\n    token: 'self.metadata.?annotations[?\"" + asked + "\"].orValue(\"\")'\n" +
		"    record: {annotation: " + recorded + "}\n  phases:\n"
	again = "    terminal: success\n    next:\n    - {to: Working, when: 'request.again.pending', reason: AskedAgain}\n"
)

func (b *bench) ask(token string) {
	b.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, asked, token)
	obj := &errand{}
	obj.Name = b.name
	if err := b.outside.Patch(b.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
	}
}

// A request is shown as done after its transition is stored, in the next pass;
// whatever happens in between, it is made up for, and then nothing is written.
func TestRecordOfARequest(t *testing.T) {
	lost := errors.New("the connection is gone")
	cases := map[string]struct {
		why string
		// on disturbs the write of the annotation once.
		on func(send func() error) error
	}{
		"as it should be":      {why: "the transition first, then the annotation", on: func(send func() error) error { return send() }},
		"lost before it":       {why: "a crash between transition and annotation", on: func(func() error) error { return lost }},
		"lost with the answer": {why: "it was written, but nobody knows", on: func(send func() error) error { return errors.Join(send(), lost) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.edit("  phases:\n", requests, "    terminal: success\n", again)
			b.passTo("Done")
			b.ask("first")
			if got := b.see(); got.Phase != "Working" {
				t.Fatalf("phase %s, want Working", got.Phase)
			}
			if got := b.stored().Annotations[recorded]; got != "" {
				t.Errorf("recorded %q before anything was stored", got)
			}
			disturbed := 0
			b.between(func(_ context.Context, write string, send func() error) error {
				if disturbed++; write == "object" && disturbed == 1 {
					return c.on(send)
				}
				return send()
			})
			_, err := b.pass()
			if err != nil && !errors.Is(err, lost) {
				t.Fatal(err)
			}
			b.between(nil)
			b.passTo("Done")
			b.see()
			if got := b.stored().Annotations[recorded]; got != "first" || disturbed == 0 {
				t.Errorf("recorded %q: %s", got, c.why)
			}
			if diff := cmp.Diff(seen{Phase: "Done", Held: []string{"thing"}}, b.see()); diff != "" {
				t.Errorf("the pass after it (-want +got):\n%s", diff)
			}
		})
	}
}

// An object that is gone shows nothing: what it has left is released in one pass, whatever it was asked before.
func TestNothingIsRecordedOnAnObjectThatIsGone(t *testing.T) {
	b := newBench(t)
	b.edit("  phases:\n", requests, "    terminal: success\n", again)
	b.passTo("Done")
	b.ask("first")
	b.passTo("Working")
	b.passTo("Done")
	name := b.state().Name
	b.States = func(types.NamespacedName) []string { return []string{name} }
	if err := b.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.MaxRuns = 0
	b.told()
	if _, err := b.pass(); err != nil {
		t.Error(err)
	}
	if b.state() != nil {
		t.Error("something is left after one pass")
	}
	want := []string{
		"Warning ObjectGone DatastoreMigration /" + b.name + " is gone although [thing] is held: it is released",
		"Normal DeletionRequested Done → Leaving",
		"Normal GivenBack what DatastoreMigration /" + b.name + " had left is released",
	}
	if diff := cmp.Diff(want, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestJitterIsInjected(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.work = answer(nil, errors.New("sand in the gears"))
	b.Random = func() float64 { return 0 }
	if got := b.see().Result.RequeueAfter.String(); got != "1.6s" {
		t.Errorf("again after %s, want 1.6s: 2s less the whole jitter of 0.2", got)
	}
}

// Objects of a kind that cannot be driven are told so, and nothing else is done.
func TestUnfitKind(t *testing.T) {
	b := newBench(t)
	b.Shape = func() (*runner.Shape, error) { return nil, runner.Unfit(errors.New("the CRD forgets")) }
	got := b.see()
	if got.Phase != "" || got.Writes != nil || got.Result.RequeueAfter == 0 {
		t.Errorf("got %+v, want nothing but another look", got)
	}
	if diff := cmp.Diff([]string{"Warning NotDriven the CRD forgets"}, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.Shape = func() (*runner.Shape, error) { return nil, nil }
	if got := b.see(); got.Phase != "New" {
		t.Errorf("phase %q once the kind is fit, want New", got.Phase)
	}
}
