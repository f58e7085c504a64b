package migration_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/faults/invariants"
	"github.com/phasegate/phasegate/test/faults/report"
)

// timeOut is a request of which nothing is heard until its time is over, which is short
// here.
var timeOut faults.Fault = func(_ *faults.Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if answer, err := next.RoundTrip(req); err == nil {
		answer.Body.Close()
	}
	return nil, context.DeadlineExceeded
}

// storms are mixes of faults, each for a share of the writes.
var storms = map[string]struct {
	rules func() []*faults.Rule
	// waits tells that it waits for seconds, as the server asks.
	waits bool
}{
	"a storm of errors": {waits: true, rules: func() []*faults.Rule {
		share := func(of float64, do faults.Fault) *faults.Rule {
			return &faults.Rule{When: faults.Write, Times: faults.Always, Share: of, Do: do}
		}
		return []*faults.Rule{
			{When: faults.Requests("patch", "datastoremigrations/status"), Times: faults.Always, Share: 0.3, Do: faults.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)},
			share(0.10, faults.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second)),
			share(0.025, faults.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)),
			share(0.025, faults.Answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 0)),
			share(0.05, timeOut),
			share(0.05, faults.Lose),
		}
	}},
	"answers lost on a tenth of the writes": {rules: func() []*faults.Rule {
		return []*faults.Rule{{When: faults.Write, Times: faults.Always, Share: 0.1, Do: faults.Lose}}
	}},
}

// patient is how many times the writes of a migration without faults one may make in a storm. Time is the
// machine's, and the server's, which says when to come again; how often is tried is ours.
const patient = 2

// Whatever an API server answers for a while, a migration comes to its end, and back, and does not make it worse.
func TestStorm(t *testing.T) {
	beside(t)
	for name, storm := range storms {
		if storm.waits && !everything {
			continue
		}
		t.Run(name, func(t *testing.T) {
			beside(t)
			w, of := shared.Lend(t), report.Of(name)
			w.measure(t)
			of.Writes(w.clean)
			for i := range sampleOf(1, 20) {
				given := seed + uint64(i)
				t.Run(fmt.Sprintf("seed %d", given), func(t *testing.T) {
					begun, tried := time.Now(), 0
					count := &faults.Rule{When: func(info *request.RequestInfo) bool {
						if faults.Write(info) {
							tried++
						}
						return false
					}}
					in := func(int) *faults.Transport {
						return faults.Seeded(given, append([]*faults.Rule{count}, storm.rules()...)...)
					}
					j := w.begin(t)
					j.survive(in, atGate)
					if most := patient * w.clean; tried > most {
						t.Errorf("%d writes were tried, more than %d times the %d that it takes without faults", tried, patient, w.clean)
					}
					t.Logf("%d writes were tried; %d are made without faults", tried, w.clean)
					j.check(invariants.AtGate)
					j.back(in)
					of.Ran(!t.Failed(), time.Since(begun))
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

func sampleOf(few, all int) int {
	if everything {
		return all
	}
	return few
}

// Two crashes, the second of which meets the process that goes on after the first.
func TestTwoCrashes(t *testing.T) {
	const name = "two crashes"
	beside(t)
	w, of := shared.Lend(t), report.Of(name)
	w.measure(t)
	n := w.clean
	of.Writes(n)
	dice := random(2)
	for range sampleOf(1, 50) {
		first, second, kinds := 1+dice.IntN(n), 1+dice.IntN(n/4), dice.IntN(4)
		t.Run(fmt.Sprintf("writes %d and %d, %02b", first, second, kinds), func(t *testing.T) {
			crash := func(after bool, write int) *faults.Transport {
				do := faults.CrashBefore
				if after {
					do = faults.CrashAfter
				}
				return faults.New(&faults.Rule{When: faults.Write, Nth: write, Do: do})
			}
			both := func(life int) *faults.Transport {
				switch life {
				case 0:
					return crash(kinds&1 == 1, first)
				case 1:
					return crash(kinds&2 == 2, second)
				}
				return faults.New()
			}
			j := w.begin(t)
			_, there := j.survive(both, atGate)
			j.check(invariants.AtGate)
			_, back := j.back(both)
			of.Ran(!t.Failed(), max(there, back))
		})
		if t.Failed() {
			return
		}
	}
}
