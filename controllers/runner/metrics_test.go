package runner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/fsm"
)

func TestMetricsOfALife(t *testing.T) {
	b := newBench(t)
	b.passTo("Done")
	want := map[string]map[string]float64{
		"phasegate_phase":                  {"New": 0, "Working": 0, "Done": 1, "Refused": 0, "Leaving": 0, "Deleted": 0},
		"phasegate_held_effects":           {"": 1},
		"phasegate_transitions_total":      {" Created New": 1, "New Ready Working": 1, "Working Worked Done": 1},
		"phasegate_phase_duration_seconds": {"New": 1, "Working": 1},
		"phasegate_step_duration_seconds":  {"Take": 1, "Work": 1},
		"phasegate_step_retries_total":     {},
		"phasegate_step_errors_total":      {},
	}
	if diff := cmp.Diff(want, b.families(want)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}

	// A new process knows where every object stands after one look at it, and does
	// not count again what its predecessor has counted.
	b.restart()
	b.see()
	want["phasegate_transitions_total"] = map[string]float64{}
	want["phasegate_phase_duration_seconds"] = map[string]float64{}
	want["phasegate_step_duration_seconds"] = map[string]float64{}
	if diff := cmp.Diff(want, b.families(want)); diff != "" {
		t.Errorf("metrics after a restart (-want +got):\n%s", diff)
	}
}

// What is shown is the stored status, and the kind's own metrics hear of it: also
// of what a long action reports, and of the end.
func TestMetricsFollowTheStatus(t *testing.T) {
	b := newBench(t)
	var heard []string
	b.Program.Stored = func(_ *fsm.Machine, obj *errand) {
		heard = append(heard, obj.Status.Machine.Phase+" "+obj.Status.Message)
	}
	b.Program.Gone = func(key types.NamespacedName) { heard = append(heard, key.Name+" is gone") }
	b.atWork()
	heard = nil
	b.work = func(ctx context.Context, s *scope) (map[string]any, error) {
		s.Report(func(obj *errand) { obj.Status.Message = "half way" })
		return nil, errors.Join(b.tick(ctx), b.tick(ctx), errors.New("no luck"))
	}
	b.see()
	// Two writes by the clock, the first with nothing new to tell the second; the pass's own tells the error.
	want := []string{"Working Working", "Working half way", "Working half way", "Working no luck (attempt 1, next in 2s)"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"": 1}, b.metrics("phasegate_step_attempts")); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}

	heard = nil
	if err := b.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.see()
	if diff := cmp.Diff([]string{b.name + " is gone"}, heard); diff != "" {
		t.Errorf("heard of the end (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{}, b.metrics("phasegate_object_info")); diff != "" {
		t.Errorf("series of an object that is gone (-want +got):\n%s", diff)
	}
}

func TestRequestIsCountedOnce(t *testing.T) {
	b := newBench(t)
	b.edit("  phases:\n", requests, "    terminal: success\n", again)
	b.passTo("Done")
	b.ask("one")
	b.passTo("Working")
	b.passTo("Done")
	b.see()
	if diff := cmp.Diff(map[string]float64{"again": 1}, b.metrics("phasegate_machine_requests_total")); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	b.restart()
	b.edit("  phases:\n", requests, "    terminal: success\n", again)
	b.see()
	b.see()
	if diff := cmp.Diff(map[string]float64{}, b.metrics("phasegate_machine_requests_total")); diff != "" {
		t.Errorf("requests after a restart (-want +got):\n%s", diff)
	}
}

func (b *bench) families(like map[string]map[string]float64) map[string]map[string]float64 {
	got := map[string]map[string]float64{}
	for family := range like {
		got[family] = b.metrics(family)
	}
	return got
}
