package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// property is what must hold whatever people do.
type property string

const (
	backoff  property = "an attempt counts once for each backoff"
	early    property = "nothing is asked outside before it is due"
	quiet    property = "a look that changes nothing writes nothing"
	twice    property = "nothing is started twice in one visit to a phase"
	together property = "two Jobs never work on one target"
	apart    property = "two objects never work on one target at once"
	stopped  property = "the application does not run while a Job works"
	restored property = "what was changed is as before in the end"
	leak     property = "nothing is left when the objects are gone"
	legal    property = "a phase is left along an edge of the file"
	ends     property = "everything comes to an end"
	asked    property = "a request is acted on once"
	ledger   property = "what is taken is in the ledger"
)

// checks watch every write.
type checks struct {
	s     *scene
	wrong map[property]string
	lives map[types.UID]*life
	// targets are what Jobs work on, meddled what people have scaled by hand.
	targets map[types.UID]string
	meddled map[string]bool
}

// life is what was seen of one object.
type life struct {
	name string
	// target is what it works on, as long as it is there to be asked.
	target string
	// visits counts the phases that were entered, other than by a new name.
	visits int
	last   v1alpha1.MachineStatus
	// counted is when the last attempt was, and pause how long it has to be to the next.
	counted time.Time
	pause   time.Duration
	tokens  map[string]bool
	jobs    map[string]int
	calls   map[string]time.Time
	// free: after a crash, or with another file, a step may be repeated.
	free bool
}

func newChecks(s *scene) *checks {
	return &checks{s: s, wrong: map[property]string{}, lives: map[types.UID]*life{}, targets: map[types.UID]string{}, meddled: map[string]bool{}}
}

// fail notes the first violation of each property.
func (c *checks) fail(p property, format string, args ...any) {
	if c.wrong[p] == "" {
		c.wrong[p] = fmt.Sprintf("%s: ", c.s.clock.Since(simulate.Epoch)) + fmt.Sprintf(format, args...)
		c.s.tell("WRONG: %s: %s", p, c.wrong[p])
	}
}

func (c *checks) life(uid types.UID) *life {
	if c.lives[uid] == nil {
		c.lives[uid] = &life{tokens: map[string]bool{}, jobs: map[string]int{}, calls: map[string]time.Time{}}
	}
	return c.lives[uid]
}

// check looks at a change; before or after is nil where there was or is no object.
func (c *checks) check(before, after object) {
	switch {
	case after == nil:
	case after.GroupVersionKind() == stateKind:
		c.state(before, after)
	case after.GroupVersionKind() == c.s.kind:
		c.life(after.GetUID()).name = after.GetName()
		if before != nil {
			c.isNews(before, after)
		}
	case after.GroupVersionKind() == jobKind && before == nil:
		c.jobStarts(after)
	}
	c.targetsAreFree()
}

// isNews finds a write that says nothing but when the next look will be.
func (c *checks) isNews(before, after object) {
	bare := func(obj object) map[string]any {
		all := runtime.DeepCopyJSON(obj.Object)
		unstructured.RemoveNestedField(all, "status", "machine", "nextCheck")
		unstructured.RemoveNestedField(all, "status", "nextCheck")
		unstructured.RemoveNestedField(all, "metadata", "resourceVersion")
		return all
	}
	if reflect.DeepEqual(bare(before), bare(after)) {
		old, _, _ := unstructured.NestedFieldNoCopy(before.Object, "status", "machine", "nextCheck")
		now, _, _ := unstructured.NestedFieldNoCopy(after.Object, "status", "machine", "nextCheck")
		c.fail(quiet, "%s is written only to say that the next look is at %v instead of %v", refOf(after), now, old)
	}
}

