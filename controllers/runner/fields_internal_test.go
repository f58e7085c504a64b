package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Fault: what another program wrote into the status while a pass was under way was removed with the pass' own write.
func TestFieldsOfOthersDuringAPass(t *testing.T) {
	shown := func(name string) bool { return name == "stage" || name == "left" }
	ours := map[string]bool{"stage": true, "left": true, "former": true}
	for name, c := range map[string]struct {
		why              string
		live, work, want map[string]any
	}{
		"written meanwhile": {"it is theirs", map[string]any{"theirs": "new"}, map[string]any{"stage": "Two"}, map[string]any{"theirs": "new", "stage": "Two"}},
		"changed meanwhile": {"theirs is the newer one", map[string]any{"theirs": "new"}, map[string]any{"theirs": "old"}, map[string]any{"theirs": "new"}},
		"removed meanwhile": {"we do not bring it back", nil, map[string]any{"theirs": "old", "stage": "Two"}, map[string]any{"stage": "Two"}},
		"shown by us":       {"ours is the newer one", map[string]any{"stage": "One", "left": int64(1)}, map[string]any{"stage": "Two"}, map[string]any{"stage": "Two"}},
		"shown formerly":    {"the file does not have it any more", map[string]any{"former": 1}, map[string]any{}, map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, othersOf(c.live, c.work, shown, ours)); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}
