package loadgenerator

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBreaches(t *testing.T) {
	cases := map[string]struct {
		why            string
		closed, opened []uint64
		attempts       []Attempt
		want           []int
	}{
		"before and after": {why: "v1 is open there", closed: []uint64{10, 12, 14}, opened: []uint64{1, 20},
			attempts: []Attempt{{N: 1, Accepted: true, Revision: 9}, {N: 2, Accepted: true, Revision: 21}}},
		"within":    {why: "this is what must not be", closed: []uint64{12, 10}, opened: []uint64{20}, attempts: []Attempt{{N: 1, Accepted: true, Revision: 11}}, want: []int{1}},
		"refused":   {why: "it was kept out", closed: []uint64{10}, attempts: []Attempt{{N: 1, Revision: 11}}},
		"for good":  {why: "past the point of no return nobody opens v1", closed: []uint64{10}, opened: []uint64{5}, attempts: []Attempt{{N: 1, Accepted: true, Revision: math.MaxUint64 - 1}}, want: []int{1}},
		"two tries": {why: "another migration closes v1 again", closed: []uint64{10, 30}, opened: []uint64{20, 40}, attempts: []Attempt{{N: 1, Accepted: true, Revision: 25}, {N: 2, Accepted: true, Revision: 35}}, want: []int{2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, a := range Breaches(c.attempts, windows(c.closed, c.opened)) {
				got = append(got, a.N)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
