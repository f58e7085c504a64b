package runner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm"
)

// Metrics of all machines. The list of phases comes from the machine, so no
// phase can be forgotten; the gauge is set from the stored status in every
// pass, so a restarted manager shows it at once.
type Metrics struct {
	phases      *prometheus.GaugeVec
	transitions *prometheus.CounterVec
	steps       *prometheus.HistogramVec
	retries     *prometheus.CounterVec
	errors      *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them; call it once per registry.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		phases: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phasegate_phase",
			Help: "1 for the phase an object is in, 0 for the machine's other phases."}, []string{"machine", "object", "phase"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_transitions_total",
			Help: "Transitions that were stored."}, []string{"machine", "from", "to", "reason"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "phasegate_step_duration_seconds",
			Help: "How long actions took.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 12)}, []string{"machine", "action"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_retries_total",
			Help: "Actions that failed and will be tried again or caught."}, []string{"machine", "action"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_step_errors_total",
			Help: "Errors of actions by class."}, []string{"machine", "action", "class"}),
	}
	reg.MustRegister(m.phases, m.transitions, m.steps, m.retries, m.errors)
	return m
}

func (m *Metrics) phase(machine *fsm.Machine, obj interface {
	client.Object
	MachineStatus() *v1alpha1.MachineStatus
}) {
	key := client.ObjectKeyFromObject(obj).String()
	if obj.MachineStatus().Revision != machine.Revision() {
		m.forget(machine.Name(), key) // another file may have had other phases
	}
	for _, name := range machine.Phases() {
		value := 0.0
		if name == obj.MachineStatus().Phase {
			value = 1
		}
		m.phases.WithLabelValues(machine.Name(), key, name).Set(value)
	}
}

func (m *Metrics) forget(machine, object string) {
	m.phases.DeletePartialMatch(prometheus.Labels{"machine": machine, "object": object})
}

func (m *Metrics) transition(machine *fsm.Machine, obj interface {
	client.Object
	MachineStatus() *v1alpha1.MachineStatus
}, t *v1alpha1.Transition) {
	m.transitions.WithLabelValues(machine.Name(), t.From, t.To, t.Reason).Inc()
	m.phase(machine, obj)
}

func (m *Metrics) step(machine *fsm.Machine, action string, took time.Duration, o fsm.Outcome) {
	m.steps.WithLabelValues(machine.Name(), action).Observe(took.Seconds())
	if o.Err == nil || o.Class == "" {
		return
	}
	m.retries.WithLabelValues(machine.Name(), action).Inc()
	m.errors.WithLabelValues(machine.Name(), action, string(o.Class)).Inc()
}
