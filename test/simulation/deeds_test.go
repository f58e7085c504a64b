package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/fsm"
)

// What people do.
const (
	annotates     kind = "somebody annotates the object"
	annoys        kind = "somebody annotates the object 25 times in a second"
	respecs       kind = "the spec is edited"
	meddles       kind = "a target is edited"
	scales        kind = "a target is scaled by hand"
	joins         kind = "a neighbour with the same target arrives"
	deletesJob    kind = "a Job is deleted by hand"
	comments      kind = "a comment is written into the machine file"
	rewords       kind = "a description in the machine file changes"
	retimes       kind = "times in the machine file change"
	renamesPhase  kind = "a phase is renamed"
	renamesStep   kind = "a step is renamed"
	renamesEffect kind = "an effect is renamed"
	addsPhase     kind = "a phase is added"
	removesPhase  kind = "a phase that was added is removed"
	addsStep      kind = "a step is added"
)

// habits are what a person does again and again, as often as they are drawn; the rest is
// what happens beside.
var habits = slices.Concat(
	slices.Repeat([]kind{annotates, annoys, comments, respecs, meddles, joins, asks}, 3),
	slices.Repeat([]kind{rewords, retimes, renamesPhase, addsPhase, outage, crashes}, 2),
	[]kind{renamesStep, renamesEffect, removesPhase, addsStep, scales, deletes, wakes, fails, fails, lies, finds, waits, gives, vanishes, prunes})

// drawHumans makes the schedule of a seed: up to ten people, each with a habit.
func drawHumans(seed uint64, habits []kind) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	span := []int{150, 500, 1500}[r.IntN(3)]
	var s schedule
	for range 1 + r.IntN(10) {
		habit := habits[r.IntN(len(habits))]
		for range 1 + r.IntN(4) {
			f := fault{At: r.IntN(span), Do: habit, Pick: r.IntN(1000)}
			if habit == joins {
				f.At = r.IntN(40) // early enough to meet the other one
			}
			s = append(s, f)
		}
	}
	slices.SortStableFunc(s, func(a, b fault) int { return a.At - b.At })
	return s
}

// between is called between any two things that the manager does.
func (s *scene) between() {
	s.event++
	for len(s.deeds) > 0 && s.deeds[0].At <= s.event {
		f := s.deeds[0]
		s.deeds = s.deeds[1:]
		s.tell("— %s", f.Do)
		s.happen(f)
	}
}

func (s *scene) happen(f fault) {
	if change := editings[f.Do]; change != nil {
		s.edits(change, f.Pick)
		return
	}
	switch f.Do {
	case crashes:
		s.disturbed()
		s.manager.kill()
	case outage:
		s.outage = s.clock.Now().Add([]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}[f.Pick%3])
	case fails, waits, gives, finds:
		for range 1 + f.Pick%3 {
			s.refusals = append(s.refusals, refusal{f.Do, f.Pick})
		}
	case lies:
		s.lost++
	case joins:
		s.arrives()
	case annoys:
		for i := range 25 {
			s.bursts = append(s.bursts, s.clock.Now().Add(time.Duration(i)*40*time.Millisecond))
		}
	case meddles, scales, wakes, deletesJob:
		s.disturbs(f)
	default:
		if obj, ok := pickFrom(s.driven(), f.Pick); ok {
			s.touches(obj, f)
		}
	}
}

// edits is a person with the machine file.
func (s *scene) edits(change editing, pick int) {
	did, err := s.file.edit(s.states(), func(spec map[string]any) string { return change(s.file, spec, pick) })
	if err != nil {
		s.tell("%s: refused: %v", did, err)
		return
	}
	s.tell("%s", did)
	s.disturbed()
	s.wakeAll()
}

// touches is a person with the object.
func (s *scene) touches(obj object, f fault) {
	at := refOf(obj)
	switch f.Do {
	case annotates:
		s.annotate(at, "example.com/note", []string{"", "a", fmt.Sprint(f.Pick)}[f.Pick%3])
	case asks:
		if q, ok := pickFrom(s.example.requests, f.Pick); ok {
			token, _ := pickFrom(q.tokens, f.Pick/7)
			s.annotate(at, q.annotation, token)
		}
	case respecs:
		if edit, ok := pickFrom(s.example.specs, f.Pick); ok {
			s.edit(at, func(o object) {
				o.Object["spec"] = merge(o.Object["spec"].(map[string]any), runtime.DeepCopyJSON(edit))
			})
			s.model.respecified()
		}
	case prunes:
		s.edit(at, func(o object) { delete(o.Object, "status") })
	case vanishes:
		s.edit(at, func(o object) { o.SetFinalizers(nil) })
		_ = s.delete(at, client.DeleteOptions{})
	case deletes:
		_ = s.delete(at, client.DeleteOptions{})
	}
}

