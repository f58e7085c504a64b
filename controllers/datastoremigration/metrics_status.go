package datastoremigration

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
)

// calicoPhases are the phases of Calico's own controller, by what status.phase shows.
var calicoPhases = []struct{ name, shown string }{
	{"pending", migrationv1.PhasePending},
	{"migrating", migrationv1.PhaseMigrating},
	{"waiting_for_conflict_resolution", migrationv1.PhaseWaiting},
	{"converged", migrationv1.PhaseConverged},
	{"complete", migrationv1.PhaseComplete},
	{"failed", migrationv1.PhaseFailed},
}

// notCalicos stands for what Calico's own controller has no phase for: an abort.
const notCalicos = "-"

// calicoPhase is the one of these that a migration is in; empty before it is in any.
func calicoPhase(phase fsm.PhaseInfo, dm *migration) string {
	switch {
	case phase.Deletion && dm.Status.CompletedAt != nil:
		return migrationv1.PhaseComplete // it is cleaned up
	case phase.Deletion:
		return notCalicos
	case phase.Failing:
		return migrationv1.PhaseFailed
	}
	return cmp.Or(phase.Shown, dm.Status.Phase)
}

func migrationDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"object"}, more...), nil)
}

var (
	calicoPhaseDesc = prometheus.NewDesc("calico_migration_phase",
		"1 for the phase of a migration, else 0: pending, migrating, waiting_for_conflict_resolution, converged, complete or failed; all 0 during an abort.", []string{"phase"}, nil)
	lockedDesc = migrationDesc("phasegate_migration_locked",
		"1 while v1 is locked and v3 is not open yet, else 0. Meanwhile Calico does not change pod networking.")
	lockedSinceDesc = migrationDesc("phasegate_migration_locked_since_timestamp_seconds",
		"When the migration locked v1; absent while phasegate_migration_locked is 0.")
	progressDesc = migrationDesc("phasegate_migration_last_progress_timestamp_seconds",
		"When this process last saw progress: an object copied, a step done, another phase.")
	stateDesc = migrationDesc("phasegate_migration_objects",
		"Objects by state: remaining, migrated, skipped, terminating or conflict.", "state")
	kindsDesc     = migrationDesc("phasegate_migration_kinds", "Kinds by state: remaining or done.", "state")
	conflictsDesc = migrationDesc("phasegate_migration_conflicts", "Objects that differ between v1 and v3, and need your decision.")
	withheldDesc  = migrationDesc("phasegate_migration_owners_withheld",
		"Objects in v3 without their Calico owners, which are not copied yet, or do not exist.")
)

// state is what is shown of a status; another state is progress. It leaves out
// what moves while nothing is achieved: attempts, times of checks, messages.
type state struct {
	phase, step string
	calico      string
	noReturn    bool
	stepIndex   int32
	entered     time.Time

	locked      bool
	lockedSince time.Time

	total, migrated, skipped, terminating, conflicts, withheld int32
	kinds, kindsDone                                           int32
}

func stateOf(m *fsm.Machine, dm *migration) state {
	machine := &dm.Status.Machine
	phase := m.PhaseInfo(machine.Phase)
	s := state{phase: machine.Phase, calico: calicoPhase(phase, dm), noReturn: phase.NoReturn, step: machine.Step, stepIndex: machine.StepIndex}
	if machine.EnteredAt != nil {
		s.entered = machine.EnteredAt.UTC()
	}
	// v3 is closed from the first copy on, where nobody sees it: that locks nobody out before v1 is closed for good.
	if s.locked = isLocked(m, dm) || s.noReturn && m.Holds(machine, lockV3Action); s.locked {
		s.lockedSince = s.entered
		if at := dm.Status.DatastoreLockedAt; at != nil {
			s.lockedSince = at.UTC()
		}
	}
	if p := dm.Status.Progress; p != nil {
		s.total, s.migrated, s.skipped, s.terminating, s.conflicts, s.withheld = p.Total, p.Migrated, p.Skipped, p.Terminating, p.Conflicts, p.OwnersWithheld
		s.kinds, s.kindsDone = p.TotalTypes, p.CompletedTypes
	}
	return s
}

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{calicoPhaseDesc, lockedDesc, lockedSinceDesc, progressDesc, stateDesc, kindsDesc, conflictsDesc, withheldDesc} {
		to <- desc
	}
}

// Collect is part of prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	show := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	in := map[string]float64{}
	for name, known := range m.known {
		in[cmp.Or(known.state.calico, migrationv1.PhasePending)] = 1
		known.show(name, show)
	}
	if len(m.known) == 0 {
		return
	}
	for _, phase := range calicoPhases {
		show(calicoPhaseDesc, in[phase.shown], phase.name)
	}
}

func (k *measured) show(name string, show func(desc *prometheus.Desc, value float64, labels ...string)) {
	s := &k.state
	locked := 0.0
	if s.locked {
		locked = 1
		show(lockedSinceDesc, unix(s.lockedSince), name)
	}
	show(lockedDesc, locked, name)
	show(progressDesc, unix(k.moved), name)
	show(stateDesc, float64(max(0, s.total-s.migrated-s.skipped-s.terminating-s.conflicts)), name, "remaining")
	show(stateDesc, float64(s.migrated), name, "migrated")
	show(stateDesc, float64(s.skipped), name, "skipped")
	show(stateDesc, float64(s.terminating), name, "terminating")
	show(stateDesc, float64(s.conflicts), name, "conflict")
	show(kindsDesc, float64(s.kinds-s.kindsDone), name, "remaining")
	show(kindsDesc, float64(s.kindsDone), name, "done")
	show(conflictsDesc, float64(s.conflicts), name)
	show(withheldDesc, float64(s.withheld), name)
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
