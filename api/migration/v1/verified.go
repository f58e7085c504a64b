package v1

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// VerifiedKind is what was verified of one kind.
type VerifiedKind struct {
	// Kind as v3 calls it.
	Kind    string
	Objects int64
	// Unproved is how many more there were, which a person has accepted: v3 has them, and not as v1 does.
	Unproved int64
	// Digest is hexadecimal, of the canonical content of all objects.
	Digest string
}

// JoinDigests writes Verified.Digests, sorted by kind. Kinds without objects are left out.
func JoinDigests(kinds []VerifiedKind) string {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k VerifiedKind) bool { return k.Objects+k.Unproved == 0 })
	slices.SortFunc(kinds, func(a, b VerifiedKind) int { return cmp.Compare(a.Kind, b.Kind) })
	var parts []string
	for _, k := range kinds {
		unproved := ""
		if k.Unproved > 0 {
			unproved = fmt.Sprintf("+%d", k.Unproved)
		}
		parts = append(parts, fmt.Sprintf("%s=%d%s:%s", k.Kind, k.Objects, unproved, k.Digest))
	}
	return strings.Join(parts, " ")
}

// ByKind reads Digests. The error says that it was not written by JoinDigests: then
// nothing is known to be verified.
func (v *Verified) ByKind() (map[string]VerifiedKind, error) {
	kinds := map[string]VerifiedKind{}
	for _, part := range strings.Fields(v.Digests) {
		kind, rest, _ := strings.Cut(part, "=")
		k := VerifiedKind{Kind: kind}
		counts, sum, _ := strings.Cut(rest, ":")
		proved, unproved, some := strings.Cut(counts, "+")
		var bad, badToo error
		if k.Objects, bad = strconv.ParseInt(proved, 10, 64); some {
			k.Unproved, badToo = strconv.ParseInt(unproved, 10, 64)
		}
		if k.Digest = sum; sum == "" || bad != nil || badToo != nil {
			return nil, fmt.Errorf("status.verified.digests: %q is not KIND=OBJECTS:DIGEST", part)
		}
		kinds[kind] = k
	}
	return kinds, nil
}
