package builtin

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// What a parameter may hold is checked twice by the same function: when a file is read, as far as it says its values
// plainly, and when the action is called. Values are of the declared type; a text may hold ${…} in a file.

// checkValues tells what an action cannot be called with.
func checkValues(params map[string]fsm.Param, with fsm.Params) error {
	for _, name := range slices.Sorted(maps.Keys(with)) {
		if check := params[name].Check; check != nil {
			if err := check(with[name]); err != nil {
				return fmt.Errorf("with.%s: %w", name, err)
			}
		}
	}
	return nil
}

func badParameter(format string, args ...any) error {
	return fsm.Terminal("BadParameter", format, args...)
}

func oneOf(values ...string) func(any) error {
	return func(v any) error {
		if text, isText := v.(string); isText && !slices.Contains(values, text) {
			return badParameter("%q is none of its values: write %s", text, strings.Join(values, " or "))
		}
		return nil
	}
}

func isName(v any) error {
	if v == "" {
		return fsm.Terminal("NameMissing", "the name is empty: give one that stays the same")
	}
	return nil
}

func isKind(v any) error {
	if v == "" {
		return badParameter("the kind is empty: write one, for example Deployment")
	}
	return nil
}

func isAPIVersion(v any) error {
	text, _ := v.(string)
	if _, err := schema.ParseGroupVersion(text); (err != nil || text == "") && !strings.Contains(text, "${") {
		return badParameter("%q is no apiVersion: write GROUP/VERSION, or v1", text)
	}
	return nil
}

func isManifest(v any) error {
	fields, _ := v.(map[string]any)
	obj := &unstructured.Unstructured{Object: fields}
	return cmp.Or(isAPIVersion(obj.GetAPIVersion()), isKind(obj.GetKind()), isName(obj.GetName()))
}

func isJob(v any) error {
	fields, _ := v.(map[string]any)
	if kind := (&unstructured.Unstructured{Object: fields}).GetKind(); kind != "" && kind != "Job" {
		return fsm.Terminal("InvalidManifest", "the manifest is a %s: RunJob runs a Job, use Apply for other kinds", kind)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(fields, "spec", "ttlSecondsAfterFinished"); found {
		return fsm.Terminal("InvalidManifest",
			"ttlSecondsAfterFinished would take a finished Job away before it was seen, and it would run twice: leave it out")
	}
	return nil
}

// The API server refuses a status with a condition of another form, and the
// object could not move any more.
var (
	conditionType   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)
)

const maxConditionType = 253

func isConditionType(v any) error {
	text, _ := v.(string)
	derived := []string{fsm.ConditionReady, fsm.ConditionReconciling, fsm.ConditionStalled}
	switch {
	case slices.Contains(derived, text):
		return fsm.Terminal("ReservedCondition", "condition %s is derived from the phase: set another one", text)
	case len(text) > maxConditionType || !conditionType.MatchString(text):
		return badParameter("%q cannot be the type of a condition: write one CamelCase word", runner.Cut(text, maxConditionType))
	}
	return nil
}

func isReason(v any) error {
	text, _ := v.(string)
	if !conditionReason.MatchString(text) {
		return badParameter("%q cannot be a reason: write one CamelCase word", runner.Cut(text, maxConditionType))
	}
	return nil
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func isMethod(v any) error {
	if text, _ := v.(string); !slices.Contains(methods, strings.ToUpper(text)) {
		return badParameter("method %q is none: write %s", text, strings.Join(methods, ", "))
	}
	return nil
}

// isURL never says the whole URL: its path and query may hold what nobody else should read.
func isURL(v any) error {
	text, _ := v.(string)
	target, err := url.Parse(text)
	switch {
	case err != nil:
		return badParameter("url cannot be read: write https://host/path")
	case target.Scheme != "http" && target.Scheme != "https" || target.Hostname() == "":
		return badParameter("url has no scheme or no host: write http://host/… or https://host/…")
	case target.User != nil:
		return badParameter("url has a user or password in it, which would be readable in the machine file: leave it out")
	}
	return nil
}

func areHeaders(v any) error {
	headers, _ := v.(map[string]any)
	if len(headers) > maxHeaders {
		return badParameter("%d headers: give at most %d", len(headers), maxHeaders)
	}
	for name, value := range headers {
		_, isText := value.(string)
		ref, err := fsm.AsSecretRef(value)
		switch {
		case err != nil:
			return badParameter("header %q: the reference to a secret cannot be read: %w", name, err)
		case !isText && ref == nil || http.CanonicalHeaderKey(name) == "Host":
			return badParameter("header %q: give a text or a reference to a secret, and no Host", name)
		}
	}
	return nil
}

func isExchange(v any) error {
	text, _ := v.(string)
	if d, err := time.ParseDuration(text); err != nil || d <= 0 || d > maxExchange {
		return badParameter("timeout is %s: give more than 0 and at most %s", text, maxExchange)
	}
	return nil
}
