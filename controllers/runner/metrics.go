package runner

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Metrics of all machines: counters and histograms of what this process did, and
// gauges of what the statuses say. The gauges come from the stored status, which
// every pass reads, so that a restarted manager shows them at once.
type Metrics struct {
	transitions *prometheus.CounterVec
	phases      *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	steps       *prometheus.HistogramVec
	retries     *prometheus.CounterVec
	errors      *prometheus.CounterVec
	objects     *objects
	leftovers   *leftovers
}

// NewMetrics makes the metrics and registers them; call it once per registry.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_transitions_total",
			Help: "Transitions that were stored."}, []string{"machine", "from", "to", "reason"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "phasegate_phase_duration_seconds",
			Help: "Duration of phases that have ended.", Buckets: prometheus.ExponentialBuckets(0.1, 4, 12)}, []string{"machine", "phase"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_machine_requests_total",
			Help: "One-shot requests (retry, restart, approve) that were acted on."}, []string{"machine", "request"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "phasegate_step_duration_seconds",
			Help: "Duration of actions.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 12)}, []string{"machine", "action"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_retries_total",
			Help: "Failed actions that are retried or caught."}, []string{"machine", "action"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_errors_total",
			Help: "Errors of actions by class."}, []string{"machine", "action", "class"}),
		objects: newObjects(), leftovers: newLeftovers(),
	}
	reg.MustRegister(m.leftovers.gauge, m.transitions, m.phases, m.requests, m.steps, m.retries, m.errors, m.objects)
	return m
}

// CountObjects leaves out the series about single objects, but for those in trouble, and counts the objects instead. Call
// it before anything is served.
func (m *Metrics) CountObjects() { m.objects.counted = true }

// Stored takes over what the API server has of an object: call it whenever a
// status was read or written. The object may change afterwards.
func (m *Metrics) Stored(machine *fsm.Machine, obj MachineObject) {
	for _, request := range m.objects.put(machine, obj) {
		m.requests.WithLabelValues(machine.Name(), request).Inc()
	}
}

// Gone drops the gauges of an object that does not exist any more, or is not driven
// any more. It may be one that was never seen.
func (m *Metrics) Gone(machine *fsm.Machine, key types.NamespacedName) {
	m.objects.forget(machine.Name(), key)
}

// Took counts a transition; call it once it is stored.
func (m *Metrics) Took(machine *fsm.Machine, t *v1alpha1.Transition) {
	m.transitions.WithLabelValues(machine.Name(), t.From, t.To, t.Reason).Inc()
	if t.From != "" {
		m.phases.WithLabelValues(machine.Name(), t.From).Observe(t.Took.Seconds())
	}
}

// Did counts one call of an action.
func (m *Metrics) Did(machine *fsm.Machine, action string, took time.Duration, o fsm.Result) {
	m.steps.WithLabelValues(machine.Name(), action).Observe(took.Seconds())
	if o.Err == nil || o.Class == "" {
		return
	}
	m.retries.WithLabelValues(machine.Name(), action).Inc()
	m.errors.WithLabelValues(machine.Name(), action, string(o.Class)).Inc()
}

// leftovers are the states whose object is gone while they hold something.
type leftovers struct {
	gauge *prometheus.GaugeVec

	mu    sync.Mutex
	known map[string]bool // by the name of the state
}

func newLeftovers() *leftovers {
	return &leftovers{known: map[string]bool{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phasegate_states_without_object",
		Help: "Objects that are gone while their machine state holds something, which is being released: kubectl get machinestates."}, []string{"machine"})}
}

// add is false for a state that was added before.
func (l *leftovers) add(machine, state string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[state] {
		return false
	}
	l.known[state] = true
	l.gauge.WithLabelValues(machine).Inc()
	return true
}

func (l *leftovers) remove(machine, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[state] {
		delete(l.known, state)
		l.gauge.WithLabelValues(machine).Dec()
	}
}
