package reference_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// names are what ToolHive's operator does for an MCPServer besides the fields of its CRD.
type names struct {
	Conditions, Watches, Labels, File []string
}

// sections are the headings of the page's tables, by the list that each must have.
var sections = map[string]func(names) []string{
	"## Conditions":                     func(n names) []string { return n.Conditions },
	"## Watches":                        func(n names) []string { return n.Watches },
	"## Labels, annotations, finalizer": func(n names) []string { return n.Labels },
	"## The file of ToolHive's proxy":   func(n names) []string { return n.File },
}

func toolHiveNames(t *testing.T) (n names) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "toolhive-names.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// table is one of the page that decides: its heading, and the cells of its rows.
type table struct {
	heading string
	rows    [][]string
}

// tables are those with a verdict in them: all but the legend, and the one of types.
func tables(t *testing.T) (found []table) {
	t.Helper()
	data, err := os.ReadFile("toolhive-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	heading, decides := "", false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			heading = line
		case !strings.HasPrefix(line, "|"):
			decides = false
		case strings.HasSuffix(line, "| how, and why |"):
			decides = true
			found = append(found, table{heading: heading})
		case decides && !strings.HasPrefix(line, "|---"):
			last := &found[len(found)-1]
			last.rows = append(last.rows, strings.Split(strings.Trim(line, "|"), "|"))
		}
	}
	return found
}

// emptyRows are the rows that do not decide, or depart without a reason.
func emptyRows(all []table) (empty []string) {
	for _, table := range all {
		for _, cells := range table.rows {
			what, why := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
			for _, verdict := range cells[1 : len(cells)-1] {
				verdict = strings.TrimSpace(verdict)
				if !slices.Contains([]string{"equal", "refused", "departure"}, verdict) || what == "" || verdict == "departure" && why == "" {
					empty = append(empty, table.heading+": "+strings.Join(cells, "|"))
					break
				}
			}
		}
	}
	return empty
}

