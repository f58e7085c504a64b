package main

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
)

type migration = migrationv1.DatastoreMigration

// allHeld is what a migration has taken while it copies.
var allHeld = []string{"v1Lock", "apiService", "v3Lock", "v3Copies"}

// aheadHeld is what it has taken while it copies ahead of the lock.
var aheadHeld = []string{"v1Fence", "sideDoor", "v3Lock", "v3Copies"}

// plays are those that the tests of the alerts know by name.
var plays = []play{
	{"short-lock", "a migration locks for a minute and completes, with a manager standing by", shortLock},
	{"copied-ahead", "100,000 objects are copied ahead in 7 minutes, then locked for a minute", copiedAhead},
	{"long-lock", "a large copy holds the lock for 8 minutes, and the manager is replaced after 6", longLock},
	{"stuck", "a copy stops in the middle for 5 minutes, then an error leads to a rollback", stuck},
	{"restart", "the manager is away for a minute and a half while the lock is held", restart},
	{"absent", "the manager dies while the lock is held, its successor only stands by for 8 minutes", absent},
	{"uninstall", "a migration is aborted between two scrapes, and the chart is uninstalled", uninstall},
	{"crd-deleted", "somebody deletes the CRD of migrations while the lock is held", crdDeleted},
	{"conflicts", "conflicts under the lock wait for a person for 12 minutes", conflicts},
	{"conflicts-ahead", "a conflict found while objects are copied ahead waits for a person for 20 minutes", conflictsAhead},
	{"conflicts-soon-resolved", "conflicts found ahead of the lock are resolved after 5 minutes", conflictsSoonResolved},
	{"owners", "a migration is past the point of no return and two objects lack owners", owners},
	{"stalled", "an MCP server stalls for 8 minutes and is repaired", stalled},
	{"step-failing", "a step of an MCP server is forbidden again and again, and another fails twice and then succeeds", stepFailing},
	{"controller-restarting", "the controller of migrations ends by itself every 3 minutes", controllerRestarting},
	{"file-refused", "a machine file with a mistake is put beside the others and corrected after 5 minutes", fileRefused},
}

func (w *world) enter(dm *migration, phase string, held ...string) {
	dm.Status.Phase = phase
	dm.Status.Machine.Phase, dm.Status.Machine.EnteredAt, dm.Status.Machine.Held = phase, w.at(), v1alpha1.Held(held...)
	dm.Status.Machine.Step, dm.Status.Machine.StepIndex = "", 0
}

// copying is a migration that has the lock and begins to copy.
func (w *world) copying(total int32) *migration {
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: "one"}}
	w.enter(dm, "Migrating", allHeld...)
	locked := metav1.NewTime(w.now)
	dm.Status.DatastoreLockedAt, dm.Status.StartedAt = &locked, &locked
	dm.Status.Machine.Step, dm.Status.Machine.StepIndex = "CopyResources", 5
	dm.Status.Progress = &migrationv1.Progress{TotalTypes: 21, Total: total}
	return dm
}

// copies lets a migration copy n objects in each interval.
func (w *world) copies(m *manager, dm *migration, n int32, during time.Duration) error {
	for end := w.now.Add(during); w.now.Before(end); {
		dm.Status.Progress.Migrated += n
		w.stored(m, dm)
		if err := w.pass(interval); err != nil {
			return err
		}
	}
	return nil
}

// idles lets time go by for a migration that stands where it stood.
func (w *world) idles(m *manager, dm *migration, during time.Duration) error {
	w.stored(m, dm)
	return w.pass(during)
}

func shortLock(w *world) error {
	w.start("standby")
	m := w.lead("leader")
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: "one"}}
	w.enter(dm, "Pending")
	before := w.idles(m, dm, 5*time.Minute)
	dm = w.copying(40)
	copied := w.copies(m, dm, 10, time.Minute)
	w.enter(dm, "Converged")
	rollout := w.idles(m, dm, 20*time.Minute)
	w.enter(dm, "Complete")
	return errors.Join(before, copied, rollout, w.idles(m, dm, 20*time.Minute))
}

