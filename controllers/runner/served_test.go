package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// reads lets a test answer reads in place of the API server; nil is no answer. It returns the number of reads so far.
func (b *bench) reads(answer func(obj client.Object) error) (count func() int) {
	n, funcs := 0, b.watched()
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		n++
		if err := answer(obj); err != nil {
			return err
		}
		return c.Get(ctx, key, obj, opts...)
	}
	b.Client = interceptor.NewClient(b.outside, funcs)
	return func() int { return n }
}

// lasts makes passes for a while, each when the last one said. dropped tells that one said that there is nothing to come
// back for.
func (b *bench) lasts(d time.Duration, pass func() (reconcile.Result, error)) (dropped bool) {
	b.t.Helper()
	end := b.clock.Now().Add(d)
	for range 2000 {
		result, err := pass()
		switch {
		case err != nil:
			b.clock.Step(100 * time.Millisecond) // the queue would wait longer
		case result.RequeueAfter == 0:
			return true
		}
		b.clock.Step(result.RequeueAfter)
		if !b.clock.Now().Before(end) {
			return false
		}
	}
	return false
}

// stateStays fails the test where the state is taken to be lost.
func (b *bench) stateStays(before *v1alpha1.MachineState) {
	b.t.Helper()
	for _, c := range b.shown().Status.Conditions {
		if c.Reason == "StateLost" {
			b.t.Error(c.Message)
		}
	}
	if after := b.state(); after == nil || after.UID != before.UID {
		b.t.Errorf("the state is another one: %v", after)
	}
}

// An answer that says nothing of an object decides nothing about it: not that it is gone, nor that its state is. For all
// of a minute in which a kind is not served there are a few requests, and soon after it the object is driven on.
func TestAKindIsNotServedForAMinute(t *testing.T) {
	resource := schema.GroupResource{Group: "migration.projectcalico.org", Resource: "datastoremigrations"}
	notServed := apierrors.NewGenericServerResponse(404, "get", resource, "errand", "404 page not found", 0, true)
	nobodys := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound}}
	isState := func(obj client.Object) bool { _, is := obj.(*v1alpha1.MachineState); return is }
	for name, c := range map[string]struct {
		why    string
		err    error
		states bool
		// known: the state of the object is, so that it would be released if the object were gone.
		known bool
	}{
		"the object's":                {why: "a poll that is dropped is lost for good", err: notServed},
		"the states":                  {why: "what is held would seem to be lost", err: notServed, states: true},
		"the object's, for its state": {why: "what is held is released only in the name of an object that is gone", err: notServed, known: true},
		"nobody says which":           {why: "something between us and the API server answered", err: nobodys},
		"nobody says which state":     {why: "the same", err: nobodys, states: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.atWork()
			worked := 0
			b.work = func(context.Context, *scope) (map[string]any, error) {
				worked++
				return map[string]any{"done": true}, nil
			}
			if c.known {
				b.Installed = func(context.Context) (bool, error) { return true, nil }
				name := b.state().Name
				b.States = func(types.NamespacedName) []string { return []string{name} }
			}
			served := false
			requests := b.reads(func(obj client.Object) error {
				if served || isState(obj) != c.states {
					return nil
				}
				return c.err
			})
			before := b.state()
			if b.lasts(time.Minute, b.pass) {
				t.Errorf("%s: the object was dropped from the queue", c.why)
			}
			if n := requests(); n > 40 {
				t.Errorf("%d requests in a minute", n)
			}
			served = true
			b.lasts(10*time.Second, b.pass)
			if worked != 1 {
				t.Errorf("%s: after the minute it worked %d times", c.why, worked)
			}
			b.stateStays(before)
		})
	}
}

// That a state is lost is believed only of two answers: the way out is by hand.
func TestAStateIsLostOnlyIfItIsNotListed(t *testing.T) {
	b := newBench(t)
	b.atWork()
	b.reads(func(obj client.Object) error {
		if _, is := obj.(*v1alpha1.MachineState); is {
			return apierrors.NewNotFound(schema.GroupResource{Group: "phasegate.dev", Resource: "machinestates"}, b.state().Name)
		}
		return nil
	})
	if _, err := b.pass(); err == nil {
		t.Error("two answers that differ are no error")
	}
	if diff := cmp.Diff([]string(nil), b.written()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// An object ends by the finalizer with which it began, whatever a later revision calls it, also after a restart.
func TestARenamedFinalizer(t *testing.T) {
	rename := []string{finalizer, "errand.phasegate.dev/kept"}
	for name, when := range map[string]func(b *bench){
		"while nothing is under way": func(b *bench) { b.passTo("Done") },
		"in the middle":              func(b *bench) { b.atWork() },
		"before the finalizer":       func(b *bench) { b.passTo("New") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			when(b)
			b.restart()
			b.edit(rename...)
			b.passTo("Done")
			b.see()
			if diff := cmp.Diff([]string{finalizer}, b.shown().Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			b.restart()
			b.edit(rename...)
			if err := b.outside.Delete(t.Context(), b.shown()); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				if _, err := b.pass(); err != nil {
					t.Fatal(err)
				}
			}
			left := &errand{}
			err := b.outside.Get(t.Context(), types.NamespacedName{Name: b.name}, left)
			if !apierrors.IsNotFound(err) || b.state() != nil {
				t.Errorf("it is left with finalizers %v, and nobody drives it: %v", left.Finalizers, err)
			}
		})
	}
}

// A call that finds no turn is not made, and does not count: it is made as soon as there is one.
func TestNoTurnIsNoCall(t *testing.T) {
	b := newBench(t)
	b.external = true
	b.restart()
	poll := []string{"poll: 7s", "poll: 5m"}
	b.edit(poll...)
	b.SetTurns(1)
	b.atWork()
	worked := 0
	b.work = func(context.Context, *scope) (map[string]any, error) {
		worked++
		return map[string]any{"done": true}, nil
	}
	free := b.OccupyTurn()
	for range 3 {
		result, err := b.pass()
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 30*time.Second || worked > 0 {
			t.Fatalf("without a turn: %v, %v, worked %d times", result, err, worked)
		}
		b.clock.Step(time.Second)
	}
	free()
	if _, err := b.pass(); err != nil || worked != 1 {
		t.Errorf("a turn is free: worked %d times, %v", worked, err)
	}
}
