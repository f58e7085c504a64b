package statusview

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
)

// Of makes the overview of an object, by the machine that drives it. Where another revision
// drove it last, it says so, and what that machine does not have is left out. The commands in
// it are to be typed by the caller. Orphans are not set.
func Of(m *fsm.Machine, of live.Object, now time.Time, by Caller) (Overview, error) {
	st := of.Machine.DeepCopy()
	st.Phase = of.PhaseIn(m) // without a state, and on a CRD that is not ours, it is what there is
	phase := phaseOf(m, st.Phase)
	o := Overview{
		Kind: of.Kind.Kind, Namespace: of.Namespace, Name: of.Name, Machine: m.Name(), Revision: st.Revision, Now: now.UTC(),
		Phase: st.Phase, Description: phase.Description, Phases: line(m, st),
		EnteredAt: instant(st.EnteredAt), Deadline: instant(st.Deadline), Message: of.MessageIn(m),
		WhyNot: st.Blocked, Held: HeldBy(m, st.Held), OnDelete: (*Deletion)(m.Deletion(*st)), Deleting: of.Deleting, Step: stepOf(m, &phase, st),
		Conditions: of.Conditions, History: history(st), Note: of.Note, Stale: of.Stale,
	}
	if st.Revision != "" && st.Revision != m.Revision() {
		o.InForce = m.Revision()
	}
	advice := advisor{machine: m, of: &of, overview: &o}
	_ = json.Unmarshal([]byte(st.Result), &advice.result) // for advice only: what cannot be read is none
	_ = json.Unmarshal([]byte(st.State), &o.State)        // the machine says what is wrong
	if of.Kind.GroupKind() == migrationKind {
		dm, err := of.Migration()
		if err != nil {
			return o, err
		}
		addMigration(&o, dm, now)
		if step := dm.Status.Machine.Step; len(o.WhyNot) == 0 && dm.Status.Machine.OnDelete == nil && slices.Contains(waiting, advice.actionOf(&phase, step)) {
			o.WhyNot = []Closed{{Step: step, Guard: "the step is not done", Value: o.Message}}
		}
		advice.migration = true
	}
	o.Outcome = advice.outcome(&phase)
	o.Next = advice.next(&phase)
	by.complete(&o)
	return o, nil
}

// phaseOf answers a phase that says nothing where the machine has none of that name.
func phaseOf(m *fsm.Machine, name string) v1alpha1.Phase {
	all := m.Definition().Spec.Phases
	if i := slices.IndexFunc(all, func(p v1alpha1.Phase) bool { return p.Name == name }); i >= 0 {
		return all[i]
	}
	return v1alpha1.Phase{Name: name}
}

func instant[T interface {
	*metav1.Time | *metav1.MicroTime
	UTC() time.Time
}](at T) *time.Time {
	if at == nil {
		return nil
	}
	return new(at.UTC())
}

// HeldBy tells of each effect what releases it: the release that was stored with it, else
// that of the machine.
func HeldBy(m *fsm.Machine, effects []v1alpha1.HeldEffect) []Held {
	var all []Held
	for _, stored := range effects {
		h := Held{Effect: stored.Name, Release: does(m, stored.Release)}
		for _, e := range m.Definition().Spec.Effects {
			if e.Name == stored.Effect() {
				h.Acquire, h.Release = does(m, e.Acquire), cmp.Or(h.Release, does(m, m.Program().Effects[e.Name].ReleasedBy()))
			}
		}
		all = append(all, h)
	}
	return all
}

// OrphansOf are objects that are gone, of which there are states.
func OrphansOf(m *fsm.Machine, left []live.Object, by Caller) []Orphan {
	var all []Orphan
	for _, s := range left {
		o := Orphan{
			State: v1alpha1.MachineStateName(m.Name(), s.UID), Kind: s.Kind.Kind, Namespace: s.Namespace, Object: s.Name, UID: s.UID,
			Phase: s.Machine.Phase, Held: HeldBy(m, s.Machine.Held),
		}
		o.Command = by.typed("kubectl describe machinestate " + o.State)
		o.Next = "nothing is held: the manager removes the state"
		if len(o.Held) > 0 {
			o.Next = "what it holds is being released by the manager, which then removes the state"
		}
		all = append(all, o)
	}
	return all
}

