package runner_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetricsOfALife(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	want := map[string]map[string]float64{
		"phasegate_phase":                 {"New": 0, "Working": 0, "Done": 1, "Refused": 0, "Leaving": 0, "Gone": 0},
		"phasegate_transitions_total":     {" Created New": 1, "New Ready Working": 1, "Working Worked Done": 1},
		"phasegate_step_duration_seconds": {"Take": 1, "Work": 1},
		"phasegate_step_retries_total":    {},
		"phasegate_step_errors_total":     {},
	}
	if diff := cmp.Diff(want, b.families(want)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}

	// A new process knows where every object stands after one look at it, and does
	// not count again what its predecessor has counted.
	b.restart()
	b.see()
	want["phasegate_transitions_total"] = map[string]float64{}
	want["phasegate_step_duration_seconds"] = map[string]float64{}
	if diff := cmp.Diff(want, b.families(want)); diff != "" {
		t.Errorf("metrics after a restart (-want +got):\n%s", diff)
	}
}

func (b *bench) families(like map[string]map[string]float64) map[string]map[string]float64 {
	got := map[string]map[string]float64{}
	for family := range like {
		got[family] = b.metrics(family)
	}
	return got
}
