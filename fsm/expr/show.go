package expr

import (
	"fmt"
	"reflect"
	"strconv"

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