// does is the program's own sentence on an action, also on one that the file gives a name.
func does(m *fsm.Machine, action string) string {
	return m.Bindings().Actions[programs(m, action)].Doc
}

// programs is the program's action behind a name of the file.
func programs(m *fsm.Machine, action string) string {
	for _, named := range m.Definition().Spec.Actions {
		if named.Name == action {
			return named.Use
		}
	}
	return action
}

// stepOf finds the step by its name: at the step index another file may have another one, of which
// nothing is said then.
func stepOf(m *fsm.Machine, p *v1alpha1.Phase, st *v1alpha1.MachineStatus) *Step {
	if st.Step == "" {
		return nil
	}
	s := &Step{Name: st.Step, Attempts: st.Attempts}
	if s.Attempts > 0 {
		s.NotBefore = instant(st.NotBefore)
	}
	if i := int(st.StepIndex); i < len(p.Steps) && program.StepName(p.Steps[i]) == st.Step {
		s.Number, s.Of, s.Does = i+1, len(p.Steps), does(m, p.Steps[i].Action)
	}
	return s
}

func history(st *v1alpha1.MachineStatus) []Transition {
	var all []Transition
	for _, t := range st.History {
		all = append(all, Transition{From: t.From, To: t.To, At: t.At.UTC(), Seconds: t.Took.Seconds(), Reason: t.Reason, Message: t.Message})
	}
	return all
}

// line are the phases that were passed, in the order in which each was left last, then the
// present one, then the way to success that is ahead. Each is there once.
func line(m *fsm.Machine, st *v1alpha1.MachineStatus) []Phase {
	present := cmp.Or(st.Phase, m.Definition().Spec.Initial)
	passed := slices.DeleteFunc(passed(m, st), func(name string) bool { return name == present })
	way := m.HappyPath()
	var all []Phase
	for _, name := range passed {
		all = append(all, Phase{Name: name, Visited: true, Beside: !slices.Contains(way, name)})
	}
	all = append(all, Phase{Name: present, Present: true, Visited: st.Phase != "", Beside: !slices.Contains(way, present)})
	for _, name := range ahead(m, present, passed) {
		if name != present && !slices.Contains(passed, name) {
			all = append(all, Phase{Name: name})
		}
	}
	return all
}

// passed are the phases that the object was in since it was made, or since a request led it
// out of an end: then it began anew. They are told from the history, which forgets the oldest:
// what is missing is taken from the way on which all goes well.
func passed(m *fsm.Machine, st *v1alpha1.MachineStatus) []string {
	history := st.History
	for i, t := range history {
		if phaseOf(m, t.From).Terminal != "" {
			history = history[i:]
		}
	}
	var names []string
	enter := func(name string) {
		name = renamed(m, name)
		names = slices.DeleteFunc(names, func(other string) bool { return other == name })
		names = append(names, name)
	}
	if len(history) > 0 && history[0].From != "" && phaseOf(m, history[0].From).Terminal == "" {
		way, first := m.HappyPath(), renamed(m, history[0].From)
		for _, name := range way[:max(1, slices.Index(way, first))] {
			enter(name)
		}
		enter(first)
	}
	for _, t := range history {
		enter(t.To)
	}
	return names
}

// renamed is the name that a phase has in this machine; that which it had where it is gone.
func renamed(m *fsm.Machine, name string) string {
	if u := m.Definition().Spec.Upgrade; u != nil && !slices.Contains(m.Phases(), name) {
		return cmp.Or(u.PhaseMap[name], name)
	}
	return name
}

// ahead is the way to success from the present phase; where the machine does not have it,
// from the last one that it has. A way that does not lead to success is not told.
func ahead(m *fsm.Machine, present string, passed []string) []string {
	from := present
	for i := len(passed) - 1; i >= 0 && m.PathFrom(from) == nil; i-- {
		from = passed[i]
	}
	way := m.PathFrom(from)
	if len(way) == 0 || phaseOf(m, from).Terminal != "" || phaseOf(m, from).Kind == v1alpha1.PhaseSteady {
		return nil
	}
	return way
}
