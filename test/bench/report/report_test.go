package report_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/bench/report"
)

var update = flag.Bool("update", false, "write RESULTS.md anew from figures.json")

// run is one run with a locked and a total time.
func run(c report.Contender, objects, repeat int, locked, total float64) report.Run {
	return report.Run{Contender: c, Objects: objects, Repeat: repeat, Figures: map[report.Metric]float64{report.Locked: locked, report.Total: total}}
}

func TestMedian(t *testing.T) {
	cases := map[string]struct {
		why    string
		locked []float64
		want   float64
		has    bool
	}{
		"none": {why: "what was not measured has no median"},
		"one":  {why: "a short run has one repeat", locked: []float64{3}, want: 3, has: true},
		"odd":  {why: "what disturbed one run does not count", locked: []float64{2, 90, 1}, want: 2, has: true},
		"even": {why: "it is between the two in the middle", locked: []float64{4, 1, 2, 9}, want: 3, has: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := &report.Figures{Runs: []report.Run{run(report.Ahead, 2, 1, 77, 1), run(report.Raw, 1, 1, 77, 1)}}
			for i, v := range c.locked {
				f.Runs = append(f.Runs, run(report.Ahead, 1, i+1, v, 1))
			}
			got, has := f.Median(report.Ahead, 1, report.Locked)
			if got != c.want || has != c.has {
				t.Errorf("%s: got %v, %t, want %v, %t", c.why, got, has, c.want, c.has)
			}
		})
	}
}

