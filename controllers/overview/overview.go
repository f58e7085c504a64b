package overview

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/live"
	"github.com/phasegate/phasegate/fsm"
)

// Of makes the overview of a migration, by the machine that drives it. Where another
// revision drives it, what that machine does not have is left out. Orphans are not set.
func Of(m *fsm.Machine, dm live.Migration, now time.Time) Overview {
	st := dm.Status.Machine.DeepCopy()
	st.Phase = dm.CurrentPhase() // without a state, and on a CRD that is not ours, it is what there is
	phase := phaseOf(m, st.Phase)
	o := Overview{
		Name: dm.Name, Machine: m.Name(), Revision: st.Revision, Now: now.UTC(),
		Phase: st.Phase, Description: phase.Description, Phases: line(m, st),
		Since: instant(st.Since), Deadline: instant(st.Deadline), Message: dm.Status.Message,
		WhyNot: closed(&dm.Status), Held: held(m, st.Held), OnDelete: onDelete(m, st), Deleting: !dm.DeletionTimestamp.IsZero(),
		Lock: lockOf(&dm.Status, now), CopyAhead: dm.Status.CopyAhead,
		Conflicts: dm.Status.Conflicts, ConflictCount: conflictCount(&dm.Status), Conditions: dm.Status.Conditions,
		History: history(st), Note: dm.Note, Stale: dm.Stale,
	}
	o.Step = stepOf(m, &phase, st)
	o.Progress = progressOf(&dm.Status, now)
	o.Outcome = outcome(&phase, &o)
	o.Next = next(m, &o, resultOf(st))
	return o
}

// phaseOf answers a phase that says nothing where the machine has none of that name.
func phaseOf(m *fsm.Machine, name string) v1alpha1.Phase {
	all := m.Definition().Spec.Phases
	if i := slices.IndexFunc(all, func(p v1alpha1.Phase) bool { return p.Name == name }); i >= 0 {
		return all[i]
	}
	return v1alpha1.Phase{Name: name}
}

func instant(at *metav1.MicroTime) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}

func moment(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	utc := at.UTC()
	return &utc
}

// waiting are steps that take and copy nothing: an object that is stored in one waits there.
var waiting = []string{"Preflight", "Plan", "Validate", "DetectConflicts", "ObserveRollout"}

// closed are the ways on that are closed. Where the CRD of the object prunes what the
// manager writes about them, the message tells of a step that waits.
func closed(st *migrationv1.DatastoreMigrationStatus) []Closed {
	var all []Closed
	for _, b := range st.Machine.Blocked {
		all = append(all, Closed{To: b.To, Step: b.Step, Because: b.Because, Got: b.Got})
	}
	if step := st.Machine.Step; len(all) == 0 && st.Machine.OnDelete == "" && slices.Contains(waiting, step) {
		all = append(all, Closed{Step: step, Because: "the step is not done", Got: st.Message})
	}
	return all
}

// onDelete is the machine's word where the status does not have it: its CRD may prune it.
func onDelete(m *fsm.Machine, st *v1alpha1.MachineStatus) string {
	if text, known := m.OnDelete(*st); st.OnDelete == "" && st.Phase != "" && known {
		return text
	}
	return st.OnDelete
}

// held tells of each effect what gives it back: the release that was stored with it, else
// that of the machine.
func held(m *fsm.Machine, effects []v1alpha1.HeldEffect) []Held {
	var all []Held
	for _, stored := range effects {
		h := Held{Effect: stored.Name, Release: does(m, stored.Release)}
		for _, e := range m.Definition().Spec.Effects {
			if e.Name == stored.Name {
				h.Acquire, h.Release = does(m, e.Acquire), cmp.Or(h.Release, does(m, e.Release))
			}
		}
		all = append(all, h)
	}
	return all
}

// OrphansOf are the states of migrations that are gone.
func OrphansOf(m *fsm.Machine, states []live.Orphan) []Orphan {
	var all []Orphan
	for _, s := range states {
		o := Orphan{State: s.Name, Object: s.Spec.Object.Name, UID: s.Spec.Object.UID, Phase: s.Status.Phase, Held: held(m, s.Status.Held)}
		o.Next = "nothing is held: the manager removes the state"
		if len(o.Held) > 0 {
			o.Next = "what it holds is being given back by the manager, which then removes the state"
		}
		all = append(all, o)
	}
	return all
}

