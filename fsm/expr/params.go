package expr

import (
	"slices"
	"time"
)

func is[T any](v any) bool { _, ok := v.(T); return ok }

func isWhole(v any) bool { _, ok := wholeNumber(v); return ok }

func isDuration(v any) bool {
	text, ok := v.(string)
	_, err := time.ParseDuration(text)
	return ok && err == nil
}

func isStrings(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(item any) bool { return !is[string](item) })
}

func wholeNumber(v any) (int, bool) {
	switch n := v.(type) {
	case int64:
		return int(n), true
	case float64: // JSON has no whole numbers
		return int(n), n == float64(int(n))
	}
	return 0, false
}

// Params are the `with` values of a step, of the types that the action declares.
type Params map[string]any

// String answers a text, or the fall-back when it is not given.
func (p Params) String(name, fallback string) string { return given(p, name, fallback) }

// Bool answers a truth value, or the fall-back when it is not given.
func (p Params) Bool(name string, fallback bool) bool { return given(p, name, fallback) }

// Object answers free-form content; nil when it is not given.
func (p Params) Object(name string) map[string]any {
	return given[map[string]any](p, name, nil)
}

// Int answers a whole number, or the fall-back when it is not given.
func (p Params) Int(name string, fallback int) int {
	if n, ok := wholeNumber(p[name]); ok {
		return n
	}
	return fallback
}

// Duration answers a duration, or the fall-back when it is not given.
func (p Params) Duration(name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(p.String(name, "")); err == nil {
		return d
	}
	return fallback
}

// Strings answers a list of texts; nil when it is not given.
func (p Params) Strings(name string) []string {
	var out []string
	for _, item := range given[[]any](p, name, nil) {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func given[T any](p Params, name string, fallback T) T {
	if v, ok := p[name].(T); ok {
		return v
	}
	return fallback
}