func longLock(w *world) error {
	m := w.lead("first")
	dm := w.copying(100000)
	copied := w.copies(m, dm, 1000, 6*time.Minute)
	w.kill("first")
	away := w.pass(time.Minute)
	m = w.lead("second")
	more := w.copies(m, dm, 1000, time.Minute)
	w.enter(dm, "Converged")
	return errors.Join(copied, away, more, w.idles(m, dm, 5*time.Minute))
}

func stuck(w *world) error {
	m := w.lead("leader")
	dm := w.copying(100)
	copied := w.copies(m, dm, 10, time.Minute)
	dm.Status.Machine.Attempts = 3 // an error and another try are no progress
	still := w.idles(m, dm, 5*time.Minute)
	w.enter(dm, "RollingBack", "v1Lock")
	back := w.idles(m, dm, time.Minute)
	w.enter(dm, "Failed")
	return errors.Join(copied, still, back, w.idles(m, dm, time.Minute))
}

func restart(w *world) error {
	m := w.lead("first")
	dm := w.copying(100)
	copied := w.copies(m, dm, 5, 75*time.Second)
	w.kill("first")
	away := w.pass(90 * time.Second)
	m = w.lead("second")
	more := w.copies(m, dm, 20, time.Minute)
	w.enter(dm, "Converged")
	return errors.Join(copied, away, more, w.idles(m, dm, 30*time.Minute))
}

func absent(w *world) error {
	m := w.lead("leader")
	dm := w.copying(100)
	copied := w.copies(m, dm, 10, time.Minute)
	w.kill("leader")
	w.start("standby")
	away := w.pass(8 * time.Minute)
	w.kill("standby")
	m = w.lead("standby")
	more := w.copies(m, dm, 20, time.Minute)
	w.enter(dm, "Converged")
	return errors.Join(copied, away, more, w.idles(m, dm, 5*time.Minute))
}

func uninstall(w *world) error {
	m := w.lead("leader")
	dm := w.copying(100)
	copied := w.copies(m, dm, 10, time.Minute)
	w.enter(dm, "Aborting")
	w.stored(m, dm)
	w.gone(m, dm)
	after := w.pass(time.Minute)
	w.kill("leader")
	return errors.Join(copied, after, w.pass(30*time.Minute))
}

func crdDeleted(w *world) error {
	m := w.lead("leader")
	dm := w.copying(100)
	copied := w.copies(m, dm, 10, time.Minute)
	w.gone(m, dm)
	m.gates.Running(migrationv1.CRDName).Set(0)
	return errors.Join(copied, w.pass(10*time.Minute))
}

func conflicts(w *world) error {
	m := w.lead("leader")
	dm := w.copying(100)
	copied := w.copies(m, dm, 24, time.Minute)
	w.enter(dm, "WaitingForConflictResolution", allHeld...)
	dm.Status.Progress.Conflicts = 4
	waiting := w.idles(m, dm, 12*time.Minute)
	dm.Status.Progress.Conflicts = 0
	w.enter(dm, "Migrating", allHeld...)
	again := w.idles(m, dm, time.Minute)
	w.enter(dm, "Converged")
	return errors.Join(copied, waiting, again, w.idles(m, dm, 5*time.Minute))
}

// ahead is a migration that copies while nothing of v1 is locked.
func (w *world) ahead(total int32) *migration {
	dm := w.copying(total)
	w.enter(dm, "Pending", aheadHeld...)
	dm.Status.DatastoreLockedAt = nil
	return dm
}

func copiedAhead(w *world) error {
	m := w.lead("leader")
	dm := w.ahead(100000)
	ahead := w.copies(m, dm, 3572, 7*time.Minute)
	w.enter(dm, "Migrating", append(aheadHeld, "v1Lock", "apiService")...)
	locked := metav1.NewTime(w.now)
	dm.Status.DatastoreLockedAt = &locked
	underLock := w.idles(m, dm, time.Minute)
	w.enter(dm, "Converged")
	dm.Status.DatastoreLockedAt = nil
	return errors.Join(ahead, underLock, w.idles(m, dm, 10*time.Minute))
}

