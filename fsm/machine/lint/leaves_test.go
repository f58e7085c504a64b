package lint

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLeaves(t *testing.T) {
	got := leavesOf(map[string]any{"a": map[string]any{"b.c/d": 1, "e": nil}, "f": map[string]any{}}, nil)
	want := [][]string{{"a", "b.c/d"}, {"a", "e"}, {"f"}}
	if d := cmp.Diff(want, got); d != "" || !slices.IsSortedFunc(got, slices.Compare) {
		t.Errorf("(-want +got):\n%s", d)
	}
}
