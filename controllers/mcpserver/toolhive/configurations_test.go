package toolhive

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/test/support/crds"
)

// read are the types that a configuration is decoded into, strictly, by its kind and where they are in its spec.
var read = map[string]map[string]reflect.Type{
	"MCPOIDCConfig":         {"spec": reflect.TypeFor[oidcSpec]()},
	"MCPTelemetryConfig":    {"spec": reflect.TypeFor[telemetrySpec]()},
	"MCPToolConfig":         {"spec": reflect.TypeFor[toolSpec]()},
	"MCPWebhookConfig":      {"spec": reflect.TypeFor[webhookSpec]()},
	"MCPAuthzConfig":        {"spec": reflect.TypeFor[policySpec]()},
	"MCPExternalAuthConfig": {"spec.embeddedAuthServer": reflect.TypeFor[authServerSpec](), "spec.tokenExchange": reflect.TypeFor[exchangeSpec]().Field(1).Type.Elem()},
}

// TestWhatIsRefusedOfConfigurationsIsWritten: a field of ToolHive's CRDs that no type here has is refused, and has a row of the page;
// a row of a field that is read, or that does not exist, is wrong. TOOLHIVE_CRDS is a directory of the CRDs.
func TestWhatIsRefusedOfConfigurationsIsWritten(t *testing.T) {
	dir := os.Getenv("TOOLHIVE_CRDS")
	if dir == "" {
		t.Skip("not run: TOOLHIVE_CRDS names no directory of ToolHive's CRDs")
	}
	rows := refusedRows(t)
	for kind, parts := range read {
		fields, err := crds.Fields(filepath.Join(dir, "toolhive.stacklok.dev_"+strings.ToLower(kind)+"s.yaml"), "spec")
		if err != nil {
			t.Fatal(err)
		}
		for at, known := range parts {
			for _, wrong := range misplaced(at+".", fields, knownOf(at, known), rows[kind]) {
				t.Errorf("%s: %s", kind, wrong)
			}
		}
	}
}

// misplaced is what is wrong with the rows of a kind, of which the keys are fields, and the values whether an older
// release does not have it.
func misplaced(below string, fields, known, rows map[string]bool) (wrong []string) {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if strings.HasPrefix(field, below) && !covered(known, field) && !hasRow(rows, field) {
			wrong = append(wrong, field+" is refused, and has no row")
		}
	}
	for _, field := range slices.Sorted(maps.Keys(rows)) {
		if strings.HasPrefix(field, below) && (covered(known, field) || !fields[field] && !rows[field]) {
			wrong = append(wrong, "the row of "+field+" is of a field that is read, or of none")
		}
	}
	return wrong
}

func TestMisplacedRowsAreFound(t *testing.T) {
	type inner struct {
		A string         `json:"a"`
		M map[string]any `json:"m"`
	}
	fields := map[string]bool{"spec.a": true, "spec.m": true, "spec.m.x": true, "spec.b": true, "spec.b.c": true}
	known := knownOf("spec", reflect.TypeFor[inner]())
	for _, test := range []struct {
		rows  map[string]bool
		wrong int
	}{
		{map[string]bool{"spec.b": false}, 0},
		{map[string]bool{"spec.b": false, "spec.younger": true}, 0},
		{map[string]bool{}, 2},
		{map[string]bool{"spec.b": false, "spec.a": false, "spec.gone": false}, 2},
	} {
		if wrong := misplaced("spec.", fields, known, test.rows); len(wrong) != test.wrong {
			t.Errorf("rows %v: %q, want %d", test.rows, wrong, test.wrong)
		}
	}
}

// page says of each field of a configuration that is refused. ¹ marks what an older release does not have.
const refusedPage = "../../../docs/reference/toolhive-fields.md"

var refusedField = regexp.MustCompile("`(spec\\.[A-Za-z0-9.*]+)`(¹?)")

// refusedRows are the fields of the table of configurations, by kind, and whether an older release does not have them.
func refusedRows(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text, err := os.ReadFile(refusedPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "### Fields of configurations that are refused")
	if !found {
		t.Fatalf("%s has no such section", refusedPage)
	}
	section, _, _ = strings.Cut(section, "\n#")
	rows := map[string]map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			continue
		}
		kind := strings.TrimSpace(cells[0])
		if rows[kind] == nil {
			rows[kind] = map[string]bool{}
		}
		for _, m := range refusedField.FindAllStringSubmatch(cells[1], -1) {
			rows[kind][m[1]] = m[2] != ""
		}
	}
	return rows
}

// hasRow tells whether a field, or one above it, has a row.
func hasRow(rows map[string]bool, field string) bool {
	for at := len(field); at > 0; at = strings.LastIndexByte(field[:at], '.') {
		if _, there := rows[field[:at]]; there {
			return true
		}
	}
	return false
}

// covered tells whether a field is read, or is below one whose value is taken whole.
func covered(taken map[string]bool, field string) bool {
	if taken[field] {
		return true
	}
	for above := field; strings.Contains(above, "."); {
		above = above[:strings.LastIndexByte(above, '.')]
		if taken[above+".*"] {
			return true
		}
	}
	return false
}

// knownOf are the paths that a type reads, see addKnown.
func knownOf(at string, of reflect.Type) map[string]bool {
	found := map[string]bool{}
	addKnown(found, at, of)
	return found
}

// addKnown adds the paths in JSON of a type's fields; those whose value is anything get ".*".
func addKnown(found map[string]bool, at string, of reflect.Type) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of != reflect.TypeFor[json.RawMessage]() {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[placed]():
		of = reflect.TypeFor[SecretKey]()
	case of.Kind() == reflect.Map && of.Elem().Kind() == reflect.Struct:
		addKnown(found, at+".*", of.Elem())
		return
	case of.Kind() != reflect.Struct:
		found[at+".*"] = true
		return
	}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" {
			continue
		}
		found[at+"."+name] = true
		addKnown(found, at+"."+name, field.Type)
	}
}