func conflictsAhead(w *world) error {
	m := w.lead("leader")
	dm := w.ahead(100)
	copied := w.copies(m, dm, 24, time.Minute)
	w.enter(dm, "WaitingForConflictResolution", aheadHeld...)
	dm.Status.Progress.Conflicts = 1
	waiting := w.idles(m, dm, 20*time.Minute)
	dm.Status.Progress.Conflicts = 0
	w.enter(dm, "Pending", aheadHeld...)
	return errors.Join(copied, waiting, w.idles(m, dm, 2*time.Minute))
}

func conflictsSoonResolved(w *world) error {
	m := w.lead("leader")
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: "one"}}
	w.enter(dm, "WaitingForConflictResolution")
	dm.Status.Progress = &migrationv1.Progress{Total: 100, Conflicts: 4}
	waiting := w.idles(m, dm, 5*time.Minute)
	w.enter(dm, "Pending")
	dm.Status.Progress.Conflicts = 0
	return errors.Join(waiting, w.idles(m, dm, 15*time.Minute))
}

func owners(w *world) error {
	m := w.lead("first")
	dm := w.copying(100)
	copied := w.copies(m, dm, 25, time.Minute)
	dm.Status.Progress.OwnersWithheld = 2
	w.enter(dm, "Converged")
	rollout := w.idles(m, dm, 6*time.Minute)
	w.kill("first")
	m = w.lead("second") // which knows it from the status
	return errors.Join(copied, rollout, w.idles(m, dm, 6*time.Minute))
}

// serves is an MCP server in a phase, as the API server has it.
func (w *world) serves(m *manager, phase string, change func(*toolhivev1beta1.MCPServer)) {
	server := &toolhivev1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "fetch", UID: "two"}}
	server.Status.Machine.Phase, server.Status.Machine.EnteredAt = phase, w.at()
	change(server)
	m.machines.Stored(w.server(), server)
}

func stalled(w *world) error {
	m := w.lead("leader")
	condition := func(kind string) func(*toolhivev1beta1.MCPServer) {
		return func(s *toolhivev1beta1.MCPServer) {
			meta.SetStatusCondition(s.Conditions(), metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Played"})
		}
	}
	w.serves(m, "Ready", condition(fsm.ConditionReady))
	ready := w.pass(5 * time.Minute)
	w.serves(m, "Terminating", condition(fsm.ConditionStalled))
	stands := w.pass(8 * time.Minute)
	w.serves(m, "Ready", condition(fsm.ConditionReady))
	return errors.Join(ready, stands, w.pass(5*time.Minute))
}

func stepFailing(w *world) error {
	m := w.lead("leader")
	forbidden := fsm.Result{Err: errors.New("forbidden"), Class: fsm.ClassForbidden}
	unavailable := fsm.Result{Err: errors.New("unavailable"), Class: fsm.ClassUnavailable}
	for range 2 {
		m.machines.Did(w.migration(), "Verify", time.Second, unavailable)
	}
	m.machines.Did(w.migration(), "Verify", time.Second, fsm.Result{})
	var errs []error
	for attempts := range int32(24) {
		m.machines.Did(w.server(), "EnsureWorkload", time.Second, forbidden)
		w.serves(m, "Pending", func(s *toolhivev1beta1.MCPServer) { s.Status.Machine.Attempts = attempts + 1 })
		errs = append(errs, w.pass(30*time.Second))
	}
	w.serves(m, "Ready", func(*toolhivev1beta1.MCPServer) {})
	return errors.Join(append(errs, w.pass(20*time.Minute))...)
}

func controllerRestarting(w *world) error {
	m := w.lead("leader")
	var errs []error
	for range 6 {
		errs = append(errs, w.pass(3*time.Minute))
		m.gates.Restarts(migrationv1.CRDName).Inc()
	}
	return errors.Join(append(errs, w.pass(30*time.Minute))...)
}

// gone is what a controller does with an object that it does not find any more.
func (w *world) gone(m *manager, dm *migration) {
	key := types.NamespacedName{Name: dm.Name}
	m.machines.Gone(w.migration(), key)
	m.migrations.Gone(key)
}
