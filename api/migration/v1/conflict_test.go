package v1

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConflict(t *testing.T) {
	whole := Conflict{Kind: "NetworkPolicy", Namespace: "shop", Name: "default.web", Fields: []string{"spec.order: 1 in v1, 2 in v3", "spec.tier: a in v1, b in v3"}}
	for name, c := range map[string]struct {
		why     string
		message string
		want    Conflict
		ok      bool
	}{
		"namespaced":     {"what is written comes back", whole.Message(), whole, true},
		"cluster-scoped": {"without a namespace", (&Conflict{Kind: "Tier", Name: "t"}).Message(), Conflict{Kind: "Tier", Name: "t"}, true},
		"cut":            {"a condition's message has a bound", strings.TrimSuffix(whole.Message(), " in v3: edit or delete one side"), Conflict{Kind: "NetworkPolicy", Namespace: "shop", Name: "default.web", Fields: []string{"spec.order: 1 in v1, 2 in v3", "spec.tier: a in v1, b"}}, true},
		"a summary":      {"on our CRD one condition stands for all", "3 objects differ between v1 and v3, the first is Tier t", Conflict{}, false},
		"another's":      {"a controller may write what it likes", "conflict", Conflict{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseConflict(c.message)
			if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, ok, diff)
			}
		})
	}
}
