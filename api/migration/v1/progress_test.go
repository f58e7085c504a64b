package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCounts(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		text string
		want []KindCount
	}{
		"two":       {"as it is written", "Tier=3/3 NetworkPolicy=10/200", []KindCount{{"Tier", 3, 3, 0}, {"NetworkPolicy", 10, 200, 0}}},
		"conflicts": {"which kinds they are of", "Tier=3/3,conflicts=2 IPPool=1/1", []KindCount{{"Tier", 3, 3, 2}, {"IPPool", 1, 1, 0}}},
		"none":      {"before the plan", "", nil},
		"strange":   {"a newer controller may write more: what is understood is shown", "Tier=3/3 x IPPool=one/2", []KindCount{{"Tier", 3, 3, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Progress{Kinds: c.text}
			if diff := cmp.Diff(c.want, p.ByKind()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
	given := []KindCount{{"Tier", 3, 3, 1}, {"IPPool", 0, 0, 0}, {"NetworkPolicy", 10, 200, 0}}
	if got := JoinCounts(given); got != "Tier=3/3,conflicts=1 NetworkPolicy=10/200" {
		t.Errorf("kinds without objects take no room: %q", got)
	}
}