// state follows the stored state of an object.
func (c *checks) state(before, after object) {
	uid, _, _ := nested(after, "spec", "object", "uid")
	l, now := c.life(types.UID(uid)), decodeState(after)
	if before != nil {
		c.isNews(before, after)
	}
	entered := len(now.History) > 0 && (len(l.last.History) == 0 || !reflect.DeepEqual(now.History[len(now.History)-1], l.last.History[len(l.last.History)-1]))
	if entered {
		c.transition(l, &now)
	}
	c.attempts(l, &now, entered)
	c.requests(l, &now)
	c.s.model.stored(&now)
	l.last = now
	l.target = cmp.Or(c.s.example.target(c.s, types.UID(uid)), l.target)
	c.areApart()
}

// areApart: of the objects with one target one is at work on it, in all that may happen between its look and its deed.
func (c *checks) areApart() {
	works := func(h v1alpha1.HeldEffect) bool {
		return c.s.example.works != "" && strings.HasPrefix(h.Name, c.s.example.works) // people rename it
	}
	at := map[string]string{}
	for _, uid := range slices.Sorted(maps.Keys(c.lives)) {
		l := c.lives[uid]
		if !slices.ContainsFunc(l.last.Held, works) {
			continue
		}
		if other := at[l.target]; other != "" {
			c.fail(apart, "%s and %s work on %s", other, l.name, l.target)
		}
		at[l.target] = l.name
	}
}

func (c *checks) transition(l *life, now *v1alpha1.MachineStatus) {
	t := now.History[len(now.History)-1]
	c.s.tell("%s: %s → %s (%s) %s", l.name, t.From, t.To, t.Reason, t.Message)
	renamed := t.Reason == "PhaseReplaced"
	if !renamed {
		l.visits++
		clear(l.calls)
	}
	edge := func(e program.Edge) bool { return e.From == t.From && e.To == t.To }
	if t.From != l.last.Phase || t.From != "" && !renamed && !slices.ContainsFunc(c.s.file.taken[now.Revision].Edges(), edge) {
		c.fail(legal, "%s was in %q, and goes from %s to %s, which is no edge of the file", l.name, l.last.Phase, t.From, t.To)
	}
}

// tolerance is how much nearer two writes may be than the looks that they are about.
const tolerance = 100 * time.Millisecond

// attempts: an error that comes before the backoff of the last one is over is not counted.
func (c *checks) attempts(l *life, now *v1alpha1.MachineStatus, entered bool) {
	clock := c.s.clock.Now()
	exhausted := entered && strings.HasSuffix(now.History[len(now.History)-1].Reason, "RetriesExhausted")
	counted := now.Attempts > l.last.Attempts && !entered
	if (exhausted || counted) && l.last.Attempts > 0 && l.pause > 0 && clock.Sub(l.counted) < l.pause-tolerance {
		c.fail(backoff, "%s, phase %s, step %q: attempt %d counts %s after attempt %d, and its backoff is %s", l.name, l.last.Phase, l.last.Step,
			l.last.Attempts+1, clock.Sub(l.counted), l.last.Attempts, l.pause)
	}
	switch {
	case counted:
		c.s.tell("%s: attempt %d of step %q", l.name, now.Attempts, now.Step)
		l.counted, l.pause = clock, pause(c.s.file.taken[now.Revision], now)
	case entered || now.Attempts == 0:
		l.pause = 0
	}
}

// pause is how long it is to the next attempt at least.
func pause(m *fsm.Machine, st *v1alpha1.MachineStatus) time.Duration {
	pace, steps := m.Pace(st.Phase)
	for _, p := range m.Definition().Spec.Phases {
		if p.Name == st.Phase && p.Kind == "waiting" && pace.Poll > 0 {
			return min(pace.Poll, pace.Max) // the latter where it failed for good
		}
	}
	if st.Step != "" && int(st.StepIndex) < len(steps) {
		pace = steps[st.StepIndex]
	}
	return min(time.Duration(float64(pace.Base)*math.Pow(pace.Factor, float64(st.Attempts-1))), pace.Max)
}

// requests: a token is acted on once, whatever was asked for in between.
func (c *checks) requests(l *life, now *v1alpha1.MachineStatus) {
	for _, q := range now.Requests {
		last := ""
		for _, old := range l.last.Requests {
			if old.Name == q.Name {
				last = old.Token
			}
		}
		if key := q.Name + "=" + q.Token; q.Token != last {
			if l.tokens[key] {
				c.fail(asked, "%s acts on request %s once more", l.name, key)
			}
			l.tokens[key] = true
		}
	}
}

