package diag

import (
	"fmt"
	"strings"

	"github.com/agext/levenshtein"
)

// Instead says what could be written in place of a name that nothing has: the one that it looks like, and what there is.
func Instead(name, what string, known []string) string {
	there := what + ": " + strings.Join(known, ", ")
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean %s? %s", near, there)
	}
	return there
}

// Nearest is the name that differs least, in no more than half of its letters; empty: none is near.
func Nearest(name string, known []string) (near string) {
	best := max(len(name)/2, 1) + 1
	for _, k := range known {
		if d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil); d < best {
			near, best = k, d
		}
	}
	return near
}
