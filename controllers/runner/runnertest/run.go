package runnertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

const (
	// maxCalls is how often an action may be called until it is done.
	maxCalls = 50
	// maxErrors is how often it may fail after a crash: on a conflict, for example,
	// with what its own lost write has done.
	maxErrors = 5
)

// run is the action in one world, from its first call to its success.
type run[T runner.Object[T]] struct {
	Case[T]
	t        testing.TB
	recorder *recorder
	// obj is the object as Setup had it stored.
	obj     T
	outputs map[string]any
}

func (c Case[T]) start(t testing.TB, point crash) *run[T] {
	t.Helper()
	obj, err := c.Setup(t.Context(), c.Client)
	if err != nil {
		t.Fatalf("set up the world: %v", err)
	}
	r := &run[T]{Case: c, t: t, recorder: &recorder{client: c.Client, point: point}, obj: obj}
	kind, err := c.Client.GroupVersionKindFor(obj)
	if err != nil {
		t.Fatal(err)
	}
	r.recorder.refs = []ref{{kind, client.ObjectKeyFromObject(obj)}}
	return r
}

// finish calls the action until it succeeds, each time with the object as it is
// stored then, as a reconciler would. It outlives one crash.
func (r *run[T]) finish() {
	r.t.Helper()
	failed := 0
	for range maxCalls {
		outputs, err := r.call()
		var wait *fsm.WaitError
		switch {
		case r.recorder.alive() != nil:
			r.recorder.restart()
		case err == nil:
			r.outputs = outputs
			return
		case errors.As(err, &wait) && r.Meanwhile != nil:
			if err := r.Meanwhile(r.t.Context(), r.Client, r.obj); err != nil {
				r.t.Fatalf("while the action waits: %v", err)
			}
		default:
			if failed++; !r.recorder.crashed || failed > maxErrors {
				r.t.Fatalf("the action fails: %v", err)
			}
		}
	}
	r.t.Fatalf("the action is not done after %d calls", maxCalls)
}

func (r *run[T]) call() (map[string]any, error) {
	obj := r.obj.DeepCopyObject().(T)
	if err := r.Client.Get(r.t.Context(), client.ObjectKeyFromObject(r.obj), obj); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	with := fsm.Params{}
	if r.With != nil {
		with = r.With(obj)
	}
	c := r.recorder.wrap()
	action := r.Action(c)
	if err := fits(action.ActionSpec, with); err != nil {
		r.t.Fatal(err)
	}
	return runner.Once(r.t.Context(), c, obj, action, with, r.Clock)
}

// fits finds parameters that no machine file could give.
func fits(spec fsm.ActionSpec, with fsm.Params) error {
	for name := range with {
		if _, declared := spec.Params[name]; !declared {
			return fmt.Errorf("parameter %s is not declared by the action", name)
		}
	}
	for name, param := range spec.Params {
		if _, given := with[name]; param.Required && !given {
			return fmt.Errorf("parameter %s is required by the action", name)
		}
	}
	return nil
}

// again calls the action once more: nothing may change.
func (r *run[T]) again() {
	r.t.Helper()
	before, outputs := r.objects(), r.outputs
	r.finish()
	after := r.objects()
	if diff := cmp.Diff(before, after); diff != "" {
		r.t.Errorf("calling it again changes objects (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(outputs, r.outputs); diff != "" {
		r.t.Errorf("calling it again answers something else (-first +second):\n%s", diff)
	}
}

func (r *run[T]) compare(want state, point crash, write string) {
	r.t.Helper()
	if !r.recorder.crashed {
		r.t.Errorf("%s (%s) never came: the action does not write the same in each run", point, write)
	}
	if diff := cmp.Diff(want, r.state()); diff != "" {
		r.t.Errorf("%s (%s) and a call after it lead elsewhere (-undisturbed +disturbed):\n%s", point, write, diff)
	}
}
