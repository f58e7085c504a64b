package datastoremigration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources/copier"
)

// gauge is a process that measures, with a clock in the test's hands.
type gauge struct {
	*Metrics
	registry *prometheus.Registry
	at       time.Time
}

func newGauge() *gauge {
	g := &gauge{registry: prometheus.NewRegistry(), at: since}
	g.Metrics = NewMetrics(g.registry, func() time.Time { return g.at })
	return g
}

// shows are the series that are not 0 of families whose names begin so, without
// the beginning: "family{values of labels}", but for the name of the one object. A
// histogram shows its sum.
func (g *gauge) shows(t *testing.T, prefix string) map[string]float64 {
	t.Helper()
	families, err := g.registry.Gather()
	must(t, err)
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, is := strings.CutPrefix(f.GetName(), prefix)
			if value := valueOf(m); is && value != 0 {
				shown[name+labelsOf(m)] = value
			}
		}
	}
	return shown
}

func labelsOf(m *dto.Metric) string {
	var values []string
	for _, l := range m.GetLabel() {
		if l.GetName() != "object" {
			values = append(values, l.GetValue())
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "{" + strings.Join(values, ",") + "}"
}

func valueOf(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
}

func TestGaugesOfAStatus(t *testing.T) {
	lockedAt := float64(since.Add(-time.Minute).Unix())
	entered, now := float64(since.Unix()), float64(since.Unix())
	cases := map[string]struct {
		why  string
		in   status
		want map[string]float64
	}{
		"new": {why: "nothing is locked before anything is known",
			want: map[string]float64{"calico_migration_phase{pending}": 1, "phasegate_migration_last_progress_timestamp_seconds": now}},
		"copying": {why: "what operating needs, from the status alone",
			in: status{Phase: "Migrating", DatastoreLockedAt: at(-time.Minute), Machine: machine{Phase: "Migrating", EnteredAt: sinceMicro(), Held: v1alpha1.Held("v1Lock", "v3Lock")},
				Progress: &migrationv1.Progress{Total: 10, Migrated: 5, Skipped: 2, Conflicts: 1, OwnersWithheld: 3, TotalTypes: 21, CompletedTypes: 4}},
			want: map[string]float64{"calico_migration_phase{migrating}": 1, "phasegate_migration_last_progress_timestamp_seconds": now,
				"phasegate_migration_locked": 1, "phasegate_migration_locked_since_timestamp_seconds": lockedAt,
				"phasegate_migration_objects{remaining}": 2, "phasegate_migration_objects{migrated}": 5, "phasegate_migration_objects{skipped}": 2, "phasegate_migration_objects{conflict}": 1,
				"phasegate_migration_kinds{remaining}": 17, "phasegate_migration_kinds{done}": 4, "phasegate_migration_conflicts": 1, "phasegate_migration_owners_withheld": 3}},
		"copying ahead": {why: "v3 is closed, where nobody sees it; v1, which Calico runs on, is open",
			in:   status{Phase: "Pending", Machine: machine{Phase: "Pending", EnteredAt: sinceMicro(), Held: v1alpha1.Held("v1Fence", "sideDoor", "v3Lock", "v3Copies")}},
			want: map[string]float64{"calico_migration_phase{pending}": 1, "phasegate_migration_last_progress_timestamp_seconds": now}},
		"v1 released": {why: "the lock of v3 goes later, and nobody waits for that",
			in:   status{Phase: "Failed", Machine: machine{Phase: "RollingBack", EnteredAt: sinceMicro(), Held: v1alpha1.Held("v1Fence", "sideDoor", "v3Lock", "v3Copies")}},
			want: map[string]float64{"calico_migration_phase{failed}": 1, "phasegate_migration_last_progress_timestamp_seconds": now}},
		"about to lock": {why: "the ledger says it before the deed, and a crash in between must not hide a lock",
			in: status{Phase: "Migrating", Machine: machine{Phase: "Migrating", EnteredAt: sinceMicro(), Held: v1alpha1.Held("v1Lock")}},
			want: map[string]float64{"calico_migration_phase{migrating}": 1, "phasegate_migration_last_progress_timestamp_seconds": now,
				"phasegate_migration_locked": 1, "phasegate_migration_locked_since_timestamp_seconds": entered}},
		"past the point of no return": {why: "v1 is locked for good and nobody waits for it, but v3 is not open yet",
			in: status{Phase: "Converged", Machine: machine{Phase: "Converged", EnteredAt: sinceMicro(), Held: v1alpha1.Held("v3Lock")}},
			want: map[string]float64{"calico_migration_phase{converged}": 1, "phasegate_migration_last_progress_timestamp_seconds": now,
				"phasegate_migration_locked": 1, "phasegate_migration_locked_since_timestamp_seconds": entered}},
		"rejected": {why: "another migration is active: shown as the machine file says",
			in:   status{Phase: "Failed", Machine: machine{Phase: "Rejected", EnteredAt: sinceMicro()}},
			want: map[string]float64{"calico_migration_phase{failed}": 1, "phasegate_migration_last_progress_timestamp_seconds": now}},
		"aborting": {why: "Calico's controller has no phase for it",
			in:   status{Phase: "Aborting", Machine: machine{Phase: "Aborting", EnteredAt: sinceMicro()}},
			want: map[string]float64{"phasegate_migration_last_progress_timestamp_seconds": now}},
	}
	machines := files(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for file, m := range machines {
				g := newGauge()
				dm := as(file, &migration{Status: c.in})
				dm.Name, dm.UID = "v1-to-v3", "one"
				g.Stored(m, dm)
				if diff := cmp.Diff(c.want, g.shows(t, "")); diff != "" {
					t.Errorf("%s file: %s (-want +got):\n%s", file, c.why, diff)
				}
				g.Gone(types.NamespacedName{Name: dm.Name})
				if diff := cmp.Diff(map[string]float64{}, g.shows(t, "")); diff != "" {
					t.Errorf("%s file: an object that is gone (-want +got):\n%s", file, diff)
				}
			}
		})
	}
}

