package runner

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
)

// warnOf emits the Events of Program.Warned that a write of the view calls for.
func (r *Reconciler[T]) warnOf(before, after T) {
	for _, kind := range r.Program.Warned {
		is, was := meta.FindStatusCondition(*after.Conditions(), kind), meta.FindStatusCondition(*before.Conditions(), kind)
		if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		tell(r.Recorder, after, corev1.EventTypeWarning, is.Reason, is.Reason, is.Message)
	}
}

// toldMost is how many objects are told of a refused machine file.
const toldMost = 50

// tellRefused puts a Warning on the objects that are on their way through the
// machine, that somebody changed its file and what is wrong with it. A machine may
// drive thousands: the first ones are enough for a person to see it.
func tellRefused(ctx context.Context, c client.Client, recorder events.EventRecorder, machine *fsm.Machine, note string) {
	told := 0
	for state, err := range machinestate.Each(ctx, c, machine.Name()) {
		if err != nil {
			log.FromContext(ctx).Error(err, "the objects of a refused machine file get no Event", "machine", machine.Name())
			return
		}
		if !inFlight(machine, state.Status.Phase) {
			continue
		}
		tell(recorder, objectOf(state.Spec.Object), corev1.EventTypeWarning, "MachineRefused", reloading(note), note)
		if told++; told == toldMost {
			return
		}
	}
}

// objectOf is as much of an object as an Event needs.
func objectOf(of v1alpha1.ObjectReference) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: of.APIVersion, Kind: of.Kind}}
	obj.Namespace, obj.Name, obj.UID = of.Namespace, of.Name, of.UID
	return obj
}

// reloading is the action of an Event about a refused file. A recorder takes Events
// of one reason and action for one, and keeps the note of the first: somebody who
// corrects a file would go on reading of the mistake before.
func reloading(note string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(note)) // it never fails
	return fmt.Sprintf("Reload-%08x", hash.Sum32())
}

// inFlight is false for objects that have arrived, and true for those in a phase
// that the machine does not have: they wait for a file that has it.
func inFlight(machine *fsm.Machine, phase string) bool {
	phases := machine.Definition().Spec.Phases
	for i := range phases {
		if phases[i].Name == phase {
			return phases[i].Terminal == "" && !phases[i].End
		}
	}
	return phase != ""
}

// PodEventSource puts a Warning on the process's own Pod when a machine file is refused,
// so that `kubectl describe pod` shows it: also on a standby, and when there is no
// object to tell. Add it to a manager.
type PodEventSource struct {
	Store    *machinestore.Store
	Recorder events.EventRecorder
	// Pod answers the process's own Pod: name, namespace and UID are enough. It is
	// asked when there is something to tell.
	Pod func(context.Context) *corev1.Pod
}

// NeedLeaderElection is false: each process reads its own copy of the files.
func (t *PodEventSource) NeedLeaderElection() bool { return false }

// Start tells of each finding once, until ctx is done; it has no error.
func (t *PodEventSource) Start(ctx context.Context) error {
	var told []machinestore.Refusal
	for {
		changed, refusals := t.Store.Changed(), t.Store.Refusals()
		for _, r := range refusals {
			if !slices.Contains(told, r) {
				tell(t.Recorder, t.Pod(ctx), corev1.EventTypeWarning, "MachineRefused", reloading(r.Note), r.Note)
			}
		}
		told = refusals
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// announce tells a transition once it is durable.
func (r *Reconciler[T]) announce(ctx context.Context, machine *fsm.Machine, about runtime.Object, t *v1alpha1.Transition) {
	r.Metrics.Took(machine, t)
	kind, note := corev1.EventTypeNormal, fmt.Sprintf("%s → %s", t.From, t.To)
	if t.From == "" {
		note = "started in " + t.To
	}
	if t.Took.Duration > 0 {
		note += fmt.Sprintf(" after %s", t.Took.Duration)
	}
	if t.Message != "" {
		kind, note = corev1.EventTypeWarning, note+": "+t.Message
	}
	traceTransition(ctx, t)
	log.FromContext(ctx).Info("transition", "from", t.From, "to", t.To, "reason", t.Reason, "took", t.Took.Duration, "message", t.Message)
	tell(r.Recorder, about, kind, t.Reason, "Transition", note)
}
