package fsm

import "time"

func (t ParamType) accepts(v any) bool {
	switch t {
	case ParamString:
		_, ok := v.(string)
		return ok
	case ParamInt:
		_, ok := Params{"": v}.int("")
		return ok
	case ParamDuration:
		s, ok := v.(string)
		if !ok {
			return false
		}
		_, err := time.ParseDuration(s)
		return err == nil
	}
	return false
}

// Params are the `with` values of a step, checked when the machine was bound.
type Params map[string]any

// String answers a text, or the fall-back when it is not given.
func (p Params) String(name, fallback string) string {
	if s, ok := p[name].(string); ok {
		return s
	}
	return fallback
}

// Int answers a whole number, or the fall-back when it is not given.
func (p Params) Int(name string, fallback int) int {
	if n, ok := p.int(name); ok {
		return n
	}
	return fallback
}

func (p Params) int(name string) (int, bool) {
	switch n := p[name].(type) {
	case int64:
		return int(n), true
	case float64: // JSON has no whole numbers
		return int(n), n == float64(int(n))
	}
	return 0, false
}

// Duration answers a duration, or the fall-back when it is not given.
func (p Params) Duration(name string, fallback time.Duration) time.Duration {
	if s, ok := p[name].(string); ok {
		if d, err := time.ParseDuration(s); err == nil {
			return d
		}
	}
	return fallback
}
