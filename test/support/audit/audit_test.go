package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/rbac"
)

const (
	allowed = `"annotations":{"authorization.k8s.io/decision":"allow"}`
	denied  = `"annotations":{"authorization.k8s.io/decision":"forbid"}`
	manager = `"user":{"username":"manager"}`
)

func TestRead(t *testing.T) {
	get := rbac.Need{Resource: "pods", Name: "p", Namespace: "ns", Verb: "get"}
	cases := map[string]struct {
		why   string
		lines []string
		want  map[string]Requests
	}{
		"twice": {
			why: "a right is used or not",
			lines: []string{
				`{"verb":"get",` + manager + `,"objectRef":{"resource":"pods","name":"p","namespace":"ns"},` + allowed + `}`,
				`{"verb":"get",` + manager + `,"objectRef":{"resource":"pods","name":"p","namespace":"ns"},` + allowed + `}`,
			},
			want: map[string]Requests{"manager": {Allowed: []rbac.Need{get}}},
		},
		"a path": {
			why:   "a role names paths, too",
			lines: []string{`{"verb":"get",` + manager + `,"requestURI":"/version?timeout=1s",` + allowed + `}`},
			want:  map[string]Requests{"manager": {Allowed: []rbac.Need{{URL: "/version", Verb: "get"}}}},
		},
		"another user": {
			why:   "each has rights of its own",
			lines: []string{`{"verb":"get","user":{"username":"x"},"objectRef":{"resource":"pods","name":"p","namespace":"ns"},` + allowed + `}`},
			want:  map[string]Requests{"x": {Allowed: []rbac.Need{get}}},
		},
		"a subresource": {
			why:   "it is a right of its own",
			lines: []string{`{"verb":"patch",` + manager + `,"objectRef":{"resource":"doors","subresource":"status","apiGroup":"example.org"},` + allowed + `}`},
			want:  map[string]Requests{"manager": {Allowed: []rbac.Need{{Group: "example.org", Resource: "doors/status", Verb: "patch"}}}},
		},
		"an apply that creates": {
			why: "the API server asks for create besides, and writes down patch",
			lines: []string{
				`{"verb":"patch",` + manager + `,"objectRef":{"resource":"services","name":"s"},"responseStatus":{"code":201},` + allowed + `}`,
			},
			want: map[string]Requests{"manager": {Allowed: []rbac.Need{
				{Resource: "services", Name: "s", Verb: "create"}, {Resource: "services", Name: "s", Verb: "patch"},
			}}},
		},
		"refused": {
			why:   "a right that is not there is not used",
			lines: []string{`{"verb":"get",` + manager + `,"objectRef":{"resource":"pods","name":"p","namespace":"ns"},"responseStatus":{"code":403},` + denied + `}`},
			want:  map[string]Requests{"manager": {Denied: []rbac.Need{get}}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read(strings.NewReader(strings.Join(c.lines, "\n")+"\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestReadSaysWhere(t *testing.T) {
	cases := map[string]struct{ why, log, want string }{
		"no event": {"a log of something else proves nothing", "{}\nhello\n", "line 2: invalid character"},
		"cut off":  {"who reads while it is written misses something", "{}\n{\"verb\":\"get\"}", "line 2: EOF"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.log), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q: %s", err, c.want, c.why)
			}
		})
	}
}

func TestUnused(t *testing.T) {
	all := rbac.Need{Resource: "pods", Verb: "get"}
	one, other := all, all
	one.Name, other.Name = "p", "q"
	inNamespace := one
	inNamespace.Namespace = "ns"
	ofGroup, everything := all, all
	ofGroup.Resource, everything.Resource, everything.Group = "*", "*", "*"
	cases := map[string]struct {
		why                     string
		granted, requests, want []rbac.Need
	}{
		"used":            {"a right to all is one to each", []rbac.Need{all}, []rbac.Need{one}, nil},
		"in a namespace":  {"a role of the cluster is for all", []rbac.Need{one}, []rbac.Need{inNamespace}, nil},
		"another object":  {"the right to one is not used by asking for another", []rbac.Need{one}, []rbac.Need{other}, []rbac.Need{one}},
		"another verb":    {"nobody asked", []rbac.Need{all}, []rbac.Need{{Resource: "pods", Name: "p", Verb: "list"}}, []rbac.Need{all}},
		"the wide one":    {"the narrow one would do", []rbac.Need{all, one}, []rbac.Need{one}, []rbac.Need{all}},
		"the narrow one":  {"it was not asked for by name", []rbac.Need{all, one}, []rbac.Need{other}, []rbac.Need{one}},
		"a whole group":   {"it is for kinds that nobody knows beforehand", []rbac.Need{ofGroup}, []rbac.Need{one}, nil},
		"everything":      {"so is this", []rbac.Need{everything}, []rbac.Need{one}, nil},
		"the group's one": {"the narrowest right is used", []rbac.Need{everything, ofGroup, all}, []rbac.Need{one}, []rbac.Need{everything, ofGroup}},
		"nothing granted": {"nothing can be too much", nil, []rbac.Need{one}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Unused(c.granted, c.requests), cmp.Transformer("sorted", func(n []rbac.Need) []string {
				var texts []string
				for _, need := range n {
					texts = append(texts, need.String())
				}
				return texts
			})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// While roles go before the programs that use them, a denial says nothing; what was allowed counts all the same.
func TestReadExcuses(t *testing.T) {
	line := func(second, verb, decision string) string {
		return `{"verb":"` + verb + `",` + manager + `,"requestReceivedTimestamp":"2026-01-01T00:00:` + second + `.000000Z","objectRef":{"resource":"pods"},` + decision + "}\n"
	}
	log := line("01", "list", denied) + line("02", "get", denied) + line("02", "watch", allowed)
	got, err := Read(strings.NewReader(log), func(at time.Time) bool { return at.Second() == 2 })
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Requests{"manager": {Allowed: []rbac.Need{{Resource: "pods", Verb: "watch"}}, Denied: []rbac.Need{{Resource: "pods", Verb: "list"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
