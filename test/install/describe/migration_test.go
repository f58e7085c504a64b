package describe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/runner"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }

func micro(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: noon.Add(d)} }

// condition is one as the runner and the program set it.
func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "what is waited for, and what is to be done", LastTransitionTime: *at(0), ObservedGeneration: 2}
}

// migration is one in a phase that it has entered after n transitions, with all that a copy of every kind can leave.
func migration(phase, step string, transitions int) *migrationv1.DatastoreMigration {
	dm := &migrationv1.DatastoreMigration{
		TypeMeta: metav1.TypeMeta{APIVersion: "migration.projectcalico.org/v1", Kind: "DatastoreMigration"},
		ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u", ResourceVersion: "1", Generation: 2, CreationTimestamp: *at(0),
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}, Finalizers: []string{"migration.projectcalico.org/v1-crd-cleanup"}},
		Spec: migrationv1.DatastoreMigrationSpec{Type: migrationv1.APIServerToCRDs},
		Status: migrationv1.DatastoreMigrationStatus{
			Phase: phase, Message: "what is waited for, and what is to be done", ObservedGeneration: 2,
			Conditions: []metav1.Condition{condition("Ready", metav1.ConditionFalse, phase), condition("Reconciling", metav1.ConditionTrue, phase)},
			Progress: &migrationv1.Progress{TotalTypes: 21, CompletedTypes: 21, TypeProgress: "21 / 21", Objects: "239/240", ObjectsPerSecond: 35,
				Total: 240, Migrated: 230, Skipped: 9, NotCopied: "Tier default: in v3 already", OnlyInV3: "Tier left", OwnersWithheld: 3,
				Kinds: "Tier=7/7", TypeDetails: []migrationv1.TypeProgress{{Kind: "Tier", Migrated: 1}, {Kind: "IPPool", Migrated: 1, Conflicts: 2}}},
			Machine: v1alpha1.MachineStatus{
				Name: "datastore-migration", Revision: "sha256:a", PhaseRevision: "sha256:b", Phase: phase, Step: step, StepIndex: 4, EnteredAt: micro(0), Generation: 1, Deadline: micro(24 * time.Hour),
				Result: `{"conflicts":1}`, Requests: []v1alpha1.RequestStatus{{Name: "retry", Token: "1", Earlier: "2"}},
				OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionTransition, To: "Aborting"},
			},
		},
	}
	if step != "" {
		dm.Status.Machine.Blocked = v1alpha1.BlockedWays{{Step: step, Guard: "result.conflicts == 0", Value: "result.conflicts = 1"}}
	}
	for range transitions {
		dm.Status.Machine.History = append(dm.Status.Machine.History, v1alpha1.Transition{From: "Pending", To: phase, At: *micro(0), Reason: "Because"})
	}
	return dm
}

func holds(dm *migrationv1.DatastoreMigration, names ...string) {
	for _, name := range names {
		dm.Status.Machine.Held = append(dm.Status.Machine.Held, v1alpha1.HeldEffect{Name: name, Release: "Undo", With: `{"name":"default"}`})
	}
}

// inConflict adds what a person has to decide of 32 objects.
func inConflict(dm *migrationv1.DatastoreMigration) {
	for i := range migrationv1.MaxConflicts {
		dm.Status.Conflicts = append(dm.Status.Conflicts, migrationv1.Conflict{Kind: "NetworkPolicy", Namespace: "shop", Name: fmt.Sprint("web-", i), Fields: []string{"spec.order: 1 in v1, 2 in v3", "spec.tier: a in v1, b in v3"}})
	}
	dm.Status.Progress.Conflicts = 40
	dm.Status.Machine.StepIndex = 0
	dm.Status.Conditions = append(dm.Status.Conditions, condition("Conflict", metav1.ConditionTrue, "ConflictsOmitted"))
}

func locked(dm *migrationv1.DatastoreMigration) {
	dm.Status.DatastoreLockedAt, dm.Status.StartedAt = at(0), at(0)
	dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockEnforced, Deadline: at(30 * time.Minute)}
}