// unnamed are the names that no first cell below a heading has as a word.
func unnamed(all []table, heading string, want []string) (missing []string) {
	var text strings.Builder
	for _, table := range all {
		if table.heading == heading {
			for _, cells := range table.rows {
				text.WriteString(cells[0] + "\n")
			}
		}
	}
	for _, name := range want {
		if !regexp.MustCompile(`(^|[ \x60\n])` + regexp.QuoteMeta(name) + `($|[,\x60 \n])`).MatchString(text.String()) {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestNoRowIsEmpty(t *testing.T) {
	for _, row := range emptyRows(tables(t)) {
		t.Errorf("neither equal, refused nor a departure with a reason: %s", row)
	}
}

func TestEachNameHasARow(t *testing.T) {
	all := tables(t)
	for heading, list := range sections {
		want := list(toolHiveNames(t))
		if len(want) == 0 {
			t.Errorf("%s: no names: are they read?", heading)
		}
		for _, name := range unnamed(all, heading, want) {
			t.Errorf("%s has no row in %q", name, heading)
		}
	}
}

// What these tests would find: each name, and each field, whose row is taken out.
func TestWhatIsMissingIsFound(t *testing.T) {
	all := tables(t)
	for heading, list := range sections {
		for _, name := range list(toolHiveNames(t)) {
			var rest []table
			for _, one := range all {
				one.rows = slices.DeleteFunc(slices.Clone(one.rows), func(cells []string) bool {
					return len(unnamed([]table{{heading, [][]string{cells}}}, heading, []string{name})) == 0
				})
				rest = append(rest, one)
			}
			if len(unnamed(rest, heading, []string{name})) == 0 {
				t.Errorf("%s: that %s has no row would not be seen", heading, name)
			}
		}
	}
	broken := []table{{"## X", [][]string{{" `a` ", " equal ", " departure ", " "}, {" `b` ", " equal ", "  ", " why "}, {" `c` ", " equal ", " equal ", " "}}}}
	if got := emptyRows(broken); len(got) != 2 {
		t.Errorf("of three rows, two are empty; found %q", got)
	}
	fields := map[string]bool{"spec.image": true, "spec.sessionStorage": true, "spec.sessionStorage.tls.caCertSecretRef.name": true}
	said := map[string]row{"spec.image": {}, "spec.sessionStorage": {}, "spec.sessionStorage.tls": {}}
	if got := without(said, fields); !slices.Equal(got, []string{"spec.sessionStorage.tls.caCertSecretRef.name"}) {
		t.Errorf("a field below one that has a row is without one; found %q", got)
	}
}

// envSource names a directory with ToolHive's sources of v0.63.0, whose names are facts.
const envSource = "TOOLHIVE_SOURCE"

func TestNamesAreThoseOfToolHive(t *testing.T) {
	dir := os.Getenv(envSource)
	if dir == "" {
		t.Skipf("not run: %s names no directory of ToolHive's sources", envSource)
	}
	operator := filepath.Join(dir, "cmd", "thv-operator")
	controller := filepath.Join(operator, "controllers", "mcpserver_controller.go")
	got := names{
		// All but ConditionReason…
		Conditions: append(constants(t, `Condition(?:[A-QS-Z]|R[^e]|Re[^a]|Rea[^s])\w*`, filepath.Join(operator, "api", "v1beta1", "mcpserver_types.go")),
			constants(t, `ConditionTypeReady`, filepath.Join(operator, "api", "v1beta1", "mcpremoteproxy_types.go"))...),
		Watches: within(t, ") SetupWithManager(", `(?:For|Owns|Watches)\(\s*&\w+\.(\w+)\{`, controller),
		Labels: slices.Concat(
			constants(t, `(?:RestartedAt|RestartStrategy|LastProcessedRestart)AnnotationKey|MCPServerFinalizerName|authzLabelKey`, controller),
			constants(t, `\w*ChecksumAnnotation`, filepath.Join(operator, "pkg", "runconfig", "configmap", "checksum", "checksum.go")),
			constants(t, `\w*ChecksumAnnotation`, filepath.Join(operator, "pkg", "controllerutil", "authserver.go")),
			constants(t, `RunConfigMCPServerGenerationAnnotation`, filepath.Join(dir, "pkg", "container", "kubernetes", "client.go")),
			constants(t, `Label(?:ToolHive|Name|BaseName|Transport|Port)`, filepath.Join(dir, "pkg", "labels", "labels.go")),
			within(t, "func labelsForMCPServer(", `"([^"]+)":`, controller),
			within(t, "func labelsForRunConfig(", `"([^"]+)":`, filepath.Join(operator, "controllers", "mcpserver_runconfig.go"))),
		File: within(t, "type RunConfig struct {", `json:"([^",-][^",]*)`, filepath.Join(dir, "pkg", "runner", "config.go")),
	}
	want := toolHiveNames(t)
	for i, list := range reflect.VisibleFields(reflect.TypeFor[names]()) {
		ours, theirs := reflect.ValueOf(want).Field(i).Interface().([]string), reflect.ValueOf(got).Field(i).Interface().([]string)
		slices.Sort(theirs)
		if diff := cmp.Diff(slices.Compact(theirs), ours); diff != "" {
			t.Errorf("%s (-theirs +testdata/toolhive-names.yaml):\n%s", list.Name, diff)
		}
	}
}

// within are the texts that a pattern finds in a declaration of a file, which begins so; in all of the file if that is empty.
func within(t *testing.T, begins, pattern, file string) (found []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, part, is := strings.Cut(string(data), begins)
	if !is {
		t.Fatalf("%s has no %q", file, begins)
	}
	if begins != "" {
		part, _, _ = strings.Cut(part, "\n}\n")
	}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(part, -1) {
		found = append(found, m[1])
	}
	return found
}

// constants are the values of those texts whose name matches.
func constants(t *testing.T, name, file string) []string {
	t.Helper()
	return within(t, "", `(?m)^\s*(?:const )?(?:`+name+`)(?: \w+)?\s*= "([^"]*)"`, file)
}
