package bridge

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumbersBeginAnew(t *testing.T) {
	b := New(Options{})
	l := &link{bridge: b, calls: map[int64]*call{1: nil, math.MaxInt32: nil}, questions: map[int64]question{2: {}}}
	b.lastID = math.MaxInt32 - 2
	got := []int64{l.numberLocked(), l.numberLocked(), l.numberLocked()}
	if diff := cmp.Diff([]int64{math.MaxInt32 - 1, 3, 4}, got); diff != "" {
		t.Errorf("numbers, without those under way (-want +got):\n%s", diff)
	}
}
