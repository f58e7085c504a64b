package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/fsm"
)

// errMoved says that somebody else wrote the object during an action. Whatever
// was decided from the older one is dropped.
var errMoved = errors.New("the object changed while the action ran")

// publishEvery bounds how often progress is written, and how late a deletion is
// noticed during a long action.
const publishEvery = time.Second

// pass is the notebook of one reconcile.
type pass[T Object[T]] struct {
	client   client.Client
	clock    clock.WithTickerAndDelayedExecution
	decorate func(T)
	// empty is a new T.
	empty func() T
	// written is called after each write of the status; nil: nobody asks.
	written func(T)
	machine *fsm.Machine

	// sending guards stored, and is held during requests: progress is written
	// while an action runs. Take it before mu, never after.
	sending sync.Mutex
	// stored is the object as the API server has it. A write replaces it.
	stored T
	// sent is what the API server has if the last write went through. unanswered says that this is not known.
	sent       T
	unanswered bool

	// mu guards work and is never held during a request: an action that reports
	// does not wait for the API server.
	mu sync.Mutex
	// work is stored plus what this pass has not written yet.
	work T
}

// adoptMetadata takes over what the server answered; the status of work stays.
// It needs sending.
func (p *pass[T]) adoptMetadata() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work.SetResourceVersion(p.stored.GetResourceVersion())
	p.work.SetAnnotations(p.stored.GetAnnotations())
	p.work.SetLabels(p.stored.GetLabels())
	p.work.SetFinalizers(p.stored.GetFinalizers())
}

// write makes the run's state durable: the one status write of a pass, a
// compare-and-swap. Nothing is sent when nothing changed.
func (p *pass[T]) write(ctx context.Context, run *fsm.Run) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.settle(run)
	if reflect.DeepEqual(p.work, p.stored) {
		return nil // as most passes end: to see it here costs less than two encodings
	}
	if err := p.insist(ctx); err != nil {
		return err
	}
	return p.kept()
}

// kept is an error when the API server has dropped a part of what was sent. The
// next pass would not know of it; so nothing may be done in its name. It names the
// fields and not their values, as results of actions are among them and errors are
// logged.
func (p *pass[T]) kept() error {
	sent, err := json.Marshal(p.work.MachineStatus())
	if err != nil {
		return fmt.Errorf("show the status of %s: %w", p.stored.GetName(), err)
	}
	stored, err := json.Marshal(p.stored.MachineStatus())
	if err != nil {
		return fmt.Errorf("show the status of %s: %w", p.stored.GetName(), err)
	}
	if !bytes.Equal(sent, stored) {
		return fmt.Errorf("the API server does not keep status.machine of %s %s as it was sent: its CRD needs the whole block or x-kubernetes-preserve-unknown-fields there; it changed %s",
			p.machine.For().Kind, p.stored.GetName(), strings.Join(differ(sent, stored), ", "))
	}
	return nil
}

// differ are the names of the fields in which two objects, as JSON, differ.
func differ(a, b []byte) []string {
	var left, right map[string]json.RawMessage
	_, _ = json.Unmarshal(a, &left), json.Unmarshal(b, &right) // what is no object has no fields
	var names []string
	for name, value := range left {
		if !bytes.Equal(value, right[name]) {
			names = append(names, name)
		}
	}
	for name := range right {
		if left[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// settle brings work to what the run says. It needs sending.
func (p *pass[T]) settle(run *fsm.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	summary := run.Summary()
	*p.work.MachineStatus() = run.Status()
	p.work.SetDisplay(summary.Phase, summary.Message)
	p.work.SetObservedGeneration(p.stored.GetGeneration())
	p.setConditions(summary.Conditions)
	if p.decorate != nil {
		p.decorate(p.work)
	}
}

// setConditions leaves out what is not worth a line: as kstatus has it,
// Reconciling and Stalled are there only while they are true.
func (p *pass[T]) setConditions(conditions []metav1.Condition) {
	for _, c := range conditions {
		if c.Type != fsm.ConditionReady && c.Status == metav1.ConditionFalse {
			meta.RemoveStatusCondition(p.work.Conditions(), c.Type)
			continue
		}
		c.ObservedGeneration = p.stored.GetGeneration()
		c.LastTransitionTime = metav1.NewTime(p.clock.Now())
		meta.SetStatusCondition(p.work.Conditions(), c)
	}
	slices.SortStableFunc(*p.work.Conditions(), func(a, b metav1.Condition) int { return rank(a) - rank(b) })
}

// rank keeps the summary conditions first, so that describe reads from the
// general to the particular.
func rank(c metav1.Condition) int {
	if i := slices.Index([]string{fsm.ConditionReady, fsm.ConditionReconciling, fsm.ConditionStalled}, c.Type); i >= 0 {
		return i
	}
	return 3
}

func (p *pass[T]) send(ctx context.Context) error {
	written := deepCopy(p.stored)
	err := patch.MutateAndSwapStatus(ctx, p.client, written, func(obj T) {
		p.mu.Lock()
		defer p.mu.Unlock()
		obj.CopyStatusFrom(p.work)
		p.sent, p.unanswered = deepCopy(obj), true
	})
	if err != nil {
		return err
	}
	p.adopt(written)
	return nil
}

// adopt takes what the API server has after our write. It needs sending.
func (p *pass[T]) adopt(stored T) {
	p.stored, p.unanswered = stored, false
	p.adoptMetadata()
	if p.written != nil {
		p.written(p.stored)
	}
}

// publish writes progress once a second until the action is done. When the
// object was changed by somebody else it calls moved and stops. The function that it
// returns is for the end of the action, after done: it waits for a write that is on
// its way. Without its answer, the pass would take it for somebody else's.
func (p *pass[T]) publish(ctx context.Context, done <-chan struct{}, moved func()) (wait func()) {
	ended := make(chan struct{})
	// Most actions are over before there is anything to do here.
	first := p.clock.AfterFunc(publishEvery, func() {
		go func() { // a fake clock calls while it is locked
			defer close(ended)
			p.publishing(ctx, done, moved)
		}()
	})
	return func() {
		if !first.Stop() {
			<-ended
		}
	}
}

func (p *pass[T]) publishing(ctx context.Context, done <-chan struct{}, moved func()) {
	ticker := p.clock.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		if p.movedOrSent(ctx) {
			moved()
			return
		}
		select {
		case <-done:
			return
		case <-ticker.C():
		}
	}
}

// movedOrSent tells whether somebody else wrote; errors are left to the pass's
// own write, which cannot do without an answer.
func (p *pass[T]) movedOrSent(ctx context.Context) bool {
	p.sending.Lock()
	defer p.sending.Unlock()
	live := p.empty()
	err := p.client.Get(ctx, client.ObjectKeyFromObject(p.stored), live)
	if err != nil {
		return client.IgnoreNotFound(err) == nil
	}
	if live.GetResourceVersion() != p.stored.GetResourceVersion() && !p.tookOver(live) {
		return true
	}
	_ = p.send(ctx) // progress only: the next tick or the pass's own write repeats it
	return false
}
