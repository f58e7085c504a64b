package datastoremigration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/test/support/renamed"
)

type (
	status  = migrationv1.DatastoreMigrationStatus
	machine = v1alpha1.MachineStatus
)

// since is when the phases of these tests were entered.
var since = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func sinceMicro() *metav1.MicroTime { m := metav1.NewMicroTime(since); return &m }
func at(d time.Duration) *metav1.Time {
	m := metav1.NewTime(since.Add(d))
	return &m
}

func TestDecorate(t *testing.T) {
	failure := []v1alpha1.Transition{
		{From: "Migrating", To: "RollingBack", Reason: "ObjectsRejected", Message: "3 objects"},
		{From: "RollingBack", To: "Failed", Reason: "RolledBack"},
	}
	failed := metav1.Condition{Type: "Failed", Status: metav1.ConditionTrue, Reason: "MigrationError",
		Message: "ObjectsRejected: 3 objects", ObservedGeneration: 4, LastTransitionTime: *at(0)}
	conflict := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: "Conflict", Status: metav1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: 4, LastTransitionTime: *at(0)}
	}
	one := []migrationv1.Conflict{{Kind: "NetworkPolicy", Namespace: "shop", Name: "web"}}
	in := func(phase string, held ...string) machine {
		return machine{Phase: phase, EnteredAt: sinceMicro(), Held: v1alpha1.Held(held...)}
	}
	cases := map[string]struct {
		why    string
		in     status
		become func(*status) // nil: it stays as it is
	}{
		"nothing to say": {why: "a new object gets no field that says nothing"},
		"locked": {why: "the time of the lock stays as long as the ledger holds it",
			in: status{DatastoreLockedAt: at(-time.Minute), Machine: in("Migrating", "v1Lock")}},
		"unlocked": {why: "a time of locking on an open datastore alarms people, and would let a later release open a lock of somebody else",
			in:     status{DatastoreLockedAt: at(-time.Minute), Machine: in("Aborting", "apiService")},
			become: func(s *status) { s.DatastoreLockedAt = nil }},
		"complete": {why: "the time is that of the transition, not of this write",
			in:     status{Machine: in("Complete")},
			become: func(s *status) { s.CompletedAt = at(0) }},
		"complete, v1 still locked": {why: "v1 stays locked for good; nobody waits for it, and a time of locking would say so",
			in:     status{DatastoreLockedAt: at(-time.Minute), Machine: in("Complete")},
			become: func(s *status) { s.DatastoreLockedAt, s.CompletedAt = nil, at(0) }},
		"complete for long": {why: "it was completed once", in: status{CompletedAt: at(-time.Hour), Machine: in("Complete")}},
		"one conflict": {why: "the condition names an object, so that kubectl wait and describe are enough to begin",
			in: status{ObservedGeneration: 4, Conflicts: one, Machine: in("WaitingForConflictResolution")},
			become: func(s *status) {
				s.Conditions = []metav1.Condition{conflict("ResourceMismatch", "1 object differs between v1 and v3, the first is NetworkPolicy shop/web: edit or delete one side; status.conflicts lists all, `kubectl phasegate conflicts` has the commands")}
			}},
		"more conflicts than listed": {why: "the list is bounded: a reader must not take it for all",
			in: status{ObservedGeneration: 4, Conflicts: one, Progress: &migrationv1.Progress{Conflicts: 40}, Machine: in("")},
			become: func(s *status) {
				s.Conditions = []metav1.Condition{conflict("ConflictsOmitted", "40 objects differ between v1 and v3: edit or delete one side; status.conflicts lists 1 of them, `kubectl phasegate conflicts` lists all and has the commands")}
			}},
		"conflicts resolved": {why: "a condition that is over goes",
			in:     status{ObservedGeneration: 4, Conditions: []metav1.Condition{conflict("ResourceMismatch", "")}, Machine: in("Migrating")},
			become: func(s *status) { s.Conditions = []metav1.Condition{} }},
		"failed": {why: "the cause is that of the rollback, not that of its end",
			in:     status{ObservedGeneration: 4, Machine: machine{Phase: "Failed", EnteredAt: sinceMicro(), History: failure}},
			become: func(s *status) { s.Conditions = []metav1.Condition{failed} }},
		"retried": {why: "history keeps the failure, the conditions are about now",
			in:     status{ObservedGeneration: 4, Conditions: []metav1.Condition{failed}, Machine: machine{Phase: "Pending", EnteredAt: sinceMicro(), History: failure}},
			become: func(s *status) { s.Conditions = []metav1.Condition{} }},
		"edited by hand": {why: "a status that lost a field must not bring the manager down",
			in: status{Conflicts: one, Machine: machine{Phase: "Failed", History: failure}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for file, m := range files(t) {
				dm := as(file, &migration{Status: c.in})
				want := dm.DeepCopy().Status
				if c.become != nil {
					c.become(&want)
				}
				for i, cond := range want.Conditions {
					if cond.Type == migrationv1.ConditionFailed && file == "renamed" {
						want.Conditions[i].Message = renamed.Prefix + cond.Message
					}
				}
				for _, turn := range []string{"first", "second"} {
					decorate(m, dm)
					if diff := cmp.Diff(want, dm.Status); diff != "" {
						t.Errorf("%s file, %s time, %s (-want +got):\n%s", file, turn, c.why, diff)
					}
				}
			}
		})
	}
}

