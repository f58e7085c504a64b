package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

func TestHeldEffectIsOneLine(t *testing.T) {
	cases := map[string]struct {
		why  string
		held v1alpha1.HeldEffect
		want string
	}{
		"NameOnly":   {"found in the cluster: the machine file says what releases it", v1alpha1.HeldEffect{Name: "v1Lock"}, "v1Lock"},
		"NoParams":   {"most releases have none", v1alpha1.HeldEffect{Name: "v1Lock", Release: "UnlockV1"}, "v1Lock → UnlockV1"},
		"With":       {"the target", v1alpha1.HeldEffect{Name: "app", Release: "Patch", With: `{"name":"web","replicas":3}`}, `app → Patch {"name":"web","replicas":3}`},
		"Acquired":   {"both targets", v1alpha1.HeldEffect{Name: "app", Release: "Patch", With: `{"a":{}}`, Acquired: `{"name":"web"}`}, `app → Patch {"a":{}} ← {"name":"web"}`},
		"NoWith":     {"what is taken has a target, what releases it finds it by UID", v1alpha1.HeldEffect{Name: "app", Release: "Free", Acquired: `{"name":"web"}`}, `app → Free ← {"name":"web"}`},
		"Bare":       {"nothing is known of the release", v1alpha1.HeldEffect{Name: "app", Acquired: `{"name":"web"}`}, `app ← {"name":"web"}`},
		"Separators": {"values hold what separates the parts", v1alpha1.HeldEffect{Name: "app", Release: "Say", With: `{"text":"a → b ← {c}"}`, Acquired: `{"text":" → "}`}, `app → Say {"text":"a → b ← {c}"} ← {"text":" → "}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line, back := thereAndBack(t, tc.held)
			if diff := cmp.Diff(tc.want, tc.held.String()) + cmp.Diff(any(tc.want), line); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.held, back); diff != "" {
				t.Errorf("%s: read back (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

func TestHeldEffectRefuses(t *testing.T) {
	cases := map[string]struct{ why, text string }{
		"Object":    {"not a line", `{"name":"a"}`},
		"Empty":     {"no name", `""`},
		"TwoWords":  {"a name has no space", `"v1 Lock"`},
		"NotJSON":   {"the parameters are cut off", `"app → Patch {\"name\":"`},
		"More":      {"something is left over", `"app → Patch {} {}"`},
		"NoRelease": {"parameters of nothing", `"app {\"a\":1}"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got v1alpha1.HeldEffect
			if err := json.Unmarshal([]byte(tc.text), &got); err == nil {
				t.Errorf("%s, yet it was read as %+v", tc.why, got)
			}
		})
	}
}

// In the status of an object one line lists what is held, and it reads back.
func TestHeldEffectsAreFewLines(t *testing.T) {
	cases := map[string]struct {
		why  string
		held v1alpha1.HeldEffects
		want string
	}{
		"Nothing":  {"no effect, no list", nil, `null`},
		"Empty":    {"a list without effects stays one", v1alpha1.HeldEffects{}, `[]`},
		"One":      {"as it was", v1alpha1.Held("a"), `["a"]`},
		"Names":    {"a view has the names alone", v1alpha1.Held("a", "b", "c"), `["a, b, c"]`},
		"Releases": {"a state has what releases each", v1alpha1.HeldEffects{{Name: "a", Release: "X", With: `{"k":"v, w"}`}, {Name: "b"}}, `["a → X {\"k\":\"v, w\"}","b"]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, back := thereAndBack(t, tc.held)
			var want any
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got) + cmp.Diff(want, tc.held.ToUnstructured()); diff != "" {
				t.Errorf("%s, also without JSON (-want +got):\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.held, back); diff != "" {
				t.Errorf("%s: read back (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