func TestFit(t *testing.T) {
	cases := map[string]struct {
		why  string
		runs []report.Run
		want report.Model
		fits bool
	}{
		"one size": {why: "a line needs two points", runs: []report.Run{run(report.Ahead, 1000, 1, 2, 3)}},
		"two sizes": {why: "nothing is left to judge it by", fits: true,
			runs: []report.Run{run(report.Ahead, 1000, 1, 2, 0), run(report.Ahead, 3000, 1, 6, 0)},
			want: report.Model{Fixed: 0, Each: 0.002, Of: []int{1000, 3000}, Left: []int{}, Worst: math.NaN()}},
		"three sizes": {why: "the one between tells how wrong it is", fits: true,
			runs: []report.Run{run(report.Ahead, 3000, 1, 7, 0), run(report.Ahead, 2000, 1, 4, 0), run(report.Ahead, 1000, 1, 3, 0)},
			want: report.Model{Fixed: 1, Each: 0.002, Of: []int{1000, 3000}, Left: []int{2000}, Worst: 0.25}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, fits := report.Fit(&report.Figures{Runs: c.runs}, report.Ahead, report.Locked)
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) })
			if diff := cmp.Diff(c.want, got, near); diff != "" || fits != c.fits {
				t.Errorf("%s: fits is %t (-want +got):\n%s", c.why, fits, diff)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	reader, writer := report.Clients()[0], report.Clients()[1]
	good := []report.Run{
		run(report.RawSmall, 5000, 1, 0, 5), run(report.Raw, 5000, 1, 0, 10), run(report.Shipped, 5000, 1, 160, 160),
		run(report.Unlimited, 5000, 1, 30, 30), run(report.UnderLock, 5000, 1, 12, 14), run(report.Ahead, 5000, 1, 0.5, 16),
	}
	cases := map[string]struct {
		why  string
		runs []report.Run
		want []string
	}{
		"nothing measured": {why: "what is not known is not broken"},
		"all kept":         {why: "these figures keep every promise that they tell of", runs: good},
		"long lock": {why: "each bar that it breaks is named", runs: append(append([]report.Run{}, good[:5]...), run(report.Ahead, 5000, 1, 6, 16)), want: []string{
			"locked time, in raw creates: 0.60, promised is ≤ 0.06",
			"locked time of the control without limits, in ours: 5.00, promised is ≥ 6",
		}},
		"grows": {why: "the lock must not grow with the datastore", runs: []report.Run{run(report.Ahead, 1000, 1, 2, 3), run(report.Ahead, 20000, 1, 4, 30)},
			want: []string{"locked time at 20000 objects, in that at 1000: 2.00, promised is ≤ 1.5"}},
		"felt": {why: "each of the other clients has a bar of its own", runs: []report.Run{{Contender: report.Beside, Objects: 5000, Repeat: 1, Figures: map[report.Metric]float64{
			reader.Idle(99): 10, reader.Copying(99): 30, writer.Idle(99): 10, writer.Copying(99): 24,
		}}}, want: []string{"p99 of another client's GETs while copying ahead, in idle ones: 3.00, promised is ≤ 2"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, report.Broken(&report.Figures{Runs: c.runs})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestChart(t *testing.T) {
	f := &report.Figures{Runs: []report.Run{
		run(report.Ahead, 5000, 1, 2, 9), run(report.Ahead, 1000, 1, 1, 4), run(report.RawSmall, 1000, 1, 7, 1.5),
	}}
	want := report.Chart{Title: "Locked time against number of objects", X: "objects", Y: "locked, s", Lines: []report.Line{
		{Name: string(report.RawSmall), Points: [][2]float64{{1000, 1.5}}},
		{Name: string(report.Ahead), Points: [][2]float64{{1000, 1}, {5000, 2}}},
	}}
	if diff := cmp.Diff(want, report.LockedChart(f)); diff != "" {
		t.Errorf("raw creates show how long they took, others how long they locked (-want +got):\n%s", diff)
	}
}

// TestResultsAreThoseOfTheFigures: nobody edits what the program has written.
func TestResultsAreThoseOfTheFigures(t *testing.T) {
	f := committed(t)
	if len(f.Runs) == 0 {
		t.Error("there are no figures")
	}
	if *update {
		if err := os.WriteFile("../RESULTS.md", []byte(report.Markdown(f)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	document, err := os.ReadFile("../RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(report.Markdown(f), "\n"), strings.Split(string(document), "\n")); diff != "" {
		t.Errorf("RESULTS.md is not what its figures say, run make bench (-want +got):\n%s", diff)
	}
}

// TestReadmeTellsTheFigures: what is promised first is what was measured last.
func TestReadmeTellsTheFigures(t *testing.T) {
	f := committed(t)
	locked := func(c report.Contender, objects int) float64 {
		median, ok := f.Median(c, objects, report.Locked)
		if !ok {
			t.Fatalf("%s was not measured at %d objects", c, objects)
		}
		return median
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	// A row must not claim more runs for one of them than there were.
	runs := func(objects int, contenders ...report.Contender) string {
		least, most := math.MaxInt, 0
		for _, c := range contenders {
			least, most = min(least, f.Repeats(c, objects)), max(most, f.Repeats(c, objects))
		}
		if least < most {
			return fmt.Sprintf("medians of %d to %d runs", least, most)
		}
		return fmt.Sprintf("median of %d runs", least)
	}
	for objects, size := range map[int]string{5000: "5,000 objects on two cores", 20000: "20,000 objects"} {
		row := fmt.Sprintf("| v1 is locked, with %s (", size)
		measured := f.Repeats(report.Ahead, objects) > 0 && f.Repeats(report.Shipped, objects) > 0 && f.Repeats(report.Unlimited, objects) > 0
		if measured {
			row += fmt.Sprintf("%s) | %.3g s | %.3g s as shipped, %.3g s without its client limits |", runs(objects, report.Ahead, report.Shipped, report.Unlimited),
				locked(report.Ahead, objects), locked(report.Shipped, objects), locked(report.Unlimited, objects))
		}
		if strings.Contains(string(readme), row) != measured {
			t.Errorf("README.md says %q: %t, want %t: what was not measured is not told", row, !measured, measured)
		}
	}
}

func committed(t *testing.T) *report.Figures {
	t.Helper()
	figures, err := os.ReadFile("../figures.json")
	if err != nil {
		t.Fatal(err)
	}
	f := &report.Figures{}
	if err := json.Unmarshal(figures, f); err != nil {
		t.Fatal(err)
	}
	return f
}
