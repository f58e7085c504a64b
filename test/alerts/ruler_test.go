package alerts

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
)

// ruler evaluates rules as Prometheus does: alerts wait for their `for`, and go on
// for their keep_firing_for; a recorded series that ends is marked as stale.
type ruler struct {
	t      *testing.T
	engine *promql.Engine
	db     memory
	alerts map[string]map[string]*alert // by rule and labels
	// recorded are the series of each recording rule in the last round.
	recorded map[string][]labels.Labels
	// fired are all that fired, in the order of their beginning.
	fired []*alert
}

// alert is one that is pending, firing or over.
type alert struct {
	name, object       string
	since, fires, ends time.Duration
	firing             bool
	// last is when its expression was true.
	last time.Duration
}

func (a *alert) String() string {
	return fmt.Sprintf("%s %s %s-%s", a.name, a.object, a.fires, a.ends)
}

func newRuler(t *testing.T) *ruler {
	return &ruler{t: t, alerts: map[string]map[string]*alert{}, recorded: map[string][]labels.Labels{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 100000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})}
}

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

// round evaluates all rules once.
func (r *ruler) round(groups []rulefmt.RuleGroup, now time.Duration) {
	for _, group := range groups {
		for i := range group.Rules {
			rule := &group.Rules[i]
			found := r.query(rule.Expr, now)
			if rule.Record != "" {
				r.record(rule.Record, found, now)
			} else {
				r.judge(rule, found, now)
			}
		}
	}
}

func (r *ruler) query(expr string, now time.Duration) promql.Vector {
	r.t.Helper()
	query, err := r.engine.NewInstantQuery(r.t.Context(), r.db.queryable(), nil, expr, time.UnixMilli(now.Milliseconds()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer query.Close()
	found, err := query.Exec(r.t.Context()).Vector()
	if err != nil {
		r.t.Fatalf("%s at %s: %v", expr, now, err)
	}
	return append(promql.Vector(nil), found...)
}

func (r *ruler) record(name string, found promql.Vector, now time.Duration) {
	var series []labels.Labels
	for _, s := range found {
		of := labels.NewBuilder(s.Metric).Set(model.MetricNameLabel, name).Labels()
		r.db.add(of, now, s.F)
		series = append(series, of)
	}
	for _, last := range r.recorded[name] {
		ended := true
		for _, of := range series {
			ended = ended && !labels.Equal(of, last)
		}
		if ended {
			r.db.add(last, now, math.Float64frombits(value.StaleNaN))
		}
	}
	r.recorded[name] = series
}

func (r *ruler) judge(rule *rulefmt.Rule, found promql.Vector, now time.Duration) {
	active := r.alerts[rule.Alert]
	if active == nil {
		active = map[string]*alert{}
		r.alerts[rule.Alert] = active
	}
	for _, s := range found {
		s.Metric = labels.NewBuilder(s.Metric).Del(model.MetricNameLabel).Labels()
		key := s.Metric.String()
		if active[key] == nil {
			active[key] = &alert{name: rule.Alert, object: objectOf(s.Metric), since: now}
		}
		active[key].last = now
		r.checkTexts(rule, s, now)
	}
	for key, a := range active {
		switch held := now - a.since; {
		case a.last < now && (!a.firing || now-a.last >= time.Duration(rule.KeepFiringFor)):
			a.ends = now
			delete(active, key)
		case !a.firing && held >= time.Duration(rule.For):
			a.firing, a.fires = true, now
			r.fired = append(r.fired, a)
		}
	}
}

// finish ends what still fires.
func (r *ruler) finish(now time.Duration) []string {
	var all []string
	for _, a := range r.fired {
		if a.ends == 0 {
			a.ends = now
		}
		all = append(all, a.String())
	}
	return all
}

// objectOf are the values of the labels but for the pods', which no alert should have.
func objectOf(of labels.Labels) string {
	var values []string
	of.Range(func(l labels.Label) {
		if l.Value != "" {
			values = append(values, l.Value)
		}
	})
	return "{" + strings.Join(values, " ") + "}"
}

// checkTexts expands the annotations: a label that a series does not have is seen
// here only.
func (r *ruler) checkTexts(rule *rulefmt.Rule, s promql.Sample, now time.Duration) {
	r.t.Helper()
	data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
	for name, text := range rule.Annotations {
		none := func(context.Context, string, time.Time) (promql.Vector, error) {
			return nil, fmt.Errorf("texts that ask Prometheus are not for people who read them in a mail")
		}
		expander := template.NewTemplateExpander(r.t.Context(), "{{$labels := .Labels}}{{$value := .Value}}"+text, rule.Alert, data,
			model.Time(now.Milliseconds()), none, nil, []string{"missingkey=error"})
		out, err := expander.Expand()
		if err != nil || strings.Contains(out, "  ") {
			r.t.Errorf("%s: %s: %q, %v", rule.Alert, name, out, err)
		}
	}
}
