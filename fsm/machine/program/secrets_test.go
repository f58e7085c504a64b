package program

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// Who writes the object that an expression reads must not choose which Secret the manager reads.
func TestNoExpressionMakesAReference(t *testing.T) {
	key := map[string]any{"name": "theirs", "key": "token"}
	manifest := func(kind string, texts any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": kind, "stringData": texts}
	}
	cases := map[string]struct {
		why     string
		use     SecretUse
		written any
		found   any // what the expression comes to
		refused bool
	}{
		"whole":               {"the object is the reference", SecretsAnywhere, map[string]any{"a": "${x}"}, map[string]any{"secret": key}, true},
		"part":                {"the same", SecretsAnywhere, map[string]any{"secret": "${x}"}, key, true},
		"deep":                {"the same", SecretsAnywhere, "${x}", map[string]any{"a": []any{map[string]any{"secretOutput": "key"}}}, true},
		"name":                {"the author of the file wants that", SecretsAnywhere, map[string]any{"secret": map[string]any{"name": "${x}", "key": "token"}}, "any", false},
		"beside one":          {"content is content", SecretsAnywhere, map[string]any{"a": map[string]any{"secret": key}, "b": "${x}"}, map[string]any{"c": "d"}, false},
		"in a Secret":         {"it would be filled in", SecretsInSecret, manifest("Secret", "${x}"), map[string]any{"a": map[string]any{"secret": key}}, true},
		"in a kind":           {"it is a field of the kind", SecretsInSecret, manifest("Thing", "${x}"), map[string]any{"a": map[string]any{"secret": key}}, false},
		"where nothing reads": {"it is content", "", "${x}", map[string]any{"secret": key}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			compile := func(_, text string) *expr.Template {
				parsed, _ := expr.ParseTemplate(text, func(string) (*expr.Expr, []expr.Problem) { return &expr.Expr{Text: "x"}, nil })
				return parsed
			}
			a := &Action{Use: "Act", Spec: ActionSpec{Params: map[string]Param{"any": {Type: expr.TypeAny, Secrets: c.use}}},
				With: map[string]*expr.Value{"any": expr.NewValue("any", c.written, compile)}}
			_, err := a.Params(func(*expr.Expr) (ref.Val, error) { return types.DefaultTypeAdapter.NativeToValue(c.found), nil }, nil)
			if refused := err != nil && strings.Contains(err.Error(), "only the machine file may write one"); refused != c.refused || err != nil && !refused {
				t.Errorf("%s: got %v, want refused %v", c.why, err, c.refused)
			}
		})
	}
}

func TestAsSecretRef(t *testing.T) {
	key := map[string]any{"name": "a", "key": "b"}
	cases := map[string]struct {
		why   string
		value any
		want  *SecretRef
		err   bool
	}{
		"key":        {why: "of a Secret", value: map[string]any{"secret": key}, want: &SecretRef{Name: "a", Key: "b"}},
		"formatted":  {why: "with words around it", value: map[string]any{"secret": key, "format": "a %s b"}, want: &SecretRef{Name: "a", Key: "b", Format: "a %s b"}},
		"output":     {why: "of a step", value: map[string]any{"secretOutput": "k"}, want: &SecretRef{Output: "k"}},
		"both":       {why: "it is not clear which", value: map[string]any{"secret": key, "secretOutput": "k"}},
		"more":       {why: "content that has such a field", value: map[string]any{"secret": key, "other": 1}},
		"text":       {why: "the same", value: map[string]any{"secret": "a"}},
		"no key":     {why: "all keys would be too many", value: map[string]any{"secret": map[string]any{"name": "a"}}, err: true},
		"misspelt":   {why: "it would be sent", value: map[string]any{"secret": map[string]any{"name": "a", "key": "b", "kez": "c"}}, err: true},
		"two places": {why: "the value goes to one", value: map[string]any{"secretOutput": "k", "format": "%s%s"}, err: true},
		"a number":   {why: "there is %s alone", value: map[string]any{"secretOutput": "k", "format": "%d"}, err: true},
		"no name":    {why: "it could be no key", value: map[string]any{"secretOutput": "a b"}, err: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := AsSecretRef(c.value)
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.err {
				t.Errorf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
		})
	}
}