func TestProgressOf(t *testing.T) {
	kind := func(name string, c copier.Counts) copier.KindProgress {
		return copier.KindProgress{Kind: name, Counts: c}
	}
	progress := copier.Progress{
		Counts: copier.Counts{Total: 20, Done: 12, Created: 4, Updated: 2, Kept: 1, AlreadyEqual: 3, Terminating: 1, Conflicts: 1},
		Kinds: []copier.KindProgress{
			kind("Tier", copier.Counts{Total: 4, Done: 4, Created: 3, Kept: 1}),
			kind("IPPool", copier.Counts{}),
			kind("NetworkPolicy", copier.Counts{Total: 2, Done: 2, Created: 1, Conflicts: 1}),
			kind("NetworkSet", copier.Counts{Total: 10, Done: 6, Updated: 1, Kept: 1, AlreadyEqual: 3, Terminating: 1}),
			kind("HostEndpoint", copier.Counts{Total: 4}),
		},
	}
	want := &migrationv1.Progress{
		TotalTypes: 5, CompletedTypes: 3, TypeProgress: "3 / 5", CurrentType: "NetworkSet",
		Total: 20, Migrated: 7, Skipped: 3, Terminating: 1, Conflicts: 1, Objects: "11/20",
		Kinds: "Tier=4/4 NetworkPolicy=2/2,conflicts=1 NetworkSet=6/10 HostEndpoint=0/4",
		TypeDetails: []migrationv1.TypeProgress{ // what is done needs no line, and the conflict has its own
			{Kind: "NetworkSet", Migrated: 2, Skipped: 3, Terminating: 1},
		},
	}
	if diff := cmp.Diff(want, progressOf(progress)); diff != "" {
		t.Errorf("the peer's fields (-want +got):\n%s", diff)
	}

	progress.Conflicts = migrationv1.MaxConflicts + 1
	want.Conflicts = migrationv1.MaxConflicts + 1
	want.TypeDetails = append([]migrationv1.TypeProgress{{Kind: "NetworkPolicy", Migrated: 1, Conflicts: 1}}, want.TypeDetails...)
	if diff := cmp.Diff(want, progressOf(progress)); diff != "" {
		t.Errorf("where not every conflict is listed (-want +got):\n%s", diff)
	}
}

// A plan has looked at everything and copied nothing: progress that began at its
// end would go back when the copy starts.
func TestPlannedProgressIsNoProgress(t *testing.T) {
	got := plannedProgress(copier.Plan{Total: 3, Kinds: []copier.KindProgress{
		{Kind: "Tier", Counts: copier.Counts{Total: 2, Done: 2, Planned: 1, Rejected: 1}},
		{Kind: "IPPool", Counts: copier.Counts{Total: 1, Done: 1, Planned: 1}},
	}})
	want := &migrationv1.Progress{TotalTypes: 2, TypeProgress: "0 / 2", CurrentType: "Tier", Total: 3, Objects: "0/3", Kinds: "Tier=0/2 IPPool=0/1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a plan (-want +got):\n%s", diff)
	}
}

