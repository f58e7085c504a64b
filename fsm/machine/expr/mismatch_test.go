package expr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What does not fit is said of each side, with the way to make it fit.
func TestPlainly(t *testing.T) {
	cases := map[string]struct{ expr, message, fix string }{
		"duration and number": {`phase.age > 5`, "> has a value of type duration on its left and one of type int on its right", `write a duration as duration("10s")`},
		"number and text":     {`phase.attempts == "5"`, "== has a value of type int on its left and one of type string on its right", "write a number without quotes, or convert with int(…) or string(…)"},
		"text and number":     {`"a" + 1`, "+ has a value of type string on its left and one of type int on its right", "write a number without quotes, or convert with int(…) or string(…)"},
		"fraction":            {`phase.attempts * 1.5 > 3.0`, "* has a value of type int on its left and one of type double on its right", "write 1.0 instead of 1, or convert with double(…) or int(…)"},
		"time":                {`now > "2026"`, `> has a value of type timestamp on its left and one of type string on its right`, `convert a text with timestamp(…); write a time as timestamp("2026-01-31T12:00:00Z")`},
		"not of a number":     {`!phase.attempts`, "! cannot be put before a value of type int", "compare or convert it: each side must be of the same type"},
		"in a text":           {`"a" in phase.name`, "in has a value of type string on its left and one of type string on its right", "convert with string(…)"},
		"method":              {`phase.name.startsWith(1)`, "startsWith(…) of a value of type string does not take (int)", "write a number without quotes, or convert with int(…) or string(…)"},
		"function":            {`size(1) > 0`, "size does not take (int)", "compare or convert it: each side must be of the same type"},
		"conditional":         {`(true ? 1 : "a") == 1`, `?: needs a bool before its ?, and both its values of one type: they are bool, int and string`, "write a number without quotes, or convert with int(…) or string(…)"},
		"map":                 {`{"a": 1} == 2`, "== has a value of type map(string, int) on its left and one of type int on its right", "compare or convert it: each side must be of the same type"},
	}
	s, err := NewScope(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := s.Compile(c.expr)
			if len(errs) != 1 {
				t.Fatalf("findings %v, want one", errs)
			}
			if diff := cmp.Diff([]string{c.message, c.fix}, []string{errs[0].Message, errs[0].Fix}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
