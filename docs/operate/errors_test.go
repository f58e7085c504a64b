package operate_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What a person reads who is stuck says of what, why, and what to do. The wording is free, but a remedy is a
// clause of its own that begins with what to do.
var remedy = regexp.MustCompile(`(?:^|[:;,?] ?)(?:(?:then|to|or|when|if|in) [^:;,]*[:;,]? ?)*(?:` +
	`abort|annotate|apply|ask|change|check|choose|compare|correct|create|delete|fetch|find|get|give|grant|is this program|leave|let|look|make|move|name|open|` +
	`put|read|remove|rename|retry|run|save|see|send|serve|set|start|stop|then try|try|upgrade|use|wait|write)\b`)

// bare is a text that only passes on another error, which is looked at where it is made.
var bare = regexp.MustCompile(`^%[wvs]$|^%d objects cannot be copied: %s$`)

// wrapping is a context for another error: its reason and remedy are that one's.
var wrapping = regexp.MustCompile(`^.*\S: %w$`)

// Every constructor of an error that reaches a user is called with an object, a reason and a remedy.
func TestErrorsSayWhatToDo(t *testing.T) {
	w := errorWalk{T: t, seen: map[string]int{}}
	walkGo(t, []string{"controllers", "resources"}, w.product)
	walkGo(t, []string{"cmd/kubectl-phasegate", "cmd/kubectl-phasegate/internal/live", "cmd/kubectl-phasegate/internal/deletion"}, w.commands)
	for kind, least := range map[string]int{"fsm.Terminal": 40, "Finding": 15, "Problem": 8, "command line": 30} {
		if w.seen[kind] < least {
			t.Errorf("%d calls of %s were looked at, fewer than %d: the walk misses them", w.seen[kind], kind, least)
		}
	}
}

// errorWalk counts what it has looked at, so that a walk past everything is seen.
type errorWalk struct {
	*testing.T
	seen map[string]int
}

func (w errorWalk) product(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if called(n) == "Terminal" && len(n.Args) > 1 {
			w.seen["fsm.Terminal"]++
			assertRemedy(w.T, "fsm.Terminal", format(n.Args[1]))
		}
		if called(n) == "problemOf" { // of the copier
			w.seen["Problem"]++
			assertFields(w.T, "Problem", map[string]ast.Expr{"Kind": n.Args[0], "Name": n.Args[1], "Reason": n.Args[2], "Message": n.Args[3], "Remedy": n.Args[4]})
		}
	case *ast.CompositeLit:
		if fields, kind := literal(n); kind != "" {
			w.seen[kind]++
			assertFields(w.T, kind, fields)
		}
	}
}

func (w errorWalk) commands(n ast.Node) {
	switch n := n.(type) {
	case *ast.ValueSpec: // sentinels are for programs: who wraps them says the rest
		for i, name := range n.Names {
			if i < len(n.Values) && strings.HasPrefix(strings.ToLower(name.Name), "err") {
				n.Values[i] = ast.NewIdent("nil")
			}
		}
	case *ast.CallExpr:
		if name := called(n); name == "Errorf" || name == "New" && owner(n) == "errors" {
			w.seen["command line"]++
			if text := format(n.Args[0]); !wrapping.MatchString(text) {
				assertRemedy(w.T, "command line", text)
			}
		}
	}
}

func assertRemedy(t *testing.T, kind, text string) {
	t.Helper()
	if !bare.MatchString(text) && !remedy.MatchString(text) {
		t.Errorf("%s does not say what to do: %q", kind, text)
	}
}

// literal are the fields of a finding or of a problem by name, where it is one that is filled in at once.
func literal(n *ast.CompositeLit) (map[string]ast.Expr, string) {
	names := map[string][]string{"Finding": {"Level", "Message", "Remedy"}, "Problem": {"Kind", "Namespace", "Name", "Reason", "Message", "Remedy"}}
	kind := named(n.Type)
	if names[kind] == nil || len(n.Elts) == 0 {
		return nil, ""
	}
	fields := map[string]ast.Expr{}
	for i, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[named(kv.Key)] = kv.Value
		} else {
			fields[names[kind][i]] = e
		}
	}
	return fields, kind
}

func assertFields(t *testing.T, kind string, fields map[string]ast.Expr) {
	t.Helper()
	want := []string{"Message", "Remedy"}
	switch {
	case kind == "Finding" && named(fields["Level"]) == "Info":
		want = want[:1]
	case kind == "Problem" && fields["Reason"] == nil:
		return // its maker fills in the rest field by field
	case kind == "Problem":
		want = []string{"Kind", "Name", "Reason", "Message", "Remedy"}
	}
	for _, name := range want {
		if e := fields[name]; e == nil || format(e) == "" {
			t.Errorf("a %s without %s: %q", kind, name, format(fields["Message"]))
		}
	}
}

// format is the text of an expression; what is not known before it runs is %s.
func format(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return format(e.X) + format(e.Y)
	case *ast.CallExpr:
		if called(e) == "Sprintf" {
			return format(e.Args[0])
		}
	case nil:
		return ""
	}
	return "%s"
}

// owner is the package of a call, such as errors in errors.New.
func owner(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		return named(s.X)
	}
	return ""
}