// A copy that goes on tells no less than the one before.
func TestProgressKeepsWhatIsOnlyInV3(t *testing.T) {
	dm := &migration{}
	dm.Status.Progress = &migrationv1.Progress{OnlyInV3: "Tier old", OwnersWithheld: 2, NotCopied: "Tier web: being deleted in v1"}
	showProgress(dm, copier.Progress{}, time.Second, "Copying")
	want := &migrationv1.Progress{OnlyInV3: "Tier old", OwnersWithheld: 2, NotCopied: "Tier web: being deleted in v1",
		ObjectsPerSecond: 1, TypeProgress: "0 / 0", Objects: "0/0"}
	if diff := cmp.Diff(want, dm.Status.Progress); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	dm.Status.Machine.Phase = "Complete"
	decorate(shippedMachine(t), dm)
	if dm.Status.Progress.OnlyInV3 != "" {
		t.Errorf("v3 has been open for long: %q", dm.Status.Progress.OnlyInV3)
	}
}

func TestNotCopied(t *testing.T) {
	many := []copier.Skipped{{Kind: "NetworkSet", Namespace: "shop", Name: "a", Why: copier.SkippedEqual}, {Kind: "Tier", Name: "web", Why: copier.SkippedTerminating}}
	want := "Tier web: being deleted in v1; NetworkSet shop/a: in v3 already, with the same content"
	if diff := cmp.Diff(want, notCopied(many)); diff != "" {
		t.Errorf("what a person may not know comes first (-want +got):\n%s", diff)
	}
	for range migrationv1.MaxNamed {
		many = append(many, many[0])
	}
	if got := notCopied(many); strings.Count(got, "; ") != migrationv1.MaxNamed || !strings.HasSuffix(got, "; and 2 more") {
		t.Errorf("it is not bounded: %q", got)
	}
}

func TestSetConflictsIsBounded(t *testing.T) {
	many := make([]copier.Conflict, migrationv1.MaxConflicts+8)
	for i := range many {
		many[i] = copier.Conflict{Kind: "NetworkSet", Name: fmt.Sprintf("n%02d", i)}
	}
	for range migrationv1.MaxConflictFields + 4 {
		many[0].Fields = append(many[0].Fields, resources.FieldDiff{Path: strings.Repeat("€", migrationv1.MaxConflictFieldLength), Want: "1", Have: "2"})
	}
	many[1].Fields = []resources.FieldDiff{{Path: "spec.nets", Want: "a", Have: "b"}}
	dm := &migration{}
	setConflicts(dm, many)

	list := dm.Status.Conflicts
	if len(list) != migrationv1.MaxConflicts || dm.Status.Progress.Conflicts != int32(len(many)) {
		t.Errorf("%d listed, %d counted, want %d and %d", len(list), dm.Status.Progress.Conflicts, migrationv1.MaxConflicts, len(many))
	}
	if len(list[0].Fields) != migrationv1.MaxConflictFields || len([]rune(list[0].Fields[0])) != migrationv1.MaxConflictFieldLength {
		t.Errorf("%d fields, the first of %d characters", len(list[0].Fields), len([]rune(list[0].Fields[0])))
	}
	want := migrationv1.Conflict{Kind: "NetworkSet", Name: "n01", Fields: []string{"spec.nets: a in v1, b in v3"}}
	if diff := cmp.Diff(want, list[1]); diff != "" {
		t.Errorf("a conflict (-want +got):\n%s", diff)
	}

	setConflicts(dm, nil)
	if diff := cmp.Diff(status{Progress: &migrationv1.Progress{}}, dm.Status); diff != "" {
		t.Errorf("after they were resolved (-want +got):\n%s", diff)
	}
}

