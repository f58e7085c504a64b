package v1

import (
	"fmt"
	"strconv"
	"strings"
)

// KindCount says how far one kind is.
type KindCount struct {
	// Kind as v3 calls it.
	Kind        string
	Done, Total int64
	// Conflicts is how many of them are in conflict.
	Conflicts int64
}

// JoinCounts writes Progress.Kinds in the order given. Kinds without objects are left out.
func JoinCounts(kinds []KindCount) string {
	var parts []string
	for _, k := range kinds {
		if k.Total > 0 {
			part := fmt.Sprintf("%s=%d/%d", k.Kind, k.Done, k.Total)
			if k.Conflicts > 0 {
				part += fmt.Sprintf("%s%d", kindConflicts, k.Conflicts)
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// kindConflicts precedes the number of conflicts of a kind.
const kindConflicts = ",conflicts="

// ByKind reads Kinds. What was not written by JoinCounts is left out: it is for display.
func (p *Progress) ByKind() []KindCount {
	var kinds []KindCount
	for _, part := range strings.Fields(p.Kinds) {
		var k KindCount
		part, conflicts, _ := strings.Cut(part, kindConflicts)
		k.Conflicts, _ = strconv.ParseInt(conflicts, 10, 64) // 0 where none are named
		kind, counts, _ := strings.Cut(part, "=")
		if n, _ := fmt.Sscanf(counts, "%d/%d", &k.Done, &k.Total); n == 2 {
			k.Kind = kind
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Finished is how many objects need nothing more: v3 has them as it should, or is to lack them.
func (p *Progress) Finished() int32 { return p.Migrated + p.Skipped + p.Terminating }
