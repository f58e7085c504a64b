package expr

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSON(t *testing.T) {
	scope, err := NewScope(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		why, expr string
		want      any
		failure   string
	}{
		"a field":    {why: "bodies of answers are JSON", expr: `json('{"data":{"result":[{"value":[1.5,"7"]}]}}').data.result[0].value[1]`, want: "7"},
		"whole":      {why: "a number that is whole counts", expr: `json('{"n":3}').n + 1`, want: int64(4)},
		"missing":    {why: "an optional says that there is none", expr: `json('{}').?n.orValue(0)`, want: int64(0)},
		"a list":     {why: "a loop goes over it", expr: `json('[1,2]').map(n, n * 2)`, want: []any{int64(2), int64(4)}},
		"no JSON":    {why: "an error page of a proxy", expr: `json('<html>')`, failure: "json: invalid character '<'"},
		"too much":   {why: "nothing makes a pass slow", expr: `json('[' + "` + strings.Repeat("1,", 4000) + `" + '1]').size() > 0`, want: true},
		"costs more": {why: "a reconcile ends, whatever it reads", expr: `[1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, [1,2,3,4,5,6,7,8,9].all(z, json('[' + "` + strings.Repeat("1,", 3900) + `" + '1]').size() > 0)))`, failure: "actual cost limit exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			e, problems := scope.Compile(c.expr)
			if e == nil {
				t.Fatal(problems)
			}
			v, _, err := e.Eval(t.Context(), noVariables{})
			if c.failure != "" {
				if err == nil || !strings.Contains(err.Error(), c.failure) {
					t.Errorf("%s: %v, %v; want the error %q", c.why, v, err, c.failure)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", c.why, err)
			}
			got, err := Native(v)
			if d := cmp.Diff(c.want, got); d != "" || err != nil {
				t.Errorf("%s (-want +got):\n%s%v", c.why, d, err)
			}
		})
	}
}

// Whether an expression reads the item of a loop, and not a variable that a macro calls so.
func TestReadsItem(t *testing.T) {
	scope, err := NewScope(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, c := range map[string]struct {
		why  string
		want bool
	}{
		`[1].map(item, item + 1)`:                   {"the macro's own", false},
		`item.name`:                                 {"the loop's", true},
		`item.list.map(item, item.name)`:            {"both", true},
		`[{"item": 1}].all(x, x.item == 1)`:         {"a field has the name", false},
		`[1].exists(x, [2].exists(item, item > x))`: {"an inner macro's", false},
		`{"a": [item]}`:                             {"in a literal", true},
	} {
		scope.Item = true
		e, problems := scope.Compile(text)
		if e == nil {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		if e.PerItem != c.want {
			t.Errorf("%s: %s, but it reads item: %t", text, c.why, e.PerItem)
		}
		scope.Item = false
		if e, _ := scope.Compile(text); (e == nil) != c.want {
			t.Errorf("%s: outside of a loop it is refused: %t", text, e == nil)
		}
	}
}

type noVariables struct{}

func (noVariables) ResolveName(string) (any, bool) { return nil, false }
func (noVariables) Parent() variables              { return nil }
