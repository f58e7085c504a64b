package runner

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/phasegate/phasegate/controllers/machinestore"
)

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

// Start tells of each finding once, until ctx is done.
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
