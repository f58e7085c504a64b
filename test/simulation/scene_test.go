package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// Bounds of a run: a machine that does not come to an end is a finding.
const (
	maxPasses   = 30_000
	maxRestless = 500 // passes at one moment
)

// scene is a cluster with a manager, the objects of a machine, and people.
type scene struct {
	*cluster
	*checks
	ctx    context.Context
	clock  *clocktesting.FakeClock
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	example *example
	kind    schema.GroupVersionKind
	file    *machineFile
	manager *manager
	site    *site
	model   *model
	chance  *rand.Rand
	// expected are the targets as they must be in the end.
	expected map[ref]object

	deeds         schedule
	event, passes int
	calm          bool
	// sought ends everything as soon as it does not hold.
	sought property
	// outage is how long what the machine works on does not answer; refusals are what it
	// answers next, and lost is how many answers of writes do not arrive.
	outage   time.Time
	refusals []refusal
	lost     int
	// bursts are when the objects are annotated.
	bursts []time.Time
	arrive []object
	log    func(at time.Duration, text string)
}

// newScene sets up everything; the seed decides what is drawn besides the schedule.
func newScene(e *example, seed uint64, deeds schedule, log func(time.Duration, string)) (*scene, error) {
	s := &scene{example: e, ctx: context.Background(), clock: clocktesting.NewFakeClock(simulate.Epoch), deeds: slices.Clone(deeds), log: log,
		chance: rand.New(rand.NewPCG(seed, 1)), expected: map[ref]object{}}
	s.cluster = &cluster{apiServer: &apiServer{clock: s.clock, objects: map[ref]object{}, fields: fieldManagers{}, written: s.changed}, job: s.job,
		plans: map[string]time.Time{}, jobs: map[types.UID]jobPlan{}}
	s.checks = newChecks(s)
	s.model = newModel(s)
	file, err := e.read()
	if err != nil {
		return nil, err
	}
	s.file = file.copy()
	s.kind = schema.FromAPIVersionAndKind(s.file.inForce.For().APIVersion, s.file.inForce.For().Kind)
	s.scheme, s.mapper = e.scheme(s.kind)
	s.site = openSite(s)
	s.start()
	for _, target := range e.targets {
		obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(target)}
		if err := s.create(obj); err != nil {
			return nil, err
		}
		s.expected[refOf(obj)] = obj
	}
	s.work()
	for _, content := range e.objects {
		obj := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
		obj.SetGroupVersionKind(s.kind)
		replace(obj.Object, []string{"url"}, "SITE", s.site.url(obj.GetName()))
		s.arrive = append(s.arrive, obj)
	}
	s.arrives()
	if !slices.Contains(e.never, joins) && s.chance.IntN(2) == 0 {
		s.arrives() // both at once
	}
	return s, nil
}

// arrives creates the next object.
func (s *scene) arrives() {
	if len(s.arrive) > 0 {
		obj := s.arrive[0]
		s.arrive = s.arrive[1:]
		s.tell("%s arrives", obj.GetName())
		_ = s.create(obj.DeepCopy())
	}
}

func (s *scene) tell(format string, args ...any) {
	if s.log != nil {
		s.log(s.clock.Since(simulate.Epoch), fmt.Sprintf(format, args...))
	}
}

// job is how long the next Job takes, and whether it fails.
func (s *scene) job() (time.Duration, bool) {
	takes := []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 20 * time.Minute}[s.chance.IntN(5)]
	return takes, s.example.fails || s.chance.IntN(6) == 0 && !s.example.succeeds
}

// changed is called with every change of an object.
func (s *scene) changed(before, after object) {
	if s.manager != nil {
		s.wakes(before, after)
	}
	s.check(before, after)
}

// play lets everything happen, then waits for the end, then deletes the objects.
func (s *scene) play() {
	defer s.site.close()
	for quiet := 0; len(s.deeds) > 0 && quiet < 3 && !s.over() && !s.found(); quiet++ {
		left := len(s.deeds)
		s.run(10*time.Minute, s.over)
		s.between()
		if len(s.deeds) < left {
			quiet = -1
		}
		s.event = max(s.event, s.deeds.first())
	}
	s.deeds, s.calm, s.outage = nil, true, time.Time{}
	s.settle("at rest", s.rested)
	if s.found() {
		return
	}
	s.atRest()
	for _, obj := range s.driven() {
		_ = s.delete(refOf(obj), client.DeleteOptions{})
	}
	s.settle("gone", s.over)
	if !s.found() {
		s.atEnd()
	}
	s.manager.kill()
}

