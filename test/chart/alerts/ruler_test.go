package alerts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	prometheus "github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/template"
)

// rules are those of the chart.
func rules(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	data, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(data, false, model.UTF8Validation, parser.NewParser(parser.Options{}), nil)
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		t.FailNow()
	}
	return groups.Groups
}

// fired are the alerts that fired, in the order of their beginning.
type fired struct {
	length time.Duration
	begun  []string
	ends   map[string]time.Duration
}

// note is a prometheus.NotifyFunc: it gets what fires in each round, and what is over.
func (f *fired) note(_ context.Context, _ string, alerts ...*prometheus.Alert) {
	for _, a := range alerts {
		begun := fmt.Sprintf("%s %s %s", a.Labels.Get(labels.AlertName), objectOf(a.Labels), a.FiredAt.Sub(start))
		if _, known := f.ends[begun]; !known {
			f.begun = append(f.begun, begun)
		}
		f.ends[begun] = f.length
		if !a.ResolvedAt.IsZero() {
			f.ends[begun] = a.ResolvedAt.Sub(start)
		}
	}
}

// start of all plays.
var start = time.Unix(0, 0)

// evaluate loads series and evaluates the rules as Prometheus does, once an interval.
func evaluate(t *testing.T, series string, interval, length time.Duration) (all []string) {
	t.Helper()
	loaded, err := promqltest.NewLazyLoader(series, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close() //nolint:errcheck // its directory is for this play only
	f := fired{length: length, ends: map[string]time.Duration{}}
	manager := prometheus.NewManager(&prometheus.ManagerOptions{
		Appendable: loaded.Storage(),
		QueryFunc:  checked(t, prometheus.EngineQueryFunc(loaded.QueryEngine(), loaded.Storage())),
		NotifyFunc: f.note,
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, rulesFile)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for now := start; now.Before(start.Add(length)); now = now.Add(interval) {
		loaded.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			groups[name].Eval(t.Context(), now)
			for _, rule := range groups[name].Rules() {
				if err := rule.LastError(); err != nil {
					t.Fatalf("%s at %s: %v", rule.Name(), now, err)
				}
			}
		}
	}
	for _, begun := range f.begun {
		all = append(all, fmt.Sprintf("%s-%s", begun, f.ends[begun]))
	}
	return all
}

// checked is a query that tries the texts of the alert that asks with what it finds.
func checked(t *testing.T, ask prometheus.QueryFunc) prometheus.QueryFunc {
	annotations := map[string]map[string]string{}
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			annotations[rule.Alert] = rule.Annotations
		}
	}
	return func(ctx context.Context, query string, now time.Time) (promql.Vector, error) {
		found, err := ask(ctx, query, now)
		alert := prometheus.FromOriginContext(ctx).Name
		for _, s := range found {
			checkTexts(t, alert, annotations[alert], s, now)
		}
		return found, err
	}
}

// objectOf are the values of the labels that are not the rule's; no alert should have
// those of pods.
func objectOf(of labels.Labels) string {
	var values []string
	of.Range(func(l labels.Label) {
		if l.Value != "" && l.Name != labels.AlertName && l.Name != "severity" {
			values = append(values, l.Value)
		}
	})
	return "{" + strings.Join(values, " ") + "}"
}

// checkTexts expands the annotations: a label that a series does not have is seen
// here only.
func checkTexts(t *testing.T, alert string, annotations map[string]string, s promql.Sample, now time.Time) {
	t.Helper()
	data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
	for name, text := range annotations {
		none := func(context.Context, string, time.Time) (promql.Vector, error) {
			return nil, fmt.Errorf("texts that ask Prometheus are not for people who read them in a mail")
		}
		expander := template.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}{{$value := .Value}}"+text, alert, data,
			model.TimeFromUnixNano(now.UnixNano()), none, nil, []string{"missingkey=error"})
		out, err := expander.Expand()
		if err != nil || strings.Contains(out, "  ") {
			t.Errorf("%s: %s: %q, %v", alert, name, out, err)
		}
	}
}
