package alerts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	rulesFile = root + "/charts/phasegate/files/monitoring/rules.yaml"
)

// plays says of each play which alerts fire, and when. What is not here must not fire.
var plays = map[string]struct {
	why  string
	want []string
}{
	"short-lock":   {why: "a lock of a minute, a rollout of 20 and a manager that stands by are everyday"},
	"copied-ahead": {why: "v3 is closed while objects are copied ahead, where nobody sees it; v1 is open, and all is well"},
	"long-lock": {why: "another manager does not make the lock shorter, nor does the time between the two",
		want: []string{"PhasegateLockedTooLong {v1-to-v3} 5m15s-10m0s"}},
	"stuck": {why: "told before the lock is too long; an error that is retried is no progress, a rollback is",
		want: []string{"PhasegateNoProgress {v1-to-v3} 4m0s-6m0s", "PhasegateLockedTooLong {v1-to-v3} 5m15s-8m0s"}},
	"restart": {why: "a manager may be moved while the lock is held, and comes back soon"},
	"absent": {why: "who only stands by does not unlock; when it leads at last, the lock is old",
		want: []string{"PhasegateControllerAbsentWhileLocked {} 3m0s-9m0s", "PhasegateLockedTooLong {v1-to-v3} 9m0s-12m0s"}},
	"uninstall": {why: "the last scrape saw a lock, but the controller lived on without the migration: it was released"},
	"crd-deleted": {why: "the manager is there, but nobody drives the migration any more",
		want: []string{"PhasegateControllerAbsentWhileLocked {} 3m0s-11m0s"}},
	"conflicts": {why: "they are no lack of progress, but the lock is held",
		want: []string{"PhasegateLockedTooLong {v1-to-v3} 5m15s-16m0s", "PhasegateConflictsWaiting {v1-to-v3} 11m0s-13m0s"}},
	"conflicts-ahead": {why: "nothing of v1 is locked, so nobody is called at night, neither for a lock nor for progress",
		want: []string{"PhasegateConflictsWaiting {v1-to-v3} 11m0s-21m0s"}},
	"conflicts-soon-resolved": {why: "a person was quick enough"},
	"owners": {why: "another manager knows of it from the status",
		want: []string{"PhasegateOwnerRemapIncomplete {v1-to-v3} 11m0s-13m0s"}},
	"stalled": {why: "the alert names the object and its namespace",
		want: []string{"PhasegateStalled {MCPServer mcpserver fetch tools} 10m0s-13m0s"}},
	"step-failing": {why: "two failures and a success need nobody",
		want: []string{"PhasegateRightMissing {EnsureWorkload mcpserver} 5m30s-26m15s", "PhasegateStepFailing {MCPServer mcpserver fetch tools} 7m0s-12m0s"}},
	"controller-restarting": {why: "it is there at each scrape, and ends in between",
		want: []string{"PhasegateControllerRestarting {datastoremigrations.migration.projectcalico.org} 14m0s-29m45s"}},
	"file-refused": {why: "each manager refuses it, but it is one alert; a correction ends it",
		want: []string{"PhasegateMachineFileRefused {PG000 machines/mine.yaml} 3m0s-7m0s"}},
}

// play is a file of plays/, in the way of promtool's input_series.
type play struct {
	Interval model.Duration `json:"interval"`
	Series   []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
}

func TestAlerts(t *testing.T) {
	var files []string
	for name := range plays {
		files = append(files, filepath.Join("plays", name+".yaml"))
	}
	slices.Sort(files)
	written, err := filepath.Glob("plays/*.yaml")
	if diff := cmp.Diff(files, written); diff != "" || err != nil {
		t.Errorf("plays (-known here +there), %v:\n%s", err, diff)
	}
	for name, c := range plays {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, watch(t, name)); diff != "" {
				t.Errorf("%s: alerts (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// An alert that fires in no play is not tested.
func TestEachAlertFires(t *testing.T) {
	fires := map[string]bool{}
	for _, c := range plays {
		for _, a := range c.want {
			name, _, _ := strings.Cut(a, " ")
			fires[name] = true
		}
	}
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			if rule.Alert != "" && !fires[rule.Alert] {
				t.Errorf("%s fires in no play: add one to plays/", rule.Alert)
			}
		}
	}
}

// watch plays a file to the rules.
func watch(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("plays", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var p play
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		t.Fatal(err)
	}
	known := exported(t)
	series, length := "load "+p.Interval.String()+"\n", 0
	for _, s := range p.Series {
		line := s.Series + " " + s.Values
		_, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range check(s.Series, known) {
			t.Errorf("a series that no manager has: %s", fault)
		}
		series, length = series+"  "+line+"\n", max(length, len(values))
	}
	interval := time.Duration(p.Interval)
	return evaluate(t, series, interval, time.Duration(length)*interval)
}
