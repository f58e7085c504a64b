// Package builtin has the actions that every machine may use: apply a manifest,
// patch and put back, delete, claim an object, evict a Pod, wait for a condition or a rollout, read an object, list objects, run and end
// a Job, emit an Event, set a condition, make an HTTP request. One file per action.
//
// They are the same for all kinds. What they act on is in the parameters that the
// machine file gives them; they know no machine, and keep nothing between calls.
package builtin

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// Options are what the program gives to the actions. The zero value is enough for
// their specs.
type Options struct {
	// Client must not read from a cache. Its scheme knows the kind of the objects
	// that the machine drives.
	Client client.Client
	// Discovery tells a kind that is gone from a version that is not served. Without it, a kind that is not served is an error.
	Discovery discovery.DiscoveryInterfaceWithContext
	// HTTP is the leave to make requests; the zero value gives none.
	HTTP HTTP
}

type outputs = map[string]any

// action is one entry of the table: what it declares, and its work.
type action struct {
	fsm.ActionSpec
	do func(ctx context.Context, c *call) (outputs, error)
	// access is runner.Action.Access; nil: the action needs none.
	access func(with fsm.Params) []rbac.Access
}

func table() map[string]action {
	return map[string]action{
		"Apply":          {applySpec, apply, toApplied},
		"Patch":          {patchSpec, patchObject, toPatched},
		"Unpatch":        {unpatchSpec, unpatch, toTarget(patchVerbs...)},
		"Delete":         {deleteSpec, deleteObjects, toDeleted},
		"Evict":          {evictSpec, evict, toEvicted},
		"Claim":          {claimSpec, claim, toTarget(claimVerbs...)},
		"Unclaim":        {unclaimSpec, unclaim, toTarget(claimVerbs...)},
		"AwaitCondition": {awaitConditionSpec, awaitCondition, toTarget("get")},
		"AwaitReady":     {awaitReadySpec, awaitReady, toTarget("get")},
		"ReadObject":     {readObjectSpec, readObject, toTarget("get")},
		"ListObjects":    {listObjectsSpec, listObjects, toListed},
		"RunJob":         {runJobSpec, runJob, toJob},
		"EndJob":         {endJobSpec, endJob, toEndedJob},
		"EmitEvent":      {emitEventSpec, emitEvent, nil}, // the runner makes Events, too
		"SetCondition":   {setConditionSpec, setCondition, nil},
		"HTTPRequest":    {httpRequestSpec, httpRequest, toSecrets},
	}
}

// Specs are what the actions declare, by name.
func Specs() map[string]fsm.ActionSpec {
	specs := map[string]fsm.ActionSpec{}
	for name, a := range table() {
		specs[name] = a.ActionSpec
	}
	return specs
}

// Actions are the actions for machines of a kind, by name; they are those of
// Specs. API errors are returned wrapped, for the runner to classify.
func Actions[T runner.Object[T]](o Options) map[string]runner.Action[T] {
	actions := map[string]runner.Action[T]{}
	for name, a := range table() {
		actions[name] = runner.Action[T]{ActionSpec: a.ActionSpec, Access: a.access, Do: func(ctx context.Context, s *runner.Scope[T]) (map[string]any, error) {
			kind, err := o.Client.GroupVersionKindFor(s.Object)
			if err != nil {
				return nil, fmt.Errorf("find the kind of %s: %w", s.Object.GetName(), err)
			}
			if err := checkValues(a.Params, s.With); err != nil {
				return nil, err
			}
			c := &call{
				Options: o, owner: s.Object, kind: kind, status: s.Object.MachineStatus(),
				with: s.With, about: s.About(), stateUID: s.StateUID, stepID: s.StepID, releases: s.Releases, now: s.Clock.Now, warn: s.Warn, save: s.Save, saved: s.Saved,
				report: func(change func(*[]metav1.Condition)) {
					s.Report(func(obj T) { change(obj.Conditions()) })
				},
			}
			out, err := a.do(ctx, c)
			return c.hide(out, err)
		}}
	}
	return actions
}