// A look that finds nothing new, an error and another try are no progress; a
// copied object is, also while the status does not tell it yet.
func TestProgressIsNotEveryWrite(t *testing.T) {
	g, m := newGauge(), shippedMachine(t)
	dm := &migration{Status: status{Phase: "Migrating", Machine: machine{Phase: "Migrating", EnteredAt: sinceMicro()}}}
	moved := func() time.Duration {
		return time.Duration(g.shows(t, "phasegate_migration_last_progress_timestamp_seconds")[""]-float64(since.Unix())) * time.Second
	}
	var got []time.Duration
	copied := g.copying(dm)
	for _, change := range []func(){
		func() { g.Stored(m, dm) },
		func() {
			dm.Status.Machine.Attempts, dm.Status.Message = 1, "no luck (attempt 1)"
			g.Stored(m, dm)
		},
		func() { dm.Status.Machine.StepIndex = 1; g.Stored(m, dm) },
		func() { copied(copier.Progress{Counts: copier.Counts{Total: 9, Done: 3}}) },
		func() { copied(copier.Progress{Counts: copier.Counts{Total: 9, Done: 3}}) },
	} {
		change()
		got = append(got, moved())
		g.at = g.at.Add(time.Second)
	}
	if diff := cmp.Diff([]time.Duration{0, 0, 2 * time.Second, 3 * time.Second, 3 * time.Second}, got); diff != "" {
		t.Errorf("last progress after each second (-want +got):\n%s", diff)
	}
}

