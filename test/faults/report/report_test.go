package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/test/faults/report"
)

func TestPrint(t *testing.T) {
	var out strings.Builder
	if err := report.Print(&out); err != nil || out.String() != "" {
		t.Errorf("without experiments it prints %q, error %v, want nothing", out.String(), err)
	}
	storm := report.Of("a storm")
	storm.Ran(true, 0)
	report.Of("a crash").Writes(200)
	report.Of("a crash").Writes(198)
	report.Of("a crash").Ran(true, 1234*time.Millisecond)
	report.Of("a crash").Ran(false, time.Second)
	if err := report.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `EXPERIMENT  RUNS  PASSES  WRITES  WORST RECOVERY
a crash     2     1       200     1.23s
a storm     1     1       -       -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("a line for each experiment (-want +got):\n%s", diff)
	}
}
