package processes

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/support/equality"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/loadgenerator"
	"github.com/phasegate/phasegate/test/support/setup"
)

// Somebody writes v1 so often a second, all the time.
const writesPerSecond = 20

// play is one migration that is watched, while somebody goes on writing v1.
type play struct {
	*world
	machine  *fsm.Machine
	recorder *invariants.Recorder
	writer   *loadgenerator.Writer
	watcher  *loadgenerator.Watcher
}

// watch begins to look at the migration to come, or at the rest of one.
func (w *world) watch(t *testing.T, machine *fsm.Machine) *play {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	p := &play{world: w, machine: machine}
	var err error
	if p.recorder, err = invariants.StartRecorder(ctx, w.dynamic, setup.MigrationName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.recorder.Stop)
	if p.watcher, err = loadgenerator.Watch(ctx, w.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.watcher.Stop() })
	if p.writer, err = loadgenerator.Start(ctx, w.Config, writesPerSecond); apierrs.IsForbidden(err) || apierrs.IsInvalid(err) {
		// v1 is closed from the begin of this play to its end. Invalid is what an API server answers
		// that was started again and does not know the fence's parameter yet.
		return p
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.writer.Stop() })
	return p
}

// check ends the looking, and looks for violations of the invariants.
func (p *play) check(t *testing.T, end invariants.End, took, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience)
	defer cancel()
	record, err := p.recorder.Seen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run := invariants.Run{End: end, Before: p.before, After: p.look(t), Record: record, Machine: p.machine, Took: took, Limit: limit}
	windows := p.watcher.Stop()
	if p.writer != nil {
		for _, a := range loadgenerator.Breaches(p.writer.Stop(), windows) {
			run.Accepted = append(run.Accepted, fmt.Sprintf("attempt %d at revision %d", a.N, a.Revision))
		}
	}
	for _, flaw := range run.Check() {
		t.Error(flaw)
	}
}

// look reads everything but what the background writer writes.
func (w *world) look(t *testing.T) *invariants.State {
	t.Helper()
	state, err := invariants.Eye{Client: w.dynamic, Registry: w.Registry, Stored: w.Stored}.Look(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []equality.Side{state.V1, state.V3} {
		delete(side, equality.Key{Kind: "GlobalNetworkSet", Name: loadgenerator.ObjectName})
	}
	return state
}

// addSentinel makes an object of somebody else that a migration must not harm.
func (w *world) addSentinel(t *testing.T) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "sentinel", Labels: map[string]string{invariants.SentinelLabel: "yes"}}, Data: map[string]string{"of": "somebody else"}}
	if err := w.Client.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
}

// giveBack removes a migration that is to leave no trace, and checks that it leaves none.
func (w *world) giveBack(t *testing.T, machine *fsm.Machine) {
	t.Helper()
	p := w.watch(t, machine)
	w.remove(t)
	w.until(t, "the migration to be gone", isGone)
	p.check(t, invariants.GivenBack, 0, 0)
}
