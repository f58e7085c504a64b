package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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
			if got := c.limits.workers(); got != c.workers || turnsOf(c.limits) != c.turns {
				t.Errorf("%s: %d workers and %d turns, want %d and %d", c.why, got, turnsOf(c.limits), c.workers, c.turns)
			}
		})
	}
}

func turnsOf(l Limits) int {
	if t := l.semaphore(); t != nil {
		return t.free
	}
	return 0
}

// Turns go to those that wait, in the order in which they came, however often others ask.
func TestTurnsAreGivenInOrder(t *testing.T) {
	key := func(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
	var woken []string
	turns := newSemaphore(1)
	turns.wakes(func(key types.NamespacedName) { woken = append(woken, key.Name) })
	pass := func(name string, calls bool) (called bool) {
		if turns.begins(key(name)) {
			defer turns.ended(key(name))
		}
		return calls && turns.take(key(name))
	}
	for i, s := range []struct {
		why, name           string
		calls, called, done bool
	}{
		{why: "a turn is free", name: "slow", calls: true, called: true},
		{why: "it is in use", name: "b", calls: true},
		{why: "it is in use", name: "c", calls: true},
		{why: "it is in use", name: "gone", calls: true},
		{why: "it is in use", name: "d", calls: true},
		{why: "to ask again changes nothing", name: "b", calls: true},
		{why: "nor for the next", name: "c", calls: true},
		{why: "however often", name: "b", calls: true},
		{why: "the turn is kept for b", name: "slow", calls: true, done: true},
		{why: "the turn is kept for b", name: "c", calls: true},
		{why: "it was woken", name: "b", calls: true, called: true},
		{why: "c comes before b comes again", name: "b", calls: true, done: true},
		{why: "it is the next", name: "c", calls: true, called: true},
		{why: "it has nothing to call any more", name: "gone", done: true},
		{why: "the turn that nobody used is not lost", name: "d", calls: true, called: true},
		{why: "it waited since its second call", name: "slow", calls: true, called: true, done: true},
		{why: "the last in line", name: "b", calls: true, called: true, done: true},
	} {
		if s.done {
			turns.done()
		}
		if got := pass(s.name, s.calls); got != s.called {
			t.Errorf("%d: %s: %s calls: %t", i, s.why, s.name, got)
		}
	}
	if d := cmp.Diff([]string{"b", "c", "gone", "d", "slow", "b"}, woken); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}
