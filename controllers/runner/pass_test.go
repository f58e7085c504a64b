package runner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// now is the answer of a pass that another one follows at once.
var now = reconcile.Result{RequeueAfter: time.Nanosecond}

// seen is what one pass came to.
type seen struct {
	Phase  string
	Held   []string
	Writes []string
	Result reconcile.Result
}

func (b *bench) see() seen {
	b.t.Helper()
	result, err := b.pass()
	if err != nil {
		b.t.Fatal(err)
	}
	s := seen{Writes: b.written(), Result: result}
	if state := b.state(); state != nil {
		s.Phase, s.Held = state.Status.Phase, state.Status.HeldNames()
	}
	return s
}

// wholeLife is what is told of an object from its creation to its end.
var wholeLife = []string{
	"Normal Created started in New",
	"Normal Ready New → Working",
	"Normal Worked Working → Done",
	"Normal DeletionRequested Done → Leaving",
	"Normal Left Leaving → Deleted",
}

// A whole life, run by run: never more than one status write in a pass, each
// phase and each effect on record before anything is done in its name, the
// finalizer before the first effect and gone with the last phase.
func TestWholeLife(t *testing.T) {
	b := newBench(t)
	state, both, object, held := []string{"state"}, []string{"state", "status"}, []string{"object"}, []string{"thing"}

	var life []seen
	for range 6 {
		life = append(life, b.see())
	}
	if err := b.outside.Delete(t.Context(), b.stored()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		life = append(life, b.see())
	}

	want := []seen{
		{Phase: "New", Writes: both, Result: now},
		{Phase: "New", Writes: object, Result: now}, // the finalizer
		{Phase: "Working", Writes: both, Result: now},
		{Phase: "Working", Held: held, Writes: state, Result: now}, // the ledger
		{Phase: "Done", Held: held, Writes: both, Result: now},
		{Phase: "Done", Held: held}, // nothing to say and nothing to come back for
		{Phase: "Leaving", Held: held, Writes: both, Result: now},
		{Phase: "Leaving", Writes: state, Result: now}, // released, and durable at once
		{Phase: "Deleted", Writes: both, Result: now},
		{Writes: []string{"object", "drop"}, Result: now}, // the finalizer, and the state after it
		{},
	}
	if diff := cmp.Diff(want, life); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wholeLife, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestRefusalNeedsNoFinalizer(t *testing.T) {
	b := newBench(t)
	b.welcome = false
	b.passTo("Refused")
	obj := b.stored()
	if len(obj.Finalizers) != 0 {
		t.Errorf("finalizers %v on an object that was refused: it could not be deleted without us", obj.Finalizers)
	}
	want := []string{"Normal Created started in New", "Warning NotWelcome New → Refused: the door says so"}
	if diff := cmp.Diff(want, b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The ledger is read by another client while Take runs: what the API server has
// at that moment is all that a successor would know after a crash.
func TestLedgerIsStoredBeforeTheDeed(t *testing.T) {
	b := newBench(t)
	var held []string
	b.take = func(context.Context, *scope) (map[string]any, error) {
		held = b.stored().Status.Machine.HeldNames()
		return nil, nil
	}
	b.passTo("Done")
	if diff := cmp.Diff([]string{"thing"}, held); diff != "" {
		t.Errorf("held on the API server while the effect was taken (-want +got):\n%s", diff)
	}
}

// What a step has released is not written before the next step of the same pass. It is released all the
// same: who goes by an older ledger takes it again, and nobody would release it then.
func TestActionSeesWhatWasGivenBack(t *testing.T) {
	b := newBench(t)
	b.edit("    - {action: Work}\n", "    - {action: Give}\n    - {action: Work}\n")
	var held []string
	b.work = func(_ context.Context, s *scope) (map[string]any, error) {
		held = s.Object.Status.Machine.HeldNames()
		return map[string]any{"done": true}, nil
	}
	b.passTo("Done")
	if len(held) > 0 {
		t.Errorf("the step after Give sees %v as held", held)
	}
}

// A look that changes nothing writes nothing, however long nothing changes and however often a manager starts.
func TestQuietPhaseCostsNoWrite(t *testing.T) {
	cases := map[string]struct{ why, done string }{
		"terminal": {"nobody comes back for it", "terminal: success"},
		"steady":   {"what is as it should be is looked at for years", "kind: steady\n    poll: 1m"},
		"waiting":  {"a person may never come", "kind: waiting\n    poll: 1m\n    next: [{to: Working, when: 'false'}]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.edit("terminal: success", c.done)
			b.passTo("Done")
			b.see()
			before := b.shown()
			look := func() []string {
				b.clock.Step(time.Hour)
				return b.see().Writes
			}
			var writes []string
			for range 20 {
				writes = append(writes, look()...)
			}
			b.restart()
			b.edit("terminal: success", c.done)
			if diff := cmp.Diff([]string(nil), append(writes, look()...)); diff != "" {
				t.Errorf("%s: writes of 20 looks and of a manager that starts (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(before, b.shown()); diff != "" {
				t.Errorf("the object was written (-before +after):\n%s", diff)
			}
		})
	}
}

// A write of the state by another manager between the read and our own is news, not an
// error: what was decided from the older one is dropped.
func TestConflictIsQuiet(t *testing.T) {
	b := newBench(t)
	b.atWork()
	worked := 0
	b.work = func(ctx context.Context, _ *scope) (map[string]any, error) {
		if worked++; worked > 1 {
			return map[string]any{"done": true}, nil
		}
		return map[string]any{"done": true}, b.anotherManager(ctx)
	}
	before := b.stored().Status
	if diff := cmp.Diff(seen{Phase: "Working", Held: []string{"thing"}, Writes: []string{"state"}, Result: now}, b.see()); diff != "" {
		t.Errorf("the pass that lost (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, b.stored().Status); diff != "" {
		t.Errorf("status after a lost compare-and-swap (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), b.told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	b.see()
	if got := b.stored().Status.Machine.Phase; got != "Done" || worked != 2 {
		t.Errorf("phase %s after %d times of work, want Done after 2", got, worked)
	}
}

func TestUnknownPhaseIsStalled(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	state := b.state()
	state.Status.Phase = "Elsewhere"
	if err := b.outside.Update(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	type told struct{ Type, Status, Reason string }
	want := []told{{"Ready", "False", "Unknown"}, {"Stalled", "True", "UnknownPhase"}}
	if diff := cmp.Diff(seen{Phase: "Elsewhere", Held: []string{"thing"}, Writes: []string{"status"}}, b.see()); diff != "" {
		t.Errorf("the pass (-want +got):\n%s", diff)
	}
	var got []told
	for _, c := range b.stored().Status.Conditions {
		got = append(got, told{c.Type, string(c.Status), c.Reason})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(seen{Phase: "Elsewhere", Held: []string{"thing"}}, b.see()); diff != "" {
		t.Errorf("the next pass (-want +got):\n%s", diff)
	}
}

// What is asked of an object that is not there, or ceases to be during a pass.
func TestNotFoundIsQuiet(t *testing.T) {
	cases := map[string]struct {
		why   string
		strip func(b *bench) error
		want  reconcile.Result
	}{
		"before the pass": {
			why:   "a watch event may arrive after the end",
			strip: func(b *bench) error { return b.remove(b.t.Context()) },
		},
		"during the pass": {
			why: "somebody takes the finalizer away while we work: there is nothing left to write to",
			strip: func(b *bench) error {
				b.work = func(ctx context.Context, _ *scope) (map[string]any, error) { return nil, b.remove(ctx) }
				return nil
			},
			want: now,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			if err := c.strip(b); err != nil {
				t.Fatal(err)
			}
			got, err := b.pass()
			if err != nil || got != c.want {
				t.Errorf("%s: got %v, %v, want %v", c.why, got, err, c.want)
			}
			if got, err := b.pass(); err != nil || got != (reconcile.Result{}) {
				t.Errorf("the pass after it: got %v, %v", got, err)
			}
			if diff := cmp.Diff(map[string]float64{}, b.metrics("phasegate_phase")); diff != "" {
				t.Errorf("the phase gauge of an object that is gone (-want +got):\n%s", diff)
			}
		})
	}
}

// remove deletes the object in spite of its finalizer.
func (b *bench) remove(ctx context.Context) error {
	obj := &errand{}
	obj.Name = b.name
	body := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	return errors.Join(b.outside.Patch(ctx, obj, body), b.outside.Delete(ctx, obj))
}

// A crash between the two leaves a state without an object, which is found by itself. The other way round it would leave an
// object with our finalizer of which nothing is known.
func TestTheStateGoesAfterTheFinalizer(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	if err := b.outside.Delete(t.Context(), b.stored()); err != nil {
		t.Fatal(err)
	}
	for range 4 { // to Leaving, what is held, to Gone, the finalizer
		if _, err := b.pass(); err != nil {
			t.Fatal(err)
		}
	}
	all := b.written()
	if diff := cmp.Diff([]string{"object", "drop"}, all[max(0, len(all)-2):]); diff != "" {
		t.Errorf("the last writes of %q (-want +got):\n%s", all, diff)
	}
}

func TestFailureOfTheStatusWriteIsReported(t *testing.T) {
	b := newBench(t)
	b.between(func(context.Context, string, func() error) error {
		return apierrors.NewInternalError(errors.New("no quorum"))
	})
	_, err := b.pass()
	if !apierrors.IsInternalError(err) {
		t.Errorf("got %v, want the server's error: the queue backs off on it", err)
	}
	b.between(nil)
	if diff := cmp.Diff([]string(nil), b.told()); diff != "" {
		t.Errorf("a transition that was not stored was announced (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(b.metrics("phasegate_transitions_total")); got != "map[]" {
		t.Errorf("a transition that was not stored was counted: %s", got)
	}
}

// After our part of a deletion somebody else's finalizer may keep the object: we
// neither come back for it by ourselves nor take it up again.
func TestObjectKeptBySomebodyElse(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	obj := b.stored()
	obj.Finalizers = append(obj.Finalizers, "somebody.else/keeps")
	if err := errors.Join(b.outside.Update(t.Context(), obj), b.outside.Delete(t.Context(), obj)); err != nil {
		t.Fatal(err)
	}
	for range 4 { // to Leaving, what is held, to Gone, the finalizer
		b.see()
	}
	for _, when := range []string{"first", "second"} {
		want := seen{} // its state is gone, too
		if diff := cmp.Diff(want, b.see()); diff != "" {
			t.Errorf("%s quiet pass (-want +got):\n%s", when, diff)
		}
	}
	if diff := cmp.Diff([]string{"somebody.else/keeps"}, b.stored().Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}

// An object that was deleted before we ever saw it is not taken up.
func TestDeletedBeforeTheFirstPass(t *testing.T) {
	b := newBench(t)
	obj := b.stored()
	obj.Finalizers = []string{"somebody.else/keeps"}
	if err := errors.Join(b.outside.Update(t.Context(), obj), b.outside.Delete(t.Context(), obj)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if diff := cmp.Diff(seen{}, b.see()); diff != "" {
			t.Errorf("the pass (-want +got):\n%s", diff)
		}
	}
	if got := b.stored(); got.Status.Machine.Phase != "" || len(got.Finalizers) != 1 {
		t.Errorf("phase %q, finalizers %v: it was taken up", got.Status.Machine.Phase, got.Finalizers)
	}
}