func verified(dm *migrationv1.DatastoreMigration) {
	dm.Status.StartedAt, dm.Status.Verified = at(0), &migrationv1.Verified{At: *at(0), Revision: 7, Digests: "Tier=7:a"}
}

// Every state of a migration is read at a glance.
func TestMigration(t *testing.T) {
	everything := []string{"v1Fence", "sideDoor", "dependents", "v1Lock", "v1Owners", "apiService", "v3Lock", "v3Copies"}
	for name, c := range map[string]struct {
		why         string
		phase, step string
		transitions int
		events      int
		kstatus     status.Status
		make        func(*migrationv1.DatastoreMigration)
	}{
		"missing right": {"nothing is held yet", "Pending", "Preflight", 1, 2, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) { dm.Status.Progress = nil }},
		"copying ahead": {"a copy is on its way", "Pending", "CopyResources", 1, 2, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) {
			dm.Status.Progress.CurrentType = "Tier"
			dm.Status.CopyAhead = &migrationv1.CopyAhead{State: migrationv1.CopyAheadOpen, Message: "m", Round: 1, Changed: 2, ExpectedLockSeconds: 3}
			holds(dm, "v1Fence", "sideDoor", "v3Lock", "v3Copies")
		}},
		"a conflict": {"before the lock", "WaitingForConflictResolution", "DetectConflicts", 2, 4, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) {
			inConflict(dm)
			dm.Status.CopyAhead = &migrationv1.CopyAhead{State: migrationv1.CopyAheadOpen, Message: "m", Round: 1, Changed: 2, ExpectedLockSeconds: 3}
			holds(dm, "v1Fence", "sideDoor", "v3Lock", "v3Copies")
		}},
		"a conflict under the lock": {"the cluster waits", "WaitingForConflictResolution", "DetectConflicts", 3, 3, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) {
			inConflict(dm)
			locked(dm)
			holds(dm, everything...)
		}},
		"copying under the lock": {"the cluster waits", "Migrating", "CopyResources", 2, 3, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) {
			dm.Status.Progress.CurrentType, dm.Status.Machine.Blocked = "Tier", nil
			locked(dm)
			holds(dm, everything...)
		}},
		"a failure": {"everything was released", "Failed", "", 16, 6, status.FailedStatus, func(dm *migrationv1.DatastoreMigration) {
			dm.Status.Conditions = append(dm.Status.Conditions[:1], condition("Stalled", metav1.ConditionTrue, "Failed"), condition("Failed", metav1.ConditionTrue, "MigrationError"))
			dm.Status.Progress = nil
		}},
		"not rolled out": {"calico-node does not run on v3 yet", "Converged", "ObserveRollout", 3, 4, status.InProgressStatus, func(dm *migrationv1.DatastoreMigration) {
			verified(dm)
			dm.Status.Machine.OnDelete = &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionHold, Message: "Converged cannot be rolled back"}
		}},
		"complete": {"at its end", "Complete", "", 4, 6, status.CurrentStatus, func(dm *migrationv1.DatastoreMigration) {
			verified(dm)
			dm.Status.CompletedAt = at(0)
			dm.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionTrue, "RolledOut")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dm := migration(c.phase, c.step, c.transitions)
			c.make(dm)
			runner.Abridged(&runner.Program[*migrationv1.DatastoreMigration]{Abridge: (*migrationv1.DatastoreMigration).Abridge}, dm)
			assertFits(t, dm, c.events, describeLimit)
			assertKstatus(t, dm, c.kstatus)
		})
	}
}

// assertKstatus: Helm, Flux and Argo CD wait for what is left, too.
func assertKstatus(t *testing.T, dm *migrationv1.DatastoreMigration, want status.Status) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dm)
	if err != nil {
		t.Fatal(err)
	}
	got, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil || got.Status != want {
		t.Errorf("kstatus says %v, %v, want %s", got, err, want)
	}
}

