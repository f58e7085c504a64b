package crdgate

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics of gates, by the name of the CRD.
type Metrics struct {
	running  *prometheus.GaugeVec
	restarts *prometheus.CounterVec
}

// shared are the metrics of all gates of a process.
var shared = NewMetrics(metrics.Registry)

// NewMetrics makes the metrics and registers them; call it once per registry.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "phasegate_crdgate_running",
			Help: "1 while the controller of this CRD runs or stops, else 0; absent on a standby.",
		}, []string{"crd"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "phasegate_crdgate_restarts_total",
			Help: "Restarts of the controller of this CRD after it ended unexpectedly.",
		}, []string{"crd"}),
	}
	reg.MustRegister(m.running, m.restarts)
	return m
}

// Running is 1 while the controller of a CRD runs.
func (m *Metrics) Running(crd string) prometheus.Gauge { return m.running.WithLabelValues(crd) }

// Restarts counts the ends that nobody asked for.
func (m *Metrics) Restarts(crd string) prometheus.Counter { return m.restarts.WithLabelValues(crd) }
