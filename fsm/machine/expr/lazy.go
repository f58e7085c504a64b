package expr

import (
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// lazyMap is a CEL map whose values are found when they are asked for, so that
// a named guard behind a false && is never called.
type lazyMap struct {
	traits.Mapper
	find func(string) ref.Val
}

// NewLazyMap finds a value by its name; find answers nil where there is none.
func NewLazyMap(find func(string) ref.Val) lazyMap {
	empty := types.NewStringStringMap(types.DefaultTypeAdapter, nil)
	return lazyMap{Mapper: empty, find: find}
}

func (m lazyMap) Find(key ref.Val) (ref.Val, bool) {
	v := m.find(fmt.Sprint(key.Value()))
	return v, v != nil
}

func (m lazyMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such name: %v", key.Value())
}

func (m lazyMap) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}
