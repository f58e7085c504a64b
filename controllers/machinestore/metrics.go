package machinestore

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/phasegate/phasegate/fsm/machine/diag"
)

// gauges are the store's metrics.
type gauges struct {
	info    *prometheus.GaugeVec
	refused *prometheus.GaugeVec
	reloads *prometheus.CounterVec
}

func newGauges() *gauges {
	return &gauges{
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phasegate_machine_info",
			Help: "1 for each machine in force, with its revision and file."}, []string{"machine", "revision", "file"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "phasegate_machine_refused",
			Help: "1 for each code found in a machine file that is not used."}, []string{"file", "code"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "phasegate_machine_reloads_total",
			Help: "Changes of machine files by result: accepted, refused, orphaned (the file is gone, the machine continues), or compiled-in (refused at the start, replaced by the compiled-in machine)."}, []string{"machine", "result"}),
	}
}

// Register adds the store's metrics to a registry; call it once for each.
func (s *Store) Register(reg prometheus.Registerer) {
	reg.MustRegister(s.metrics.info, s.metrics.refused, s.metrics.reloads)
}

// show sets the gauges to a verdict.
func (g *gauges) show(v verdict) {
	g.info.Reset()
	for name, m := range v.inForce {
		g.info.WithLabelValues(name, m.Revision(), m.File()).Set(1)
	}
	g.refused.Reset()
	for _, r := range v.refused {
		for _, d := range r.findings {
			g.refused.WithLabelValues(r.file, d.Code).Set(1)
		}
	}
}

// count counts what a reload changed. A file that stays refused while another is
// edited is not counted again.
func (g *gauges) count(last, next verdict) {
	for name, m := range next.inForce {
		if m != last.inForce[name] {
			g.reloads.WithLabelValues(name, "accepted").Inc()
		}
	}
	for _, r := range next.refused {
		if !slices.ContainsFunc(last.refused, r.equal) {
			g.reloads.WithLabelValues(r.machine, "refused").Inc()
		}
	}
	for _, name := range next.orphans {
		if !slices.Contains(last.orphans, name) {
			g.reloads.WithLabelValues(name, "orphaned").Inc()
		}
	}
}

func (r refusal) equal(other refusal) bool {
	return r.file == other.file && r.machine == other.machine &&
		slices.EqualFunc(r.findings, other.findings, func(a, b diag.Diagnostic) bool { return a.String() == b.String() })
}
