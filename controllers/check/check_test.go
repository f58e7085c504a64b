package check

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/controllers/rbac"
)

var update = flag.Bool("update", false, "write testdata anew")

func TestJudgeVersion(t *testing.T) {
	cases := map[string]struct {
		why  string
		want Level
	}{
		"v1.29.14":            {"no ValidatingAdmissionPolicy there", Failure},
		"v1.30.0":             {"the first one", Info},
		"v1.30.0-rc.1":        {"serves the same", Info},
		"v1.37.2":             {"what we test with", Info},
		"v1.31.4-gke.1183000": {"providers add to it", Info},
		"v1.34.1+k3s1":        {"so do distributions", Info},
		"":                    {"something between us and the API server answers", Failure},
	}
	for version, c := range cases {
		if got := worst(judgeVersion(version)); got != c.want {
			t.Errorf("%q: got %s, want %s: %s", version, got, c.want, c.why)
		}
	}
}

// Rights to one object are one line, whatever may not be done to it.
func TestDenied(t *testing.T) {
	need := func(verb, resource, name string, who ...string) rbac.Need {
		return rbac.Need{Group: "g", Resource: resource, Name: name, Verb: verb, For: who}
	}
	got := denied([]rbac.Need{need("create", "a", "", "Copy"), need("delete", "a", "", "Copy", "Abort"), need("get", "a", "x", "Look")}, "grant it")
	want := []Finding{
		{Failure, "this account may not create, delete a.g (needed by Abort, Copy)", "grant it"},
		{Failure, "this account may not get a.g x (needed by Look)", "grant it"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// answers is a check that answers at once.
func answers(id string, err error, findings ...Finding) Check {
	return Check{ID: id, Title: "title of " + id, Run: func(context.Context) ([]Finding, error) { return findings, err }}
}

func groups() []Group {
	return []Group{
		{"cluster", []Check{
			answers("fine", nil, Finding{Info, "as it should be", ""}),
			answers("quiet", nil),
		}},
		{"datastoremigration", []Check{
			answers("warned", nil, Finding{Info, "seen", ""}, Finding{Warning, "odd", "look"}),
			answers("failed", nil, Finding{Warning, "odd", "look"}, Finding{Failure, "wrong", "repair it"}, Finding{Failure, "worse", ""}),
			answers("mute", errors.New("no answer")),
		}},
	}
}

func TestReport(t *testing.T) {
	report := Make(t.Context(), groups())
	for _, format := range []string{Table, JSON} {
		t.Run(format, func(t *testing.T) {
			var out strings.Builder
			if err := report.Write(&out, format); !errors.Is(err, ErrFailed) {
				t.Errorf("got %v, want that a check failed", err)
			}
			golden := filepath.Join("testdata", "report."+format)
			if *update {
				if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("(-want +got; go test ./controllers/check -update writes it anew):\n%s", diff)
			}
		})
	}
	if err := KnownFormat("yaml"); err == nil || !strings.Contains(err.Error(), "table or json") {
		t.Errorf("got %v, want which formats there are", err)
	}
}

func TestWarningsFailNobody(t *testing.T) {
	report := Make(t.Context(), []Group{{"g", []Check{answers("warned", nil, Finding{Warning, "odd", "look"})}}})
	if err := report.Write(&strings.Builder{}, Table); err != nil {
		t.Error(err)
	}
}

func TestSplit(t *testing.T) {
	all := Ask(t.Context(), groups()[1].Checks)
	blockers, warnings, err := Split(all)
	if diff := cmp.Diff([]string{"failed: wrong: repair it", "failed: worse"}, blockers); diff != "" {
		t.Errorf("blockers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"warned: odd: look", "failed: odd: look"}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if err == nil || err.Error() != "check mute: no answer" {
		t.Errorf("got %v, want that mute has no answer: it must not look like a pass", err)
	}
}
