package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// What the view leaves out is nothing that a later pass has to know and cannot find.
func TestTrimAndBack(t *testing.T) {
	about := func(generations ...int64) *migrationv1.DatastoreMigration {
		dm := &migrationv1.DatastoreMigration{Status: migrationv1.DatastoreMigrationStatus{ObservedGeneration: 3}}
		for i, g := range generations {
			dm.Status.Conditions = append(dm.Status.Conditions, metav1.Condition{Type: string(rune('A' + i)), ObservedGeneration: g})
		}
		return dm
	}
	for name, c := range map[string]struct {
		why   string
		shape *Shape
		want  *migrationv1.DatastoreMigration
	}{
		"our CRD":     {"status.observedGeneration says it; a condition about another generation says its own", &Shape{machine: true}, about(0, 2)},
		"no shape":    {"everything is kept, as on ours", nil, about(0, 2)},
		"another CRD": {"it has no place for status.observedGeneration", &Shape{}, about(3, 2)},
	} {
		dm := about(3, 2)
		p := &pass[*migrationv1.DatastoreMigration]{shape: c.shape, by: &Reconciler[*migrationv1.DatastoreMigration]{
			Program: &Program[*migrationv1.DatastoreMigration]{Abridge: (*migrationv1.DatastoreMigration).Abridge}}}
		p.trim(dm)
		if diff := cmp.Diff(c.want, dm); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
		untrim(dm)
		if diff := cmp.Diff(about(3, 2), dm); diff != "" {
			t.Errorf("%s: as it is read (-want +got):\n%s", name, diff)
		}
	}
}

func TestTrimMachine(t *testing.T) {
	at := metav1.NowMicro()
	st := v1alpha1.MachineStatus{Name: "m", Revision: "r", PhaseRevision: "p", Phase: "P", Step: "s", StepIndex: 2, EnteredAt: &at, StepEnteredAt: &at, EnteredAs: "O", Generation: 1,
		TriedGeneration: 1, Attempts: 1, NotBefore: &at, Deadline: &at, Result: "{}", Held: v1alpha1.HeldEffects{{Name: "a", Release: "X", With: "{}"}},
		Requests: []v1alpha1.RequestStatus{{Name: "retry", Token: "2", Earlier: "1"}}}
	for range v1alpha1.HistoryShown + 2 {
		st.History = append(st.History, v1alpha1.Transition{To: "P"})
	}
	trimMachine(&st)
	want := v1alpha1.MachineStatus{Phase: "P", Step: "s", StepIndex: 2, Attempts: 1, NotBefore: &at, Deadline: &at, Result: "{}", Held: v1alpha1.Held("a"),
		Requests: []v1alpha1.RequestStatus{{Name: "retry", Token: "2"}}, History: make([]v1alpha1.Transition, v1alpha1.HistoryShown)}
	for i := range want.History {
		want.History[i].To = "P"
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Errorf("what is shown (-want +got):\n%s", diff)
	}
}

// On the CRD of Calico each conflict has a condition, whose time is that of the phase.
func TestConflictsAreSpreadOnAnotherCRD(t *testing.T) {
	at := metav1.NowMicro()
	dm := &migrationv1.DatastoreMigration{Status: migrationv1.DatastoreMigrationStatus{Machine: v1alpha1.MachineStatus{EnteredAt: &at}}}
	p := &pass[*migrationv1.DatastoreMigration]{shape: &Shape{repeats: true}}
	p.trim(dm)
	if dm.Status.Machine.EnteredAt == nil {
		t.Error("the time of the phase is gone before conditions are made of it")
	}
}
