package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1/schema"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

func compiled(t *testing.T, data []byte) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge answers what the schema has against a YAML file; nil for nothing.
func judge(t *testing.T, s *validator.Schema, file string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

const root = "../.."

// Who opens a file that ships, or an example, gets completion without doing anything for it.
func TestShippedFilesAreValidAndNameTheirSchema(t *testing.T) {
	files := 0
	for _, glob := range []string{"phases/*.yaml", "resources/kinds.yaml", "docs/extend/examples/*/*.yaml"} {
		names, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := schemaOf(t, data)
			if s == nil {
				continue // a manifest for a cluster
			}
			files++
			if err := judge(t, s, string(data)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			line, _, _ := strings.Cut(string(data), "\n")
			path, ok := strings.CutPrefix(line, "# yaml-language-server: $schema=")
			if !ok {
				t.Errorf("%s: the first line names no schema: %s", name, line)
			} else if _, err := os.Stat(filepath.Join(filepath.Dir(name), path)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if files < 2 {
		t.Errorf("%d files: the globs miss the shipped ones", files)
	}
}

// What the program takes, the schema takes: an editor that marks a good file red is worse than none.
func TestGoodMachinesAreValid(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs/lint/PG*.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := []string{}
	for _, glob := range []string{"fsm/testdata/machines/*.yaml", "fsm/*/testdata/*.yaml", "fsm/*/*/testdata/*.yaml", "controllers/*/testdata/*.yaml", "cmd/kubectl-phasegate/internal/*/testdata/*.yaml"} {
		names, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, names...)
	}
	machines := 0
	s := compiled(t, schema.Machine)
	for _, name := range append(pages, files...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if strings.HasSuffix(name, ".md") {
			_, text, _ = strings.Cut(text, "\n## Good\n")
			_, text, _ = strings.Cut(text, "```yaml\n")
			text, _, _ = strings.Cut(text, "```")
		}
		if def, _ := fsm.Load(name, []byte(text)); def == nil {
			continue // another kind of file
		}
		machines++
		if err := judge(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if machines < len(pages) {
		t.Errorf("%d machines in %d pages: the test misses some", machines, len(pages))
	}
}

// schemaOf is nil for a file that is of neither kind.
func schemaOf(t *testing.T, data []byte) *validator.Schema {
	t.Helper()
	text := "\n" + string(data)
	switch {
	case strings.Contains(text, "\nkind: Machine\n"):
		return compiled(t, schema.Machine)
	case strings.Contains(text, "\nkind: KindRegistry\n"):
		return compiled(t, schema.KindRegistry)
	}
	return nil
}

// machine is a file that nothing is wrong with, around a phase One.
func machine(phase string) string {
	return `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: test}
spec:
  for: {apiVersion: v1, kind: ConfigMap}
  initial: One
  phases:
  - {name: One, poll: 5s, next: [{to: Done}], onDelete: {immediate: true}}
  - {name: Done, terminal: success, onDelete: {immediate: true}}
` + phase
}

// edited is machine with a text of it replaced.
func edited(old, replacement string) string {
	return strings.Replace(machine(""), old, replacement, 1)
}

var bindings = fsm.Bindings{Actions: map[string]fsm.ActionSpec{"Work": {}}, Reserved: []string{"phase"}}

func TestMachineSchemaRefuses(t *testing.T) {
	s := compiled(t, schema.Machine)
	cases := map[string]struct{ why, file string }{
		"unknown field":        {"a typo is shown while it is typed", edited("initial:", "frist: One\n  initial:")},
		"other letter case":    {"Go's decoder would take it", edited("initial: One", "Initial: One")},
		"other kind":           {"a registry is not a machine", edited("kind: Machine", "kind: Machines")},
		"other version":        {"its fields mean something else", edited("v1alpha1", "v1")},
		"text for a mapping":   {"the type", edited("metadata: {name: test}", "metadata: test")},
		"mapping for a list":   {"the type", edited("next: [{to: Done}]", "next: {to: Done}")},
		"number for a text":    {"5 is not 5s", edited("poll: 5s", "poll: 5")},
		"text for a boolean":   {"yes is a text in YAML 1.2", edited("{immediate: true}", "{immediate: 'yes'}")},
		"null":                 {"an empty value is a forgotten one", edited("poll: 5s", "poll: null")},
		"missing field":        {"without it nothing works", edited("  initial: One\n", "")},
		"missing name":         {"nobody could refer to the phase", edited("{name: One, ", "{")},
		"empty name":           {"as good as none", edited("test}", "''}")},
		"no duration":          {"the unit is missing", edited("poll: 5s", "poll: '5'")},
		"days":                 {"Go has none", edited("poll: 5s", "poll: 1d")},
		"attempts":             {"half an attempt", edited("poll: 5s", "retry: {attempts: 1.5}, poll: 5s")},
		"factor":               {"a backoff that shrinks", edited("poll: 5s", "retry: {factor: 0.5}, poll: 5s")},
		"jitter":               {"more than all of it", edited("poll: 5s", "retry: {jitter: 2}, poll: 5s")},
		"class not retried":    {"no such class", edited("poll: 5s", "retry: {nonRetryable: [Terminal]}, poll: 5s")},
		"to without attempts":  {"never reached", edited("poll: 5s", "retry: {to: Done}, poll: 5s")},
		"phase kind":           {"not one of three", edited("poll: 5s", "kind: stedy, poll: 5s")},
		"terminal":             {"not one of two", edited("terminal: success", "terminal: true")},
		"name of a phase":      {"status.phase could not show it", edited("name: One", "name: '1'")},
		"reason":               {"a reason is one word", edited("{to: Done}", "{to: Done, reason: all done}")},
		"class":                {"no such class", edited("poll: 5s", "onError: [{is: Terminall, to: Done}], poll: 5s")},
		"empty step":           {"nothing to do", edited("poll: 5s", "steps: [{name: nothing}], poll: 5s")},
		"step of two kinds":    {"which first?", edited("poll: 5s", "steps: [{action: Work, wait: 5s}], poll: 5s")},
		"undo":                 {"held, or the name of an effect", edited("poll: 5s", "steps: [{undo: all of it}], poll: 5s")},
		"forEach without in":   {"over what?", edited("poll: 5s", "steps: [{action: Work, forEach: {key: item}}], poll: 5s")},
		"too many failures":    {"the state lists them", edited("poll: 5s", "steps: [{action: Work, forEach: {in: '[1]', toleratedFailures: 101}}], poll: 5s")},
		"once in a row":        {"that is no row", edited("poll: 5s", "steps: [{action: Work, until: 'true', consecutive: 1}], poll: 5s")},
		"wait of a text":       {"no unit around an expression", edited("poll: 5s", "steps: [{wait: '${self.spec.n}s', max: 5s}], poll: 5s")},
		"bound of a bound":     {"it is written out", edited("poll: 5s", "timeout: {after: '${duration(self.spec.n)}', max: '${self.spec.n}', to: Done}, poll: 5s")},
		"timeout to nowhere":   {"neither to nor stalled", edited("poll: 5s", "timeout: {after: 5s}, poll: 5s")},
		"timeout of two kinds": {"both to and stalled", edited("poll: 5s", "timeout: {after: 5s, to: Done, stalled: Late}, poll: 5s")},
		"no onDelete":          {"each phase must say it", edited(", onDelete: {immediate: true}", "")},
		"empty onDelete":       {"it says nothing", edited("{immediate: true}", "{}")},
		"onDelete twice":       {"which of them?", edited("{immediate: true}", "{immediate: true, to: Done}")},
		"other failure":        {"there is one way", machine("  failure: redo\n")},
		"other deletion":       {"there is one way", machine("  deletion: redo\n")},
		"name of a list":       {"no path could name it", machine("  stepLists: {a-b: [{action: Work}]}\n")},
		"use and action":       {"which first?", edited("poll: 5s", "steps: [{use: all, action: Work}], poll: 5s")},
		"fact":                 {"CEL cannot select it", machine("  facts: [{name: a-b, expr: 'true'}]\n")},
		"status":               {"no JSON path of a column could name it", machine("  status: {a-b: 'true'}\n")},
		"effect":               {"nothing takes it", machine("  effects: [{name: lock, release: Work}]\n")},
	}
	if err := judge(t, s, machine("")); err != nil {
		t.Fatalf("the file around the defects: %v", err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if judge(t, s, c.file) == nil {
				t.Errorf("the schema takes it: %s", c.why)
			}
			def, diags := fsm.Load("test.yaml", []byte(c.file))
			if def != nil {
				_, diags = fsm.Bind(def, bindings)
			}
			if diags.Err() == nil {
				t.Error("the program takes what the schema refuses")
			}
		})
	}
}

func TestRegistrySchemaRefuses(t *testing.T) {
	s := compiled(t, schema.KindRegistry)
	registry := func(fields string) string {
		return "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: test}\nspec:\n  kinds:\n" +
			"  - {kind: ClusterInformation, plural: clusterinformations, scope: Cluster, lock: true}\n  - {" + fields + "}\n"
	}
	good := registry("kind: Tier, plural: tiers, scope: Cluster, converters: [tierDefaults]")
	if err := judge(t, s, good); err != nil {
		t.Fatalf("the file around the defects: %v", err)
	}
	if _, err := resources.LoadRegistry("kinds.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ why, fields string }{
		"unknown field": {"a typo", "kind: Tier, plural: tiers, scope: Cluster, convertors: [tierDefaults]"},
		"scope":         {"not one of two", "kind: Tier, plural: tiers, scope: Galaxy"},
		"missing":       {"no plural", "kind: Tier, scope: Cluster"},
		"letter case":   {"a plural is in lower case", "kind: Tier, plural: Tiers, scope: Cluster"},
		"converter":     {"unknown", "kind: Tier, plural: tiers, scope: Cluster, converters: [tierDefault]"},
		"defaults":      {"unknown", "kind: Tier, plural: tiers, scope: Cluster, compare: {admissionDefaults: [tier]}"},
		"page size":     {"negative", "kind: Tier, plural: tiers, scope: Cluster, list: {pageSize: -1}"},
		"text":          {"a list", "kind: Tier, plural: tiers, scope: Cluster, after: Tier"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if judge(t, s, registry(c.fields)) == nil {
				t.Errorf("the schema takes it: %s", c.why)
			}
			if _, err := resources.LoadRegistry("kinds.yaml", []byte(registry(c.fields))); err == nil {
				t.Error("the program takes what the schema refuses")
			}
		})
	}
}

// A finding lists what could have been written instead; the schema must offer the same.
func TestEnumsAreThoseOfTheProgram(t *testing.T) {
	cases := map[string]struct {
		file   string // with a value that is not one
		schema []byte
		at     []string
		format string // of the list in the finding
	}{
		"phase kind": {edited("poll: 5s", "kind: nonsense, poll: 5s"), schema.Machine, []string{"Phase", "kind"}, "%q"},
		"terminal":   {edited("terminal: success", "terminal: nonsense"), schema.Machine, []string{"Phase", "terminal"}, "%q"},
		"class":      {edited("poll: 5s", "onError: [{is: nonsense, to: Done}], poll: 5s"), schema.Machine, []string{"OnError", "is"}, "%v"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			def, diags := fsm.Load("test.yaml", []byte(c.file))
			if def == nil {
				t.Fatal(diags.Err())
			}
			_, diags = fsm.Bind(def, bindings)
			want := fmt.Sprintf(c.format, enum(t, c.schema, c.at[0], c.at[1], false))
			if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "write one of "+want) {
				t.Errorf("the schema has %s, the program says %v", want, err)
			}
		})
	}
	for field, compare := range map[string][2]string{
		"converters":        {"RegistryKind", "converters: [nonsense]"},
		"admissionDefaults": {"RegistryCompare", "compare: {admissionDefaults: [nonsense]}"},
	} {
		_, err := resources.LoadRegistry("k", []byte("apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: k}\nspec: {kinds: [{kind: A, plural: as, scope: Cluster, lock: true, "+compare[1]+"}]}\n"))
		want := "known are " + strings.Join(enum(t, schema.KindRegistry, compare[0], field, true), ", ")
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: the schema says %s, the program %v", field, want, err)
		}
	}
}

// properties are those of each definition of a schema.
func properties(t *testing.T, data []byte) map[string]map[string]json.RawMessage {
	t.Helper()
	var s struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]json.RawMessage{}
	for def, d := range s.Defs {
		all[def] = d.Properties
	}
	return all
}

func enum(t *testing.T, data []byte, def, field string, items bool) []string {
	t.Helper()
	var p struct {
		Enum  []string
		Items struct{ Enum []string }
	}
	if err := json.Unmarshal(properties(t, data)[def][field], &p); err != nil {
		t.Fatal(err)
	}
	if items {
		return p.Items.Enum
	}
	return p.Enum
}

// A key of the table that no type has would be a rule that is not there.
func TestDetailsAreOfTypes(t *testing.T) {
	known := map[string]bool{}
	for _, data := range [][]byte{schema.Machine, schema.KindRegistry} {
		for def, fields := range properties(t, data) {
			known[def] = true
			for field := range fields {
				known[def+"."+field] = true
			}
		}
	}
	for name := range details {
		if !known[name] {
			t.Errorf("details has %s, which is of nothing", name)
		}
	}
}
