package runner

import (
	"context"
	"reflect"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// OnceMachine is the machine in the name of the MachineState that Once uses.
const OnceMachine = "once"

// Once calls an action for an object as it was read, as a pass would, and after a
// success writes what the action reported: one status write at most. It is for
// tests of actions; package runnertest shows how. Progress is not published
// meanwhile. Once changes obj to what the API server has afterwards.
//
// If there is a MachineState of the object for the machine OnceMachine, with a phase, the
// action sees it in place of status.machine, which the CRD of the object may prune.
//
// The error is the action's own, or that of the status write.
func Once[T Object[T]](ctx context.Context, c client.Client, obj T, action Action[T], with fsm.Params, clock clock.WithTickerAndDelayedExecution) (map[string]any, error) {
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	p := &pass[T]{by: &Reconciler[T]{Client: c, Clock: clock, Program: &Program[T]{}}, once: true, stored: obj, work: deepCopy(obj),
		spec: specOf(OnceMachine, v1alpha1.ObjectKind{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, obj)}
	if c.Scheme().Recognizes(v1alpha1.GroupVersion.WithKind("MachineState")) { // that of a test may do without
		if p.state, err = readState(ctx, c, p.spec.Machine, obj.GetUID()); err != nil {
			return nil, err
		}
	}
	seen := deepCopy(obj)
	if state := p.state; state != nil {
		p.saved = state.Status.Saved
		if state.Status.Phase != "" {
			state.Status.MachineStatus.DeepCopyInto(seen.MachineStatus())
		}
	}
	defer func() { reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(p.stored).Elem()) }()
	outputs, err := action.Do(ctx, &Scope[T]{Object: seen, StepID: OnceMachine, With: with, Clock: clock, pass: p, recorder: &events.FakeRecorder{}})
	if err != nil {
		return nil, err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	return outputs, p.send(ctx)
}