// jobStarts: a Job runs once in each visit, and a visit goes on under another name.
func (c *checks) jobStarts(job object) {
	owner := metav1.GetControllerOf(job)
	if owner == nil {
		return
	}
	l := c.life(owner.UID)
	c.targets[job.GetUID()] = c.s.example.target(c.s, owner.UID)
	template, err := json.Marshal(job.Object["spec"])
	if err != nil {
		panic(err)
	}
	key := fmt.Sprintf("%d %s", l.visits, template)
	if l.jobs[key]++; l.jobs[key] > 1 {
		c.fail(twice, "%s starts Job %s, which it has started in this visit to %s already", l.name, job.GetName(), l.last.Phase)
	}
}

// targetsAreFree: while a Job works on something, nobody else does.
func (c *checks) targetsAreFree() {
	if !c.s.example.exclusive {
		return
	}
	works := map[string]string{}
	for _, pod := range c.s.working() {
		job := pod.GetOwnerReferences()[0]
		target := c.targets[job.UID]
		if other := works[target]; other != "" {
			c.fail(together, "Jobs %s and %s work on %s", other, job.Name, target)
		}
		works[target] = job.Name
		for _, d := range c.s.all(deploymentKind, "") {
			if d.GetName() == target && running(d) && !c.meddled[target] {
				c.fail(stopped, "Job %s works while Deployment %s runs", job.Name, target)
			}
		}
	}
}

// calls is an HTTP request of a step, as its server sees it.
func (c *checks) called(object, step string, atLeast time.Duration) {
	for _, l := range c.lives {
		if l.name != object {
			continue
		}
		now := c.s.clock.Now()
		if last, again := l.calls[step]; again && now.Sub(last) < atLeast-tolerance && l.free {
			l.free = false
		} else if again && now.Sub(last) < atLeast-tolerance {
			c.fail(early, "%s asks %s again after %s, and its poll and its backoff are %s or more", object, step, now.Sub(last), atLeast)
		}
		l.calls[step] = now
	}
}

// disturbed is a crash, or another file: a step may be repeated.
func (c *checks) disturbed() {
	for _, l := range c.lives {
		clear(l.calls)
		l.free = true
	}
}

// atRest is when every object is at an end, and still there.
func (c *checks) atRest() {
	if c.s.example.restores {
		c.targetsAreAsBefore()
	}
}

// atEnd is when all objects are gone.
func (c *checks) atEnd() {
	if len(c.s.driven()) > 0 {
		return // said already
	}
	c.targetsAreAsBefore()
	c.s.model.left()
	for _, obj := range c.s.everything() {
		if c.s.expected[refOf(obj)] == nil && obj.GetKind() != "Event" {
			c.fail(leak, "%s is left", refOf(obj))
		}
	}
}

func (c *checks) targetsAreAsBefore() {
	for at, want := range c.s.expected {
		got := c.s.objects[at]
		if got == nil {
			c.fail(restored, "%s is gone", at)
			continue
		}
		same := func(fields ...string) {
			a, _, _ := unstructured.NestedFieldCopy(want.Object, fields...)
			b, _, _ := unstructured.NestedFieldCopy(got.Object, fields...)
			if isEmpty(a) && isEmpty(b) {
				return
			}
			if spec, ok := b.(map[string]any); ok && c.meddled[at.Name] && spec["replicas"] != nil {
				spec["replicas"] = a.(map[string]any)["replicas"]
			}
			if !reflect.DeepEqual(a, b) {
				c.fail(restored, "%v of %s is %v, and was %v", fields, at, b, a)
			}
		}
		same("spec")
		same("data")
		same("metadata", "annotations")
	}
}

func isEmpty(v any) bool {
	m, isMap := v.(map[string]any)
	return v == nil || isMap && len(m) == 0
}
