package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func listed(t *testing.T) []metric {
	t.Helper()
	all, err := exported()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Names as Prometheus has them: base units, _total for counters only, a help.
func TestNamesAreConventional(t *testing.T) {
	kinds := map[string]*dto.MetricType{"gauge": dto.MetricType_GAUGE.Enum(), "counter": dto.MetricType_COUNTER.Enum(), "histogram": dto.MetricType_HISTOGRAM.Enum()}
	for _, m := range listed(t) {
		family := &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: kinds[m.kind], Metric: []*dto.Metric{{}}}
		for _, label := range m.labels {
			family.Metric[0].Label = append(family.Metric[0].Label, &dto.LabelPair{Name: &label})
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", m.name, problems, err)
		}
	}
}

// A scrape gives its own value to these labels, and moves ours aside.
func TestLabelsAreNotThoseOfATarget(t *testing.T) {
	for _, m := range listed(t) {
		for _, label := range m.labels {
			switch label {
			case "namespace", "pod", "job", "instance", "container", "service", "endpoint":
				t.Errorf("%s has the label %s, which the target has too", m.name, label)
			}
		}
	}
}

// The peer's names, types and labels: its dashboards and alerts must go on working.
func TestMetricsOfCalicosController(t *testing.T) {
	var got []string
	for _, m := range listed(t) {
		if strings.HasPrefix(m.name, "calico_") {
			got = append(got, m.name+" "+m.kind+" "+strings.Join(m.labels, ","))
		}
	}
	want := []string{
		"calico_migration_duration_seconds histogram ",
		"calico_migration_phase gauge phase",
		"calico_migration_resource_errors_total counter kind",
		"calico_migration_resources_total counter kind,outcome",
		"calico_migration_retries_total counter kind,operation",
		"calico_migration_type_duration_seconds histogram kind",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-the peer's +ours):\n%s", diff)
	}
}
