package harness

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Families are the metrics of a process, by name.
type Families map[string]*dto.MetricFamily

// Scrape reads the metrics of a server, such as http://127.0.0.1:8080.
func Scrape(ctx context.Context, client *http.Client, server string) (Families, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", server, err)
	}
	return all, nil
}

// With lists the metrics of a name that have all these labels: name, value, name, value.
func (f Families) With(name string, labels ...string) []*dto.Metric {
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

// Sum adds up counters and gauges.
func (f Families) Sum(name string, labels ...string) float64 {
	total := 0.0
	for _, metric := range f.With(name, labels...) {
		total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return total
}

// Mean is the mean of a histogram of durations in seconds.
func (f Families) Mean(name string, labels ...string) time.Duration {
	sum, count := 0.0, 0.0
	for _, metric := range f.With(name, labels...) {
		sum += metric.GetHistogram().GetSampleSum()
		count += float64(metric.GetHistogram().GetSampleCount())
	}
	if count == 0 {
		return 0
	}
	return time.Duration(sum / count * float64(time.Second))
}
