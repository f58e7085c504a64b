package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// errDead is what a killed process sees of the API server.
var errDead = errors.New("the process is dead")

// reconciler is a runner.Reconciler, whatever its kind.
type reconciler interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
}

var _ reconciler = &runner.Reconciler[*nothing]{}

// item is what waits in the queue: the name of an object, or of one that has left a state.
type item = types.NamespacedName

// manager is one process: a reconciler and its queue, which is that of controller-runtime:
// an item that is added while a pass is about it waits for the end of that pass, and of
// several times at which it shall come back the first one counts.
type manager struct {
	reconciler
	ctx  context.Context
	kill context.CancelFunc

	woken, busy map[item]bool
	timers      map[item]time.Time
	failures    map[item]int
}

// start makes a process, which looks at everything first.
func (s *scene) start() {
	m := &manager{woken: map[item]bool{}, busy: map[item]bool{}, timers: map[item]time.Time{}, failures: map[item]int{}}
	m.ctx, m.kill = context.WithCancel(s.ctx)
	s.manager = m
	s.forget()
	s.wakeAll()
	for _, state := range s.all(stateKind, "") {
		s.leaves(state)
	}
}

// forget takes from the process what it has in memory, but for its queue.
func (s *scene) forget() {
	m := s.manager
	m.reconciler = s.example.reconciler(s, &apiClient{server: s.apiServer, scheme: s.scheme, mapper: s.mapper,
		around:   func(r request, do func() error) error { return s.around(m, r, do) },
		careless: func(r request) bool { return s.example.careless && !s.own(r) }})
}

func (m *manager) dead() bool { return m.ctx.Err() != nil }

// wakeAll is what a changed file does.
func (s *scene) wakeAll() {
	for _, obj := range s.driven() {
		s.manager.woken[client.ObjectKeyFromObject(obj)] = true
	}
}

func (s *scene) driven() []object { return s.all(s.kind, "") }

// leaves queues the name of an object that is gone, and has left a state.
func (s *scene) leaves(state object) {
	uid, _, _ := nested(state, "spec", "object", "uid")
	for _, obj := range s.driven() {
		if string(obj.GetUID()) == uid {
			return
		}
	}
	namespace, _, _ := nested(state, "spec", "object", "namespace")
	name, _, _ := nested(state, "spec", "object", "name")
	s.manager.woken[item{Namespace: namespace, Name: name}] = true
}

// statesOf are the states that say they are of an object of this name.
func (s *scene) statesOf(key types.NamespacedName) (names []string) {
	for _, state := range s.all(stateKind, "") {
		namespace, _, _ := nested(state, "spec", "object", "namespace")
		name, _, _ := nested(state, "spec", "object", "name")
		if key == (types.NamespacedName{Namespace: namespace, Name: name}) {
			names = append(names, state.GetName())
		}
	}
	return names
}

// wakes is what the watches make of a change.
func (s *scene) wakes(before, after object) {
	obj := after
	if obj == nil {
		obj = before
	}
	if obj.GroupVersionKind() == s.kind {
		s.wakesItself(before, after, obj)
		return
	}
	if obj.GroupVersionKind() == stateKind && after != nil && (before == nil || !slices.Equal(before.GetFinalizers(), after.GetFinalizers())) {
		s.leaves(after) // its object may have gone before it was written
	}
	for _, w := range s.file.inForce.Watches() {
		if schema.FromAPIVersionAndKind(w.APIVersion, w.Kind) == obj.GroupVersionKind() {
			s.wokenBy(w, obj)
		}
	}
}

// wakesItself is a change of an object that the machine drives.
func (s *scene) wakesItself(before, after, obj object) {
	if before == nil || after == nil || matters(before, after) {
		s.manager.woken[client.ObjectKeyFromObject(obj)] = true
	}
}

// matters is false for a change of the status, as in the runner.
func matters(before, after object) bool {
	return before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) || !maps.Equal(before.GetLabels(), after.GetLabels())
}

func (s *scene) wokenBy(w v1alpha1.Watch, obj object) {
	for _, owner := range s.driven() {
		ref := metav1.GetControllerOf(obj)
		if w.Owned && (ref == nil || ref.UID != owner.GetUID()) || w.Name != "" && w.Name != obj.GetName() {
			continue
		}
		s.manager.woken[client.ObjectKeyFromObject(owner)] = true
	}
}

// ready is what the queue hands out now, if anything.
func (m *manager) ready(now time.Time) []item {
	for i, at := range m.timers {
		if !at.After(now) {
			delete(m.timers, i)
			m.woken[i] = true
		}
	}
	return slices.SortedFunc(func(yield func(item) bool) {
		for i := range m.woken {
			if !m.busy[i] && !yield(i) {
				return
			}
		}
	}, func(a, b item) int { return compareText(a.String(), b.String()) })
}

func (m *manager) later(i item, at time.Time) {
	if old, waits := m.timers[i]; !waits || at.Before(old) {
		m.timers[i] = at
	}
}

// pass is one reconcile.
func (s *scene) pass(i item) {
	m := s.manager
	delete(m.woken, i)
	m.busy[i] = true
	s.passes++
	result, err := m.Reconcile(m.ctx, reconcile.Request{NamespacedName: i})
	delete(m.busy, i)
	switch {
	case m.dead():
	case err != nil:
		s.tell("%s: %v", i.Name, err)
		m.later(i, s.clock.Now().Add(min(100*time.Millisecond<<min(m.failures[i], 10), 30*time.Second)))
		m.failures[i]++
	default:
		m.failures[i] = 0
		if result.RequeueAfter > 0 {
			m.later(i, s.clock.Now().Add(result.RequeueAfter))
		}
	}
}

// workers is how many passes a manager makes at a time.
const workers = 4

// others make passes meanwhile, now and then; rather between the look and the deed of an action.
func (s *scene) others(r request) {
	seldom := 4
	if r.writes() && !s.own(r) {
		seldom = 2
	}
	if len(s.manager.busy) >= workers || s.chance.IntN(seldom) > 0 {
		return
	}
	for range 1 + s.chance.IntN(3) {
		if queue := s.manager.ready(s.clock.Now()); len(queue) > 0 && !s.manager.dead() {
			s.pass(queue[s.chance.IntN(len(queue))])
		}
	}
}

// around is a request of a process: it takes a millisecond, and anything may happen right
// before and right after it.
func (s *scene) around(m *manager, r request, do func() error) error {
	s.clock.Step(time.Millisecond)
	s.others(r)
	for _, first := range []bool{true, false} {
		if m.dead() {
			return errDead
		}
		s.between()
		if m.dead() {
			return errDead
		}
		if !first {
			break
		}
		if err := s.refuses(r); err != nil {
			return err
		}
		if err := do(); err != nil {
			return err
		}
		if r.writes() && !s.own(r) {
			s.tell("%s", r)
		}
	}
	return s.loses(r)
}
