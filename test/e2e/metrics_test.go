package e2e

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// measured is a manager that serves its metrics.
type measured struct{ address string }

// managerMeasured starts a manager that serves its metrics without asking who reads.
func (w *world) managerMeasured(t *testing.T, args ...string) measured {
	t.Helper()
	address, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	w.manager(t, append([]string{"--metrics-bind-address", address, "--metrics-secure=false"}, args...)...)
	return measured{address}
}

func (m measured) scrape(t *testing.T) harness.Families {
	t.Helper()
	var all harness.Families
	harness.Eventually(t, "metrics", func() (err error) { // a manager listens a moment after it has started
		all, err = harness.Scrape(t.Context(), http.DefaultClient, "http://"+m.address)
		return err
	})
	return all
}

// outcomes are what Calico's counters say of objects.
func outcomes(f harness.Families) map[string]int {
	counts := map[string]int{}
	for _, outcome := range []string{"migrated", "skipped", "conflict"} {
		counts[outcome] = int(f.Sum("calico_migration_resources_total", "outcome", outcome))
	}
	return counts
}

// assertShowsConflict compares gauges with a migration that waits under the lock.
func assertShowsConflict(t *testing.T, f harness.Families, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	got := map[string]float64{}
	for _, name := range []string{"phasegate_migration_locked", "phasegate_migration_conflicts", "phasegate_migration_locked_since_timestamp_seconds"} {
		got[name] = f.Sum(name, "object", dm.Name)
	}
	got["phasegate_phase"] = f.Sum("phasegate_phase", "object", dm.Name, "phase", waiting)
	got["calico_migration_phase"] = f.Sum("calico_migration_phase", "phase", "waiting_for_conflict_resolution")
	want := map[string]float64{"phasegate_migration_locked": 1, "phasegate_migration_conflicts": 1,
		"phasegate_migration_locked_since_timestamp_seconds": float64(dm.Status.DatastoreLockedAt.Unix()), "phasegate_phase": 1, "calico_migration_phase": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics of a conflict under the lock (-want +got):\n%s", diff)
	}
}

// assertCounted compares what the counters gained with the status: two copies of a
// migration count each object once.
func assertCounted(t *testing.T, before, after harness.Families, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	gained := outcomes(after)
	for outcome, n := range outcomes(before) {
		gained[outcome] -= n
	}
	want := map[string]int{"migrated": int(dm.Status.Progress.Migrated), "skipped": int(dm.Status.Progress.Skipped), "conflict": 1}
	if diff := cmp.Diff(want, gained); diff != "" {
		t.Errorf("objects counted (-status +metrics):\n%s", diff)
	}
}
