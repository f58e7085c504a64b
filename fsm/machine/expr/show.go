package expr

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

var listType = reflect.TypeFor[[]any]()

// Show tells a value to people.
func Show(v ref.Val) string {
	switch x := v.(type) {
	case *types.Optional:
		if !x.HasValue() {
			return "none"
		}
		return Show(x.GetValue())
	case traits.Lister:
		native, err := x.ConvertToNative(listType)
		if err == nil {
			return fmt.Sprint(native)
		}
	case types.String:
		return strconv.Quote(string(x))
	}
	return fmt.Sprint(v.Value())
}

// Clip cuts a text to a number of bytes.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const ellipsis = "…"
	cut := n - len(ellipsis)
	for cut > 0 && s[cut]&0xC0 == 0x80 { // do not cut inside a rune
		cut--
	}
	return s[:cut] + ellipsis
}

// Native turns a CEL value into what JSON could hold.
func Native(v ref.Val) (any, error) {
	switch x := v.(type) {
	case *types.Optional:
		if !x.HasValue() {
			return nil, nil
		}
		return Native(x.GetValue())
	case traits.Mapper:
		return nativeMap(x)
	case traits.Lister:
		out := []any{}
		for it := x.Iterator(); it.HasNext() == types.True; {
			item, err := Native(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	return nativeScalar(v)
}

func nativeScalar(v ref.Val) (any, error) {
	switch x := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Double, types.String:
		return v.Value(), nil
	case types.Uint:
		return int64(x), nil // beyond what JSON's readers keep anyway
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(x), nil
	case types.Timestamp:
		return x.UTC().Format(time.RFC3339Nano), nil
	case types.Duration:
		return x.Duration.String(), nil
	}
	return nil, fmt.Errorf("a %s cannot be a parameter: convert it, for example with string(…)", v.Type().TypeName())
}

func nativeMap(m traits.Mapper) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("key %v of a map is no text", key.Value())
		}
		got, err := Native(m.Get(key))
		if err != nil {
			return nil, err
		}
		out[string(name)] = got
	}
	return out, nil
}
