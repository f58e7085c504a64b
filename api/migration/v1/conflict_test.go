package v1

import (
	"encoding/json"
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

func TestConflictsAreOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		why  string
		all  Conflicts
		line string
		back Conflicts
	}{
		"two": {"what is written comes back",
			Conflicts{{Kind: "NetworkPolicy", Namespace: "shop", Name: "web", Fields: []string{"spec.order: 1 in v1, 2 in v3", "spec.tier: a in v1, b in v3"}}, {Kind: "Tier", Name: "t"}},
			"NetworkPolicy shop/web: spec.order: 1 in v1, 2 in v3; spec.tier: a in v1, b in v3 | Tier t", nil},
		"separators": {"what separates two conflicts is replaced inside a value", Conflicts{{Kind: "Tier", Name: "t", Fields: []string{"a: \"x | y\""}}},
			"Tier t: a: \"x ¦ y\"", Conflicts{{Kind: "Tier", Name: "t", Fields: []string{"a: \"x ¦ y\""}}}},
	} {
		data, err := json.Marshal(c.all)
		if err != nil {
			t.Fatal(err)
		}
		var line string
		var back Conflicts
		if json.Unmarshal(data, &line) != nil || json.Unmarshal(data, &back) != nil {
			t.Fatalf("%s: not read back: %s", name, data)
		}
		if c.back == nil {
			c.back = c.all
		}
		if diff := cmp.Diff(c.line, line) + cmp.Diff([]Conflict(c.back), []Conflict(back)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
	var earlier Conflicts
	if err := json.Unmarshal([]byte(`[{"kind":"Tier","name":"t"}]`), &earlier); err != nil || len(earlier) != 1 || earlier[0].Name != "t" {
		t.Errorf("the list that earlier versions wrote: %v, %v", earlier, err)
	}
}