// found tells that what is sought does not hold: the rest does not matter.
func (s *scene) found() bool { return s.sought != "" && s.wrong[s.sought] != "" }

// settle runs until something holds, with what a person does in the end.
func (s *scene) settle(what string, done func() bool) {
	end := s.clock.Now().Add(s.example.enough)
	for s.clock.Now().Before(end) && s.passes < maxPasses && !s.found() {
		if s.example.goOn != nil {
			s.example.goOn(s)
		}
		s.run(10*time.Minute, done)
		if !done() {
			continue
		}
		if s.run(30*time.Second, nil); done() { // the cluster tidies up, and it stays so
			return
		}
	}
	if !done() && !s.found() {
		s.fail(ends, "not %s within %s: %s", what, s.example.enough, s.describe())
	}
}

// run lets time pass.
func (s *scene) run(d time.Duration, stop func() bool) {
	end := s.clock.Now().Add(d)
	restless := 0
	for s.passes < maxPasses && !s.found() {
		s.work()
		s.burst()
		if s.manager.dead() {
			s.start()
		}
		if stop != nil && stop() {
			return
		}
		if queue := s.manager.ready(s.clock.Now()); len(queue) > 0 {
			if restless++; restless > maxRestless {
				s.fail(ends, "the manager looks again and again: %s", s.describe())
				s.passes = maxPasses
				return
			}
			s.between()
			if s.example.planted != nil {
				s.example.planted(s)
			}
			if !s.manager.dead() {
				s.pass(queue[s.chance.IntN(len(queue))])
			}
			continue
		}
		restless = 0
		next := s.upcoming(end)
		if now := s.clock.Now(); next.After(now) {
			s.clock.SetTime(next)
		} else if !end.After(now) {
			return
		}
	}
}

// upcoming is when something happens next by itself, at most end.
func (s *scene) upcoming(end time.Time) time.Time {
	next := end
	sooner := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	if at, planned := s.next(); planned {
		sooner(at)
	}
	for _, at := range s.manager.timers {
		sooner(at)
	}
	for _, at := range s.bursts {
		sooner(at)
	}
	return next
}

// over tells that no object is left, nor anything of one.
func (s *scene) over() bool {
	return len(s.driven()) == 0 && len(s.all(stateKind, "")) == 0 && (s.calm || len(s.arrive) == 0)
}

// rested tells that nothing of the objects goes on by itself, nor of those that are gone.
func (s *scene) rested() bool {
	if len(s.all(stateKind, "")) > len(s.driven()) {
		return false
	}
	for _, obj := range s.driven() {
		st := s.stateOf(obj)
		if obj.GetDeletionTimestamp() != nil || st == nil || !s.restsIn(st.Phase) {
			return false
		}
	}
	return true
}

func (s *scene) restsIn(name string) bool {
	for _, p := range s.file.inForce.Definition().Spec.Phases {
		if p.Name == name {
			return p.Terminal != "" || p.Kind == "steady"
		}
	}
	return false
}

// stateOf is what is stored of an object; nil where nothing is.
func (s *scene) stateOf(obj object) *v1alpha1.MachineStatus {
	name := v1alpha1.MachineStateName(s.file.inForce.Name(), obj.GetUID())
	state := s.objects[ref{stateKind, types.NamespacedName{Name: name}}]
	if state == nil {
		return nil
	}
	st := decodeState(state)
	return &st
}

func decodeState(state object) v1alpha1.MachineStatus {
	var whole v1alpha1.MachineState
	data, err := json.Marshal(state.Object)
	if err == nil {
		err = json.Unmarshal(data, &whole)
	}
	if err != nil {
		panic(err)
	}
	return whole.Status.MachineStatus
}

func (s *scene) states() []v1alpha1.MachineStatus {
	var all []v1alpha1.MachineStatus
	for _, state := range s.all(stateKind, "") {
		all = append(all, decodeState(state))
	}
	return all
}

func (s *scene) describe() string {
	var all []string
	for _, state := range s.all(stateKind, "") {
		st := decodeState(state)
		name, _, _ := nested(state, "spec", "object", "name")
		all = append(all, fmt.Sprintf("%s in %s, step %q, attempts %d, held %v", name, st.Phase, st.Step, st.Attempts, st.HeldNames()))
	}
	for _, obj := range s.driven() {
		message, _, _ := nested(obj, "status", "message")
		all = append(all, fmt.Sprintf("%s says %q", obj.GetName(), message))
	}
	return strings.Join(all, "; ")
}

func nested(obj object, fields ...string) (string, bool, error) {
	return unstructured.NestedString(obj.Object, fields...)
}

func compareText(a, b string) int { return strings.Compare(a, b) }
