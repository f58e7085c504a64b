package fsm

import (
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

func encodeParams(with expr.Params) (string, error) { return encode("parameters", with) }

// encode is values as JSON; nothing is an empty text.
func encode(what string, values map[string]any) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("%s are no plain values: %w", what, err)
	}
	return string(raw), nil
}

func decodeParams(text string) (expr.Params, error) {
	if text == "" {
		return nil, nil
	}
	var with expr.Params
	if err := utiljson.Unmarshal([]byte(text), (*map[string]any)(&with)); err != nil {
		return nil, fmt.Errorf("read stored parameters: %w", err)
	}
	return with, nil
}
