package runner

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// noted notes the priority of what is added.
type noted struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	added map[string]int
}

func (n noted) Add(r reconcile.Request) { n.added[r.String()] = 0 }
func (n noted) AddWithOpts(o priorityqueue.AddOpts, all ...reconcile.Request) {
	for _, r := range all {
		n.added[r.String()] = *o.Priority
	}
}

func TestDeletionsGoFirst(t *testing.T) {
	q, now := noted{added: map[string]int{}}, metav1.Now()
	enqueue(q, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "stays"}})
	enqueue(q, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "goes", DeletionTimestamp: &now}})
	if d := cmp.Diff(map[string]int{"a/stays": 0, "a/goes": 10}, q.added); d != "" {
		t.Errorf("priorities (-want +got):\n%s", d)
	}
	plain := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer plain.ShutDown()
	enqueue(plain, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "goes", DeletionTimestamp: &now}})
	if plain.Len() != 1 {
		t.Error("a queue without priorities did not take it")
	}
}

func TestLimits(t *testing.T) {
	cases := map[string]struct {
		why     string
		limits  Limits
		workers int
		turns   int
	}{
		"none":            {why: "nothing can call outwards", workers: 4},
		"workers":         {why: "as many as the flag says", limits: Limits{Workers: 7}, workers: 7},
		"calls":           {why: "each has a worker of its own", limits: Limits{Workers: 2, ExternalCalls: 3}, workers: 5, turns: 3},
		"default workers": {why: "they are besides", limits: Limits{ExternalCalls: 3}, workers: 7, turns: 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.limits.workers(); got != c.workers || cap(c.limits.turns()) != c.turns {
				t.Errorf("%s: %d workers and %d turns, want %d and %d", c.why, got, cap(c.limits.turns()), c.workers, c.turns)
			}
		})
	}
}

// With all turns taken, a call outwards is not made, and frees its worker.
func TestCallWaitsForItsTurn(t *testing.T) {
	type kind = *migrationv1.DatastoreMigration
	r := &Reconciler[kind]{turns: Limits{ExternalCalls: 1}.turns(), Program: &Program[kind]{Actions: map[string]Action[kind]{
		"Call": {ActionSpec: fsm.ActionSpec{External: true}}}}}
	r.turns <- struct{}{}
	_, err := r.inTurn(t.Context(), nil, v1alpha1.MachineStatus{}, fsm.Command{Action: "Call"})
	if !errors.Is(err, errNoTurn) {
		t.Fatalf("got %v, want to wait for a turn", err)
	}
	_, span := r.startPass(t.Context(), reconcile.Request{})
	result, err := endPass(t.Context(), span, reconcile.Result{}, err)
	if d := cmp.Diff(reconcile.Result{RequeueAfter: turnAgain}, result); d != "" || err != nil {
		t.Errorf("the pass: %v (-want +got):\n%s", err, d)
	}
}