// What people act on is there, and what they need not see is not.
func TestMigrationInConflict(t *testing.T) {
	dm := migration("WaitingForConflictResolution", "DetectConflicts", 3)
	inConflict(dm)
	locked(dm)
	holds(dm, "v1Fence", "v1Lock", "v3Copies")
	dm.Status.Conflicts = dm.Status.Conflicts[:2]
	runner.Abridged(&runner.Program[*migrationv1.DatastoreMigration]{Abridge: (*migrationv1.DatastoreMigration).Abridge}, dm)
	var got []string
	for _, line := range described(t, dm, 0) {
		for _, field := range []string{"conflicts NetworkPolicy", "blocked", "held", " v1Fence", "deadline", "onDelete", "type ", "lock"} {
			if strings.HasPrefix(line, field) {
				got = append(got, line)
			}
		}
	}
	want := []string{
		"type Ready", "type Conflict",
		"conflicts NetworkPolicy shop/web-0: spec.order: 1 in v1, 2 in v3; spec.tier: a in v1, b in v3 | NetworkPolicy shop/web-1: spec.order: 1 in v1, 2 in v3; spec.tier: a in v1, b in v3",
		"blocked step DetectConflicts: result.conflicts == 0; seen: result.conflicts = 1",
		"deadline 2026-03-04T12:30:00.000000Z", "held:", " v1Fence, v1Lock, v3Copies", "onDelete → Aborting", "type APIServerToCRDs",
	}
	less := cmp.Transformer("set", func(all []string) map[string]int {
		set := map[string]int{}
		for _, one := range all {
			set[one]++
		}
		return set
	})
	if diff := cmp.Diff(want, got, less); diff != "" {
		t.Errorf("what is shown (-want +got):\n%s", diff)
	}
}

// A server that has restarted often, with every condition of a stdio server that is not ready.
func TestServer(t *testing.T) {
	srv := &toolhivev1beta1.MCPServer{
		TypeMeta: metav1.TypeMeta{APIVersion: "toolhive.stacklok.dev/v1beta1", Kind: "MCPServer"},
		ObjectMeta: metav1.ObjectMeta{Name: "fetch", Namespace: "tools", UID: "u", ResourceVersion: "1", Generation: 2, CreationTimestamp: *at(0),
			Annotations: map[string]string{"a": "b"}, Finalizers: []string{"phasegate.dev/mcpserver"}},
		Spec: toolhivev1beta1.MCPServerSpec{Image: "example.com/fetch", Transport: "stdio", ProxyMode: "sse"},
		Status: toolhivev1beta1.MCPServerStatus{Phase: "Failed", Message: "the image cannot be pulled", ObservedGeneration: 2, URL: "http://x", ReadyReplicas: 1,
			Conditions: []metav1.Condition{condition("Ready", metav1.ConditionFalse, "NotReady"), condition("Reconciling", metav1.ConditionTrue, "Failed"), condition("StdioReplicaCapped", metav1.ConditionTrue, "a"),
				condition("SessionStorageWarning", metav1.ConditionFalse, "a"), condition("RateLimitConfigValid", metav1.ConditionTrue, "a")},
			Machine: v1alpha1.MachineStatus{Name: "mcpserver", Revision: "r", PhaseRevision: "r", Phase: "Failed", Step: "ObserveWorkload", StepIndex: 2, EnteredAt: micro(0), Deadline: micro(0), Result: "{}", Attempts: 3,
				NotBefore: micro(0), Held: v1alpha1.Held("workload"), Blocked: v1alpha1.BlockedWays{{Step: "ObserveWorkload", Guard: "error, attempt 3", Value: "the image cannot be pulled"}},
				OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionTransition, To: "Terminating"}, Requests: []v1alpha1.RequestStatus{{Name: "restart", Token: "1", Earlier: "2"}}}},
	}
	for range v1alpha1.HistoryLimit {
		srv.Status.Machine.History = append(srv.Status.Machine.History, v1alpha1.Transition{From: "Ready", To: "Failed", At: *micro(0), Reason: "Because"})
	}
	runner.Abridged(&runner.Program[*toolhivev1beta1.MCPServer]{Abridge: (*toolhivev1beta1.MCPServer).Abridge}, srv)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(srv)
	if err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(content, "spec", "resources") // which nobody writes empty
	assertFits(t, content, 4, serverLimit)
}
