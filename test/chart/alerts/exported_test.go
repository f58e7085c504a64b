package alerts

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	metricsPage   = root + "/docs/operate/metrics.md"
	dashboardFile = root + "/charts/phasegate/files/monitoring/dashboard.json"
	helpPage      = root + "/docs/operate/troubleshooting.md"
)

// libraries are metrics that the libraries of the manager export.
var libraries = map[string][]string{
	"rest_client_requests_total":    {"code", "host", "method"},
	"process_resident_memory_bytes": nil,
	"process_cpu_seconds_total":     nil,
}

// ofTarget are the labels that a scrape adds.
var ofTarget = []string{"job", "instance", "pod", "namespace", "container"}

// exported are the labels of each series that there can be: those of the page, which
// is made from what the manager registers, of libraries and of recording rules.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(libraries)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\| ([a-z_, ]*) \\|").FindAllStringSubmatch(string(page), -1) {
		name, kind, of := m[1], m[2], strings.Fields(strings.ReplaceAll(m[3], ",", ""))
		if kind == "histogram" {
			all[name+"_bucket"], all[name+"_sum"], all[name+"_count"] = append(slices.Clone(of), "le"), of, of
			continue
		}
		all[name] = of
	}
	if len(all) < 40 {
		t.Fatalf("only %d metrics are on %s: is it still written as this test reads it?", len(all), metricsPage)
	}
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				all[rule.Record] = nil
			}
		}
	}
	return all
}

// check names the metrics and labels of a query that nobody exports.
func check(query string, exported map[string][]string) (faults []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			of, found := exported[n.Name]
			if !found {
				faults = append(faults, fmt.Sprintf("nobody exports %q", n.Name))
			}
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(slices.Concat(of, ofTarget), m.Name) {
					faults = append(faults, fmt.Sprintf("%s has no label %q", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			faults = append(faults, unknown(n.Grouping, n.Expr, exported)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				faults = append(faults, unknown(n.VectorMatching.MatchingLabels, n.LHS, exported)...)
				faults = append(faults, unknown(n.VectorMatching.MatchingLabels, n.RHS, exported)...)
			}
		}
		return nil
	})
	return faults
}

// unknown names the labels that a series of an expression does not have.
func unknown(names []string, expr parser.Expr, exported map[string][]string) (faults []string) {
	for _, series := range selected(expr) {
		for _, name := range names {
			if !slices.Contains(slices.Concat(exported[series], ofTarget), name) {
				faults = append(faults, fmt.Sprintf("%s has no label %q", series, name))
			}
		}
	}
	return faults
}

// selected are the metrics whose labels an expression may have: not those that only
// choose among others.
func selected(node parser.Node) (names []string) {
	if n, is := node.(*parser.BinaryExpr); is && (n.Op == parser.LAND || n.Op == parser.LUNLESS) {
		return selected(n.LHS)
	}
	if n, is := node.(*parser.VectorSelector); is {
		names = append(names, n.Name)
	}
	for child := range parser.ChildrenIter(node) {
		names = append(names, selected(child)...)
	}
	return names
}

func TestCheckFindsFaults(t *testing.T) {
	all := map[string][]string{"there": {"object"}}
	cases := map[string]struct {
		why, query string
		want       []string
	}{
		"right":             {why: "nothing to find", query: `max by (object, pod) (there{object="x"}) > 0`},
		"no such metric":    {why: "a renamed one", query: `gone > 0`, want: []string{`nobody exports "gone"`}},
		"no such label":     {why: "the matcher would never match", query: `there{name="x"}`, want: []string{`there has no label "name"`}},
		"no such group":     {why: "all objects would be one", query: `max by (name) (there)`, want: []string{`there has no label "name"`}},
		"no such match":     {why: "the two would never meet", query: `there and on (name) max by (object) (there)`, want: []string{`there has no label "name"`, `there has no label "name"`}},
		"chosen by others":  {why: "what chooses need not have the label", query: `sum by (object) (there and on (job) max by (job) (there))`},
		"no query language": {why: "a missing parenthesis", query: `max(there`, want: []string{`1:10: parse error: unclosed left parenthesis`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, check(c.query, all)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestRulesAskForWhatIsExported(t *testing.T) {
	all := exported(t)
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			for _, fault := range check(rule.Expr, all) {
				t.Errorf("%s%s: %s", rule.Record, rule.Alert, fault)
			}
		}
	}
}

// A person who is woken up needs to know what, how bad, and what to do next.
func TestAlertsTellWhatToDo(t *testing.T) {
	page, err := os.ReadFile(helpPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules(t) {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			url := "https://github.com/phasegate/phasegate/blob/main/docs/operate/troubleshooting.md#alert-" + strings.ToLower(rule.Alert)
			switch {
			case rule.Annotations["runbook_url"] != url:
				t.Errorf("%s: runbook_url %q, want %q", rule.Alert, rule.Annotations["runbook_url"], url)
			case !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]):
				t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
			case rule.Annotations["summary"] == "" || !strings.Contains(rule.Annotations["description"], "kubectl "):
				t.Errorf("%s: no summary, or no command in the description", rule.Alert)
			case !regexp.MustCompile(`(?m)^#+ Alert ` + rule.Alert + `$`).Match(page):
				t.Errorf("%s: not a heading of %s", rule.Alert, helpPage)
			}
		}
	}
}

// dashboard is what these tests look at of Grafana's format.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID string }
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ RefID, Expr string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// filled puts something that parses in the place of Grafana's variables.
var filled = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$object", ".*")

func TestDashboardAsksForWhatIsExported(t *testing.T) {
	d, all := readDashboard(t), exported(t)
	shown := map[string]bool{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, fault := range check(filled.Replace(target.Expr), all) {
				t.Errorf("panel %q, %s: %s", p.Title, target.RefID, fault)
			}
			if strings.Contains(filled.Replace(target.Expr), "$") {
				t.Errorf("panel %q, %s: a variable that is not there: %s", p.Title, target.RefID, target.Expr)
			}
			for name := range all {
				shown[name] = shown[name] || strings.Contains(target.Expr, name)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "phasegate_migration_") && !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	if d.SchemaVersion < 39 {
		t.Errorf("schema %d, want 39 or later", d.SchemaVersion)
	}
	var rows, variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q: id %d is taken or 0", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %d %q: title, description, query and the data source of the variable are needed", p.ID, p.Title)
		}
	}
	want := [][]string{
		{"datasource datasource", "namespace query", "object query"},
		{"Migration of the Calico datastore", "Machines and their objects", "MCP servers and controllers"},
	}
	if diff := cmp.Diff(want, [][]string{variables, rows}); diff != "" {
		t.Errorf("variables and rows (-want +got):\n%s", diff)
	}
}

// Grafana moves panels that lie over each other, each time in another way.
func TestPanelsDoNotOverlap(t *testing.T) {
	const columns = 24
	taken := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		at := p.GridPos
		if at.X+at.W > columns {
			t.Errorf("panel %q goes beyond the edge", p.Title)
		}
		for i := range at.W * at.H {
			cell := [2]int{at.X + i%at.W, at.Y + i/at.W}
			if other := taken[cell]; other != "" {
				t.Fatalf("panel %q lies over %q", p.Title, other)
			}
			taken[cell] = p.Title
		}
	}
}
