package supportbundle

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

const leftOut = "(left out)"

// Redactor takes out of objects and texts what nobody else shall read. What it once left
// out it finds again in every text: a value of an environment variable in a log, say.
type Redactor struct {
	names map[string]string // what to write instead
}

// NewRedactor knows nothing yet.
func NewRedactor() *Redactor { return &Redactor{names: map[string]string{}} }

const (
	// knownFrom is how long a value must be to be looked for everywhere: shorter ones are
	// words.
	knownFrom = 8
	// contentFrom is the same for what Calico's objects hold: addresses are short.
	contentFrom = 4
)

func (r *Redactor) omit(value string, from int) string {
	if len(value) >= from && !isOrdinary(value) {
		r.names[value] = leftOut
	}
	return leftOut
}

// isOrdinary is true of values that every text has, and that tell nothing.
func isOrdinary(value string) bool {
	return slices.Contains([]string{"true", "false", "default", "null", "(none)", leftOut}, value)
}

// hash replaces names by such that stay the same in the whole bundle.
func (r *Redactor) hash(names ...string) {
	for _, name := range names {
		if name != "" {
			r.names[name] = fmt.Sprintf("name-%x", sha256.Sum256([]byte(name)))[:13]
		}
	}
}

// ourDomains are those of annotations that programs write for programs.
var ourDomains = []string{"migration.projectcalico.org/", "phasegate.dev/", "toolhive.stacklok.dev/", "meta.helm.sh/", "deployment.kubernetes.io/"}

// content are the fields that are left out wherever they are.
var content = []string{"data", "stringData", "binaryData", "caBundle", "value", "command", "result", "podTemplateSpec"}

// settings are the fields of the spec of an MCPServer that stay.
var settings = []string{"image", "transport", "proxyMode", "proxyPort", "port", "targetPort", "mcpPort", "replicas", "backendReplicas"}

// Object leaves out of an object, in place, what is no metadata of it, no status, and no
// setting of ours. It does not matter where in the object it is.
func (r *Redactor) Object(o map[string]any) {
	if spec, ok := o["spec"].(map[string]any); ok && o["kind"] == "MCPServer" {
		r.allBut(spec, func(key string) bool { return slices.Contains(settings, key) })
	}
	r.walk(o)
}

func (r *Redactor) allBut(v any, keep func(key string) bool) {
	all, _ := v.(map[string]any)
	for key, value := range all {
		if !keep(key) {
			all[key] = r.everything(value)
		}
	}
}

func (r *Redactor) walk(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			r.walk(item)
		}
	case map[string]any:
		delete(v, "managedFields")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			switch {
			case slices.Contains(content, key):
				v[key] = r.everything(v[key])
			case key == "args":
				v[key] = r.flags(v[key])
			case key == "annotations":
				r.allBut(v[key], isOurs)
			case key == "conflicts":
				v[key] = r.conflicts(v[key])
			case key == "conditions":
				r.conditions(v[key])
			case key == "held":
				r.held(v[key])
			case key == "saved":
				// What else was saved is another's, such as the manifest of an APIService.
				r.allBut(v[key], func(name string) bool { return name == v1alpha1.SavedStatus })
			default:
				r.walk(v[key])
			}
		}
	}
}

// everything leaves out all texts of a value, and remembers them.
func (r *Redactor) everything(v any) any {
	switch v := v.(type) {
	case string:
		return r.omit(v, knownFrom)
	case []any:
		for _, item := range v {
			r.everything(item)
		}
	case map[string]any:
		for _, item := range v {
			r.everything(item)
		}
	}
	return leftOut
}

// isOurs tells whether an annotation is of ourDomains. What was saved of another's object is that other's.
func isOurs(key string) bool {
	return slices.ContainsFunc(ourDomains, func(d string) bool { return strings.HasPrefix(key, d) }) && !strings.Contains(key, "/saved-")
}