// does is the program's own sentence on an action.
func does(m *fsm.Machine, action string) string { return m.Bindings().Actions[action].Doc }

func stepOf(m *fsm.Machine, p *v1alpha1.Phase, st *v1alpha1.MachineStatus) *Step {
	if st.Step == "" {
		return nil
	}
	s := &Step{Name: st.Step, Attempts: st.Attempts}
	if s.Attempts > 0 {
		s.NotBefore = instant(st.NotBefore)
	}
	if i := int(st.Cursor); i < len(p.Steps) {
		s.Number, s.Of, s.Does = i+1, len(p.Steps), does(m, p.Steps[i].Action)
	}
	return s
}

func lockOf(st *migrationv1.DatastoreMigrationStatus, now time.Time) *Lock {
	if st.DatastoreLockedAt == nil {
		return nil
	}
	l := &Lock{Since: moment(st.DatastoreLockedAt), Seconds: now.Sub(st.DatastoreLockedAt.Time).Seconds()}
	if st.Lock != nil {
		l.Mode, l.Deadline = st.Lock.Mode, moment(st.Lock.Deadline)
	}
	return l
}

func conflictCount(st *migrationv1.DatastoreMigrationStatus) int32 {
	n := int32(len(st.Conflicts))
	if st.Progress != nil {
		n = max(n, st.Progress.Conflicts)
	}
	return n
}

func history(st *v1alpha1.MachineStatus) []Transition {
	var all []Transition
	for _, t := range st.History {
		all = append(all, Transition{From: t.From, To: t.To, At: t.At.UTC(), Seconds: t.Took.Seconds(), Reason: t.Reason, Message: t.Message})
	}
	return all
}

func progressOf(st *migrationv1.DatastoreMigrationStatus, now time.Time) *Progress {
	p := st.Progress
	if p == nil {
		return nil
	}
	out := &Progress{
		Total: int64(p.Total), Done: int64(p.Finished()), Conflicts: int64(p.Conflicts), NotCopied: p.NotCopied, OnlyInV3: p.OnlyInV3,
		Kinds: p.TotalTypes, KindsDone: p.CompletedTypes, Current: p.CurrentType,
	}
	for _, k := range p.ByKind() {
		out.PerKind = append(out.PerKind, KindProgress{Kind: k.Kind, Done: k.Done, Total: k.Total, Conflicts: conflictsOf(st, k.Kind)})
	}
	out.ObjectsPerSecond = float64(p.ObjectsPerSecond)
	if left := out.Total - out.Done - out.Conflicts; out.ObjectsPerSecond > 0 && left > 0 {
		end := now.UTC().Add(time.Duration(float64(left) / out.ObjectsPerSecond * float64(time.Second)))
		out.ExpectedEnd = &end
	}
	return out
}

func conflictsOf(st *migrationv1.DatastoreMigrationStatus, kind string) (n int64) {
	for _, d := range st.Progress.TypeDetails {
		if d.Kind == kind && d.Conflicts > 0 {
			return int64(d.Conflicts)
		}
	}
	for _, c := range st.Conflicts {
		if c.Kind == kind {
			n++
		}
	}
	return n
}

func outcome(p *v1alpha1.Phase, o *Overview) Outcome {
	switch {
	case p.Terminal == "success" && !o.Deleting:
		return Succeeded
	case p.Terminal == "failure" && !o.Deleting:
		return Failed
	case p.Kind == "waiting" && !p.Deletion, meta.IsStatusConditionTrue(o.Conditions, fsm.ConditionStalled), needsPerson(o):
		return WaitsForPerson
	}
	return Running
}

// needsPerson tells that a step has found something that only a person can mend. A roll-out
// is not among them: an operator may be at it.
func needsPerson(o *Overview) bool {
	return slices.ContainsFunc(o.WhyNot, func(c Closed) bool {
		return slices.Contains([]string{"Preflight", "Plan", "Validate", "DetectConflicts", "CopyResources"}, c.Step)
	})
}

// resultOf are the outputs of the present phase's steps. What cannot be read is none.
func resultOf(st *v1alpha1.MachineStatus) map[string]any {
	result := map[string]any{}
	_ = json.Unmarshal([]byte(st.Result), &result) // for advice only
	return result
}