func (s *scene) annotate(at ref, key, value string) {
	s.edit(at, func(o object) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		if all[key] = value; value == "" {
			delete(all, key)
		}
		o.SetAnnotations(all)
	})
}

// burst annotates all objects, where it is time.
func (s *scene) burst() {
	slices.SortFunc(s.bursts, time.Time.Compare)
	for len(s.bursts) > 0 && !s.bursts[0].After(s.clock.Now()) {
		s.bursts = s.bursts[1:]
		for _, obj := range s.driven() {
			s.annotate(refOf(obj), "example.com/heartbeat", s.clock.Now().Format(time.RFC3339Nano))
		}
	}
}

// disturbs is a person with what the machine works on. What is edited must be so in the end.
func (s *scene) disturbs(f fault) {
	switch f.Do {
	case wakes:
		if obj, ok := pickFrom(slices.Concat(s.all(jobKind, ""), s.all(deploymentKind, "")), f.Pick); ok {
			s.edit(refOf(obj), func(o object) { o.SetLabels(merged(o.GetLabels(), "touched", fmt.Sprint(f.Pick))) })
		}
	case deletesJob:
		if job, ok := pickFrom(s.all(jobKind, ""), f.Pick); ok {
			_ = s.delete(refOf(job), client.DeleteOptions{})
		}
	case scales:
		if d, ok := pickFrom(s.all(deploymentKind, ""), f.Pick); ok {
			s.meddled[d.GetName()] = true
			s.edit(refOf(d), func(o object) { _ = unstructured.SetNestedField(o.Object, int64(f.Pick%4), "spec", "replicas") })
		}
	case meddles:
		if d, ok := pickFrom(s.all(deploymentKind, ""), f.Pick); ok {
			change := func(o object) {
				o.SetAnnotations(merged(o.GetAnnotations(), "example.com/owner", fmt.Sprint("team-", f.Pick)))
				_ = unstructured.SetNestedField(o.Object, fmt.Sprint("shop:", f.Pick), "spec", "template", "image")
			}
			s.edit(refOf(d), change)
			change(s.expected[refOf(d)])
		}
	}
}

func merged(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// refusal is what an action meets once.
type refusal struct {
	do   kind
	pick int
}

var errLost = errors.New("the answer is lost")

// own tells whether a request is the runner's, not that of an action.
func (s *scene) own(r request) bool {
	return r.GroupVersionKind == s.kind || r.GroupVersionKind == stateKind
}

// refuses is what becomes of a request about something that the machine works on.
func (s *scene) refuses(r request) error {
	if s.own(r) {
		return nil
	}
	if s.clock.Now().Before(s.outage) {
		return apierrors.NewServiceUnavailable("the API server of the target is away")
	}
	if next, refused := s.refused(fails); refused {
		return []error{apierrors.NewServiceUnavailable("try again"), apierrors.NewTooManyRequestsError("slowly"), apierrors.NewInternalError(errLost),
			apierrors.NewForbidden(resourceOf(r.ref), r.Name, errors.New("not now"))}[next.pick%4]
	}
	return nil
}

// refused takes the next refusal, where it is one of some kinds.
func (s *scene) refused(kinds ...kind) (refusal, bool) {
	i := slices.IndexFunc(s.refusals, func(r refusal) bool { return slices.Contains(kinds, r.do) })
	if i < 0 {
		return refusal{}, false
	}
	next := s.refusals[i]
	s.refusals = slices.Delete(s.refusals, i, i+1)
	return next, true
}

// loses is an error where the answer to a write does not arrive.
func (s *scene) loses(r request) error {
	if !r.writes() || s.lost == 0 || s.own(r) {
		return nil
	}
	s.lost--
	s.disturbed()
	return apierrors.NewServerTimeout(resourceOf(r.ref), r.verb, 1)
}

// errorOf is what an action of the model comes to.
func (r refusal) errorOf() error {
	switch r.do {
	case waits:
		return fsm.Wait("not yet")
	case gives:
		return fsm.Terminal("Bad", "for good")
	}
	return apierrors.NewServiceUnavailable("try again")
}
