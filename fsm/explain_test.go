package fsm

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatDecidedAGuard(t *testing.T) {
	type answer struct {
		Open        bool
		Part, Value string
		Asked       []string
	}
	for name, c := range map[string]struct {
		why, when string
		want      answer
	}{
		"value":                {"the value that decided", `result.n > 10`, answer{Part: `result.n > 10`, Value: "result.n = 7"}},
		"first of two":         {"the other part would have been true", `result.n == 0 && "v1Lock" in held`, answer{Part: `result.n == 0`, Value: "result.n = 7"}},
		"second of two":        {"what was true is no reason", `result.n == 7 && result.name == "m"`, answer{Part: `result.name == "m"`, Value: `result.name = "n"`}},
		"deep":                 {"the smallest part that is enough", `result.n == 7 && (result.ratio == 2.0 && (result.name == "n" && result.n < 7))`, answer{Part: `result.n < 7`, Value: "result.n = 7"}},
		"or":                   {"both sides had to be false", `result.n > 10 || result.name == "m"`, answer{Part: `result.n > 10 || result.name == "m"`, Value: `result.n = 7, result.name = "n"`}},
		"or of ands":           {"of each side the part that is false", `result.n == 7 && result.n == 8 || result.name == "m"`, answer{Part: `result.n == 8 || result.name == "m"`, Value: `result.n = 7, result.name = "n"`}},
		"not":                  {"what is true keeps it closed", `!(result.n == 0 || result.name == "n")`, answer{Part: `!(result.name == "n")`, Value: `result.name = "n"`}},
		"not both":             {"it took both to be true", `!(result.n == 7 && result.name == "n")`, answer{Part: `!(result.n == 7 && result.name == "n")`, Value: `result.n = 7, result.name = "n"`}},
		"not not":              {"two make none", `!!(result.n == 7 && result.name == "m")`, answer{Part: `result.name == "m"`, Value: `result.name = "n"`}},
		"not some":             {"parentheses where they are needed", `!((result.n == 7 || guards.open) && result.name == "n")`, answer{Part: `!(result.n == 7 && result.name == "n")`, Value: `result.n = 7, result.name = "n"`}},
		"branch of an or":      {"and here", `(result.n > 3 ? result.no : true) || result.n == 1`, answer{Part: `result.no || result.n == 1`, Value: `result.n = 7, result.no = false`}},
		"branch":               {"the branch that was taken, and what chose it", `result.n > 3 ? result.name == "m" : result.ratio == 1.0`, answer{Part: `result.name == "m"`, Value: `result.n = 7, result.name = "n"`}},
		"other branch":         {"and the other one", `result.n > 9 ? result.name == "n" : result.ratio == 1.0`, answer{Part: `result.ratio == 1.0`, Value: `result.n = 7, result.ratio = 2`}},
		"constant branch":      {"false is no reason", `result.n > 3 ? false : true`, answer{Part: `(result.n > 3) ? false : true`, Value: `result.n = 7`}},
		"branch of a guard":    {"the library does not observe it on its own", `result.n > 3 ? guards.shut : true`, answer{Part: `guards.shut`, Value: "result.n = 7, the door is shut", Asked: []string{"shut"}}},
		"branch of a value":    {"nor this one", `result.n > 3 ? result.no : true`, answer{Part: `result.no`, Value: "result.n = 7, result.no = false"}},
		"each once":            {"a value that is read twice is shown once", `result.n > 10 || result.n == 1`, answer{Part: `result.n > 10 || result.n == 1`, Value: "result.n = 7"}},
		"list":                 {"lists are shown whole", `result.list.size() == 0`, answer{Part: `result.list.size() == 0`, Value: "result.list = [x y]"}},
		"text":                 {"a text is quoted, so that an empty one is seen", `result.name == ""`, answer{Part: `result.name == ""`, Value: `result.name = "n"`}},
		"own quotes":           {"one text, whatever it is written like", `result.name == ''`, answer{Part: `result.name == ""`, Value: `result.name = "n"`}},
		"short cut":            {"what was not looked at is not shown", `result.n == 1 && result.list.size() > 0`, answer{Part: `result.n == 1`, Value: "result.n = 7"}},
		"exists":               {"no element decided; names of the expression's own are noise", `result.list.exists(i, i == "z")`, answer{Part: `result.list.exists(i, i == "z")`, Value: "result.list = [x y]"}},
		"all":                  {"the first element that is not", `result.list.all(i, i != "x")`, answer{Part: `result.list.all(i, i != "x")`, Value: `i = "x"`}},
		"all but one":          {"the list behind it was not looked at", `result.list.all(i, i != "y" || result.n == 1)`, answer{Part: `result.list.all(i, i != "y" || result.n == 1)`, Value: `i = "y", result.n = 7`}},
		"not exists":           {"the first element that is", `!result.list.exists(i, i == "y")`, answer{Part: `!result.list.exists(i, i == "y")`, Value: `i = "y"`}},
		"in a map":             {"by the name that is written", `result.deep.b == 2`, answer{Part: `result.deep.b == 2`, Value: "result.deep.b = 1"}},
		"odd name":             {"as it would have to be written", `self.?meta[?"a/b"].orValue("") == "x"`, answer{Part: `self.?meta[?"a/b"].orValue("") == "x"`, Value: `self.meta["a/b"] = none`}},
		"has":                  {"it is asked whether, not what", `has(self.spec.x)`, answer{Part: `has(self.spec.x)`, Value: `has(self.spec.x) = false`}},
		"variable":             {"a variable is a value", `!variables.big`, answer{Part: `!variables.big`, Value: "variables.big = true"}},
		"clock":                {"what changes by itself would be a status write on each look", `phase.age > duration("1h") && result.n == 7 || now < timestamp("2000-01-01T00:00:00Z")`, answer{Part: `phase.age > duration("1h") || now < timestamp("2000-01-01T00:00:00Z")`}},
		"missing":              {"an error is not taken, and said of the part that fails", `result.n == 7 && result.none > 1`, answer{Part: `result.none > 1`, Value: "error: no such key: none"}},
		"not a boolean":        {"dyn passes the type check; a number is still not true", `result.n`, answer{Part: `result.n`, Value: "error: result.n is 7, not a boolean"}},
		"bad variable":         {"the error of a variable is the guard's", `variables.bad`, answer{Part: `variables.bad`, Value: "error: no such key: none"}},
		"guard":                {"a guard explains itself", `guards.shut`, answer{Part: `guards.shut`, Value: "the door is shut", Asked: []string{"shut"}}},
		"guard and value":      {"the guard let it pass", `!guards.shut && result.n == 1`, answer{Part: `result.n == 1`, Value: "result.n = 7", Asked: []string{"shut"}}},
		"guard or value":       {"neither hides the other", `guards.shut || result.n == 1`, answer{Part: `guards.shut || result.n == 1`, Value: "the door is shut, result.n = 7", Asked: []string{"shut"}}},
		"silent guard":         {"its value, where it says nothing", `!guards.open`, answer{Part: `!guards.open`, Value: "guards.open = true", Asked: []string{"open"}}},
		"lazy":                 {"a guard behind false && is not asked", `false && guards.open`, answer{Part: `false`}},
		"lazy by a value":      {"nor behind one that turns out false", `result.n == 1 && guards.open`, answer{Part: `result.n == 1`, Value: "result.n = 7"}},
		"asked once":           {"three mentions, one question", `guards.open && guards.open && guards["open"]`, answer{Open: true, Part: `guards.open && guards.open && guards.open`, Value: "guards.open = true", Asked: []string{"open"}}},
		"guard that fails":     {"not taken, and said why", `guards.fails`, answer{Part: `guards.fails`, Value: "error: connection refused", Asked: []string{"fails"}}},
		"guard fails in an or": {"the side that is false is no error", `result.n == 1 || guards.fails`, answer{Part: `guards.fails`, Value: "error: connection refused", Asked: []string{"fails"}}},
		"saved by or":          {"an error is overruled by what is true", `guards.fails || result.n == 7`, answer{Open: true, Part: `result.n == 7`, Value: "result.n = 7", Asked: []string{"fails"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			r := runOf(t, func(name string) (bool, string, error) {
				asked = append(asked, name)
				switch name {
				case "shut":
					return false, "the door is shut", nil
				case "fails":
					return false, "", fmt.Errorf("connection refused")
				}
				return true, "", nil
			})
			e, errs := anything(t).Compile(c.when)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			s := r.activation(t.Context())
			v := r.evaluate(e, s)
			r.explain(e, s, &v)
			if v.open && v.err != nil {
				t.Errorf("%s: open in spite of %v", c.why, v.err)
			}
			if d := cmp.Diff(c.want, answer{v.open, v.because, v.got, asked}); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
		})
	}
}
