package bench

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families are the metrics of a process, by name.
type families map[string]*dto.MetricFamily

// scrape reads the metrics that a process serves at an address.
func scrape(ctx context.Context, address string) (families, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the manager's metrics: %w", err)
	}
	return all, nil
}

// with lists the metrics of a name that have all these labels: name, value, name, value.
func (f families) with(name string, labels ...string) []*dto.Metric {
	want := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	var found []*dto.Metric
	for _, metric := range f[name].GetMetric() {
		both := maps.Clone(want)
		for _, label := range metric.GetLabel() {
			if both[label.GetName()] == label.GetValue() {
				delete(both, label.GetName())
			}
		}
		if len(both) == 0 {
			found = append(found, metric)
		}
	}
	return found
}

// sum adds up counters and gauges.
func (f families) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, metric := range f.with(name, labels...) {
		total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return total
}