// held keeps which effects are held and what releases them: parameters come from the spec.
func (r *Redactor) held(v any) {
	list, _ := v.([]any)
	for i, item := range list {
		if effect, _, found := strings.Cut(fmt.Sprint(item), " {"); found {
			list[i] = effect + " " + leftOut
		}
	}
}

// flags keeps the names of flags: what they are set to may be anything.
func (r *Redactor) flags(v any) any {
	list, ok := v.([]any)
	if !ok {
		return r.everything(v)
	}
	for i, item := range list {
		text := fmt.Sprint(item)
		name, value, found := strings.Cut(text, "=")
		switch {
		case found && strings.HasPrefix(name, "--"):
			list[i] = name + "=" + r.setting(value)
		case !strings.HasPrefix(text, "--"):
			list[i] = r.omit(text, knownFrom)
		}
	}
	return list
}

// harmless are values of flags: switches, numbers, durations, ports and paths of ours.
var harmless = regexp.MustCompile(`^(true|false|[0-9]+(ms|s|m|h)?|:[0-9]+|/etc/phasegate/.*|(datastoremigration|mcpserver|custom|,)+)$`)

func (r *Redactor) setting(value string) string {
	if harmless.MatchString(value) {
		return value
	}
	return r.omit(value, knownFrom)
}

// conflicts keeps which fields differ, and leaves out what is in them.
func (r *Redactor) conflicts(v any) any {
	switch v.(type) {
	case int64, float64, nil: // a number of them
		return v
	}
	all := conflictsIn(v)
	if len(all) == 0 {
		return r.everything(v)
	}
	for i := range all {
		r.fields(all[i].Fields)
	}
	return all.ToUnstructured()
}

// conflictsIn are those of a status: a line, or the list that earlier versions wrote.
func conflictsIn(v any) (all migrationv1.Conflicts) {
	data, err := json.Marshal(v)
	if err != nil || json.Unmarshal(data, &all) != nil {
		return nil
	}
	return all
}

// conditions does the same where the CRD has no place for conflicts but conditions.
func (r *Redactor) conditions(v any) {
	for conflict, condition := range conflictConditions(v) {
		r.fields(conflict.Fields)
		condition["message"] = conflict.Message()
	}
}

// conflictConditions are the conditions of a status that describe a conflict each.
func conflictConditions(conditions any) iter.Seq2[*migrationv1.Conflict, map[string]any] {
	return func(yield func(*migrationv1.Conflict, map[string]any) bool) {
		list, _ := conditions.([]any)
		for _, item := range list {
			condition, _ := item.(map[string]any)
			message, _ := condition["message"].(string)
			conflict, ok := migrationv1.ParseConflict(message)
			if ok && condition["type"] == migrationv1.ConditionConflict && !yield(&conflict, condition) {
				return
			}
		}
	}
}

// fields leaves out of fields that differ the values of both sides, in place.
func (r *Redactor) fields(all []string) {
	for i, text := range all {
		path, values, _ := strings.Cut(text, ": ")
		for _, side := range strings.FieldsFunc(values, func(c rune) bool {
			return unicode.IsSpace(c) || strings.ContainsRune(`,;"'[]{}`, c)
		}) {
			r.omit(side, contentFrom)
		}
		all[i] = path + ": " + r.omit(values, contentFrom)
	}
}

// secrets are found by their looks: tokens, keys, and what is called a password.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),
	regexp.MustCompile(`-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----`),
	regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)(?:pass(?:word|wd)?|token|secret|api[_-]?key)\\?["']?\s*[:=]\s*\\?["']?[^\s"'\\,;}]+`),
	regexp.MustCompile(`://[^/\s:@"]+:[^/\s@"]+@`),
}

// Text leaves out of a text what looks like a secret, and all that was left out of objects before, in whatever
// encodings. Objects come first, texts last.
func (r *Redactor) Text(text []byte) []byte {
	s := &search{Redactor: r, seen: map[string]bool{}}
	s.look(viewOf(string(text)), nested)
	return []byte(replaced(string(text), s.spans))
}