func TestExamplesAreBounded(t *testing.T) {
	cases := map[string]struct {
		why   string
		items int
		want  []string
	}{
		"none":         {why: "an empty list, not null: the file asks for its size", want: []string{}},
		"as many":      {why: "nothing is left out and nothing said of it", items: 5, want: []string{"0", "1", "2", "3", "4"}},
		"one too many": {why: "the rest is counted", items: 6, want: []string{"0", "1", "2", "3", "4", "and 1 more"}},
		"many":         {why: "the rest is counted", items: 5000, want: []string{"0", "1", "2", "3", "4", "and 4995 more"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			items := make([]int, c.items)
			for i := range items {
				items[i] = i
			}
			if diff := cmp.Diff(c.want, examples(items, func(i int) string { return fmt.Sprint(i) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestProgressNeverGoesBack(t *testing.T) {
	dm := &migration{}
	showProgress(dm, copier.Progress{Counts: copier.Counts{Total: 10, Done: 8, Created: 8}}, time.Second, "Copying")
	showProgress(dm, copier.Progress{Counts: copier.Counts{Total: 10, Done: 2, Kept: 2}}, time.Second, "Copying")
	if dm.Status.Progress.Objects != "8/10" || dm.Status.Message != "Copying again: 2 of 10 objects, 0 / 0 types" {
		t.Errorf("after a conflict everything is looked at again; people would take 2 after 8 for a loss: %s, %q",
			dm.Status.Progress.Objects, dm.Status.Message)
	}
	showProgress(dm, copier.Progress{Counts: copier.Counts{Total: 10, Done: 10, Created: 2, Kept: 8}}, 2*time.Second, "Copying")
	if p := dm.Status.Progress; p.Objects != "10/10" || p.ObjectsPerSecond != 5 {
		t.Errorf("then it goes on: %s at %d a second, want 10/10 at 5", p.Objects, p.ObjectsPerSecond)
	}
}

// What the API server refuses is told while the rest is copied, which may take an hour.
func TestARefusalIsToldAtOnce(t *testing.T) {
	dm := &migration{}
	problem := resources.Problem{Kind: "Tier", Name: "a", Message: "refused by the API server: too long", Remedy: "change it"}
	showProgress(dm, copier.Progress{Counts: copier.Counts{Total: 10, Done: 4, Created: 2, Rejected: 2}, Problem: &problem}, time.Second, "Copying ahead")
	want := "Copying ahead: 4 of 10 objects, 0 / 0 types; 2 cannot be copied, the first: " + problem.Error()
	if diff := cmp.Diff(want, dm.Status.Message); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestARateEndsWithTheCopy(t *testing.T) {
	dm := &migration{}
	dm.Status.Progress = &migrationv1.Progress{Objects: "10/10", ObjectsPerSecond: 5}
	showVerified(dm, nil)
	if rate := dm.Status.Progress.ObjectsPerSecond; rate != 5 {
		t.Errorf("both sides differ: a rate of %d, want 5, the copy goes on", rate)
	}
	showVerified(dm, &migrationv1.Verified{Digests: "Tier=1:a"})
	if p := dm.Status.Progress; p.Objects != "10/10" || p.ObjectsPerSecond != 0 {
		t.Errorf("both sides are equal: %s at %d a second, want 10/10 and no rate", p.Objects, p.ObjectsPerSecond)
	}
}

func TestWhoResolvesAConflict(t *testing.T) {
	all := []copier.Conflict{{Name: "theirs", Cause: copier.CauseUnmanaged}, {Name: "edited", Cause: copier.CauseEdited},
		{Name: "going", Cause: copier.CauseTerminating}, {Name: "old", Cause: copier.CauseStale}}
	people, others := forPeople(all)
	if diff := cmp.Diff([][]copier.Conflict{all[:2], all[2:]}, [][]copier.Conflict{people, others}); diff != "" {
		t.Errorf("a copy that is being deleted passes by itself, and an old one is copied again (-want +got):\n%s", diff)
	}
}
