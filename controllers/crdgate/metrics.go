package crdgate

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	runningGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "phasegate_crdgate_running",
		Help: "1 while the controller of this CRD runs (also while it is stopping), else 0.",
	}, []string{"crd"})

	restartsCounter = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "phasegate_crdgate_restarts_total",
		Help: "How often the controller of this CRD returned without having been told to and was started again.",
	}, []string{"crd"})
)

func init() {
	metrics.Registry.MustRegister(runningGauge, restartsCounter)
}
