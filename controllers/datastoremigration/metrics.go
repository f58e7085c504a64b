package datastoremigration

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/copier"
)

// Metrics of migrations. Those called calico_migration_* have the names, labels
// and buckets of Calico's own migration controller, so that its dashboards go on
// working; phasegate_migration_* are made from the stored status (metrics_status.go).
//
// A counter counts each object once for as long as this process knows: a step that
// runs again adds nothing for what it finds done. A process that takes over begins
// at 0 and leaves to its predecessor what that has copied.
type Metrics struct {
	now          func() time.Time
	resources    *prometheus.CounterVec
	errors       *prometheus.CounterVec
	retries      *prometheus.CounterVec
	duration     prometheus.Histogram
	typeDuration *prometheus.HistogramVec

	mu    sync.Mutex
	known map[string]*measured // by the name of the migration
}

// measured is what is known of a migration.
type measured struct {
	uid   types.UID
	state state
	moved time.Time
	// counted and timed are what the counters and histograms have had already.
	counted map[countKey]int64
	timed   map[string]bool
}

// countKey is one series: the outcome is empty for errors.
type countKey struct{ kind, outcome string }

// NewMetrics makes the metrics and registers them; call it once per registry. now
// is the clock.
func NewMetrics(reg prometheus.Registerer, now func() time.Time) *Metrics {
	m := &Metrics{
		now: now, known: map[string]*measured{},
		resources: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calico_migration_resources_total",
			Help: "Objects by outcome: migrated (copied), skipped (equal in v3 already), terminating (being deleted in v1) or conflict (different in v3)."}, []string{"kind", "outcome"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calico_migration_resource_errors_total",
			Help: "Objects that cannot be converted, or that the API server refuses."}, []string{"kind"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "calico_migration_retries_total",
			Help: "Requests of the copy that were retried after an error."}, []string{"kind", "operation"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "calico_migration_duration_seconds",
			Help: "Duration of migrations, from the lock to Converged.", Buckets: prometheus.ExponentialBuckets(1, 2, 15)}),
		typeDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "calico_migration_type_duration_seconds",
			Help: "Duration of the first copy of a kind; kinds are copied in parallel.", Buckets: prometheus.ExponentialBuckets(0.1, 2, 12)}, []string{"kind"}),
	}
	reg.MustRegister(m.resources, m.errors, m.retries, m.duration, m.typeDuration, m)
	return m
}

// of answers what is known of a migration. It needs mu.
func (m *Metrics) of(dm *migration) *measured {
	known := m.known[dm.Name]
	if known == nil || known.uid != dm.UID {
		known = &measured{uid: dm.UID, moved: m.now(), counted: map[countKey]int64{}, timed: map[string]bool{}}
		m.known[dm.Name] = known
	}
	return known
}

// Stored takes over what the API server has of a migration: call it whenever a
// status was read or written. The object may change afterwards.
func (m *Metrics) Stored(machine *fsm.Machine, dm *migration) {
	next := stateOf(machine, dm)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(dm)
	last := known.state
	if next == last {
		return
	}
	// Seen in another phase before: the transition is news, and not a predecessor's.
	if last.phase != "" && !last.noReturn && next.noReturn && dm.Status.StartedAt != nil {
		m.duration.Observe(next.entered.Sub(dm.Status.StartedAt.Time).Seconds())
	}
	known.state, known.moved = next, m.now()
}

// Gone drops the gauges of a migration. It may be one that was never seen.
func (m *Metrics) Gone(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key.Name)
}

// copying measures one copy of all objects: what it answers is told the progress.
func (m *Metrics) copying(dm *migration) copier.Report {
	began, done, created := m.now(), int64(0), map[string]int64{}
	waited := map[string]time.Time{} // when a kind was last seen without an object that is done
	return func(p copier.Progress) {
		m.mu.Lock()
		defer m.mu.Unlock()
		known, now := m.of(dm), m.now()
		if p.Done > done {
			done, known.moved = p.Done, now
		}
		for _, k := range p.Kinds {
			// Another copy creates other objects; whatever else it finds, it finds again.
			m.resources.WithLabelValues(k.Kind, "migrated").Add(float64(k.Created - created[k.Kind]))
			created[k.Kind] = k.Created
			known.count(m.resources.WithLabelValues(k.Kind, "skipped"), countKey{k.Kind, "skipped"}, k.AlreadyEqual)
			known.count(m.resources.WithLabelValues(k.Kind, "terminating"), countKey{k.Kind, "terminating"}, k.Terminating)
			known.count(m.resources.WithLabelValues(k.Kind, "conflict"), countKey{k.Kind, "conflict"}, k.Conflicts)
			known.count(m.errors.WithLabelValues(k.Kind), countKey{kind: k.Kind}, k.Rejected)
			if k.Done == 0 {
				waited[k.Kind] = now
			}
			if k.Total > 0 && k.Done >= k.Total && !known.timed[k.Kind] {
				from, found := waited[k.Kind]
				if !found {
					from = began
				}
				m.typeDuration.WithLabelValues(k.Kind).Observe(now.Sub(from).Seconds())
				known.timed[k.Kind] = true
			}
		}
	}
}

// count brings a counter to what a copy found, where that is more than any copy
// found before.
func (k *measured) count(counter prometheus.Counter, key countKey, found int64) {
	if found > k.counted[key] {
		counter.Add(float64(found - k.counted[key]))
		k.counted[key] = found
	}
}

// retried counts a request that is sent again.
func (m *Metrics) retried(kind, operation string) {
	m.retries.WithLabelValues(kind, operation).Inc()
}
