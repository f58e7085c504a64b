package program

import (
	"maps"
	"slices"
	"strings"

	"github.com/phasegate/phasegate/fsm/machine/expr"
)

// inverse makes the release of an effect of its acquire, with the expressions as they are written there: they are evaluated, and
// put on record, when those of any release are. Where there is none, its Use is empty; opaque is a value that only a call could
// take apart.
func (c *compiler) inverse(acquire *Action) (release *Action, opaque *expr.Value) {
	inv := acquire.Spec.Inverse
	if inv == nil || inv.If != "" && (acquire.With[inv.If] == nil || acquire.With[inv.If].Written() != true) {
		return &Action{}, nil
	}
	release = &Action{Use: inv.Action, Spec: c.b.Actions[inv.Action], With: map[string]*expr.Value{}}
	for _, name := range slices.Sorted(maps.Keys(inv.With)) {
		root, rest, _ := strings.Cut(inv.With[name], ".")
		v, closed := acquire.With[root].At(rest)
		if closed {
			opaque = v
		} else if v != nil {
			release.With[name] = v
		}
	}
	return release, opaque
}
