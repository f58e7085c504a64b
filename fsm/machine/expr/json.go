package expr

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	jsonName = "json"
	// maxJSON is how long a text may be that json reads, and jsonCost how many bytes of it cost as much as one operation.
	maxJSON  = 128 << 10
	jsonCost = 10
)

// jsonFunction is json(text): what a text that is JSON says, for example json(result.body).items.
func jsonFunction() cel.EnvOption {
	return cel.Function(jsonName, cel.Overload("json_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(func(text ref.Val) ref.Val {
		raw, isText := text.(types.String)
		if !isText {
			return types.MaybeNoSuchOverloadErr(text)
		}
		if len(raw) > maxJSON {
			return types.NewErr("json: the text has %d bytes, more than %d", len(raw), maxJSON)
		}
		var value any
		if err := utiljson.Unmarshal([]byte(raw), &value); err != nil {
			return types.NewErr("json: %v", err)
		}
		return types.DefaultTypeAdapter.NativeToValue(value)
	})))
}

// actualCosts are those of our own functions; nil leaves the others to the library.
type actualCosts struct{}

// CallCost is asked by the interpreter once a function was called.
func (actualCosts) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function != jsonName || len(args) != 1 {
		return nil
	}
	text, _ := args[0].(types.String)
	return new(1 + uint64(len(text))/jsonCost)
}