func TestCountersOfCopies(t *testing.T) {
	tiers := func(c copier.Counts) copier.Progress {
		return copier.Progress{Counts: c, Kinds: []copier.KindProgress{{Kind: "Tier", Counts: c}}}
	}
	idle := tiers(copier.Counts{Total: 6})
	first := tiers(copier.Counts{Total: 6, Done: 6, Created: 2, AlreadyEqual: 1, Terminating: 1, Conflicts: 1, Rejected: 1})
	again := tiers(copier.Counts{Total: 6, Done: 6, Kept: 2, AlreadyEqual: 1, Terminating: 1, Conflicts: 1, Rejected: 1})
	once := map[string]float64{"resources_total{Tier,migrated}": 2, "resources_total{Tier,skipped}": 1, "resources_total{Tier,terminating}": 1, "resources_total{Tier,conflict}": 1,
		"resource_errors_total{Tier}": 1, "type_duration_seconds{Tier}": 5, "phase{pending}": 1}
	cases := map[string]struct {
		why    string
		copies [][]copier.Progress
		want   map[string]float64
	}{
		"one copy":   {why: "the plain case", copies: [][]copier.Progress{{idle, first}}, want: once},
		"told twice": {why: "a report repeats what the one before it told", copies: [][]copier.Progress{{idle, first, first}}, want: once},
		"copied again": {why: "a conflict leads to another copy, which finds everything again",
			copies: [][]copier.Progress{{idle, first}, {idle, again}}, want: once},
		"one more conflict": {why: "only what is new is added", copies: [][]copier.Progress{{idle, first}, {idle, tiers(copier.Counts{Total: 7, Done: 7, Kept: 2, Created: 1, Conflicts: 3})}},
			want: map[string]float64{"resources_total{Tier,migrated}": 3, "resources_total{Tier,skipped}": 1, "resources_total{Tier,terminating}": 1, "resources_total{Tier,conflict}": 3,
				"resource_errors_total{Tier}": 1, "type_duration_seconds{Tier}": 5, "phase{pending}": 1}},
		"after a restart": {why: "what a predecessor copied, it has counted", copies: [][]copier.Progress{{idle, tiers(copier.Counts{Total: 6, Done: 6, Kept: 5, Updated: 1})}},
			want: map[string]float64{"type_duration_seconds{Tier}": 5, "phase{pending}": 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, dm := newGauge(), &migration{}
			for _, progress := range c.copies {
				report := g.copying(dm)
				for _, p := range progress {
					report(p)
					g.at = g.at.Add(5 * time.Second)
				}
			}
			if diff := cmp.Diff(c.want, g.shows(t, "calico_migration_")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// The time from the lock to Converged is known to whoever saw the transition.
func TestDurationIsObservedOnce(t *testing.T) {
	in := func(phase string) *migration {
		return &migration{Status: status{Phase: phase, StartedAt: at(-90 * time.Second), Machine: machine{Phase: phase, EnteredAt: sinceMicro()}}}
	}
	for file, m := range files(t) {
		g := newGauge()
		for _, phase := range []string{"Migrating", "Converged", "Converged", "Complete"} {
			g.Stored(m, as(file, in(phase)))
		}
		if diff := cmp.Diff(map[string]float64{"": 90}, g.shows(t, "calico_migration_duration_seconds")); diff != "" {
			t.Errorf("%s file: durations (-want +got):\n%s", file, diff)
		}
		g = newGauge()
		g.Stored(m, as(file, in("Converged")))
		if diff := cmp.Diff(map[string]float64{}, g.shows(t, "calico_migration_duration_seconds")); diff != "" {
			t.Errorf("%s file: durations in a process that came later (-want +got):\n%s", file, diff)
		}
	}
}

// The buckets are the peer's: quantiles of both can be compared.
func TestBuckets(t *testing.T) {
	g := newGauge()
	g.duration.Observe(1)
	g.typeDuration.WithLabelValues("Tier").Observe(1)
	families, err := g.registry.Gather()
	must(t, err)
	got := map[string][]float64{}
	for _, f := range families {
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			got[f.GetName()] = append(got[f.GetName()], b.GetUpperBound())
		}
	}
	want := map[string][]float64{
		"calico_migration_duration_seconds":      {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
		"calico_migration_type_duration_seconds": {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}
