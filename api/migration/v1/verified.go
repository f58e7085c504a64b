package v1

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// VerifiedKind is what was verified of one kind.
type VerifiedKind struct {
	// Kind as v3 calls it.
	Kind    string
	Objects int64
	// Digest is hexadecimal, of the canonical content of all objects.
	Digest string
}

// JoinDigests writes Verified.Digests, sorted by kind. Kinds without objects are left out.
func JoinDigests(kinds []VerifiedKind) string {
	kinds = slices.DeleteFunc(slices.Clone(kinds), func(k VerifiedKind) bool { return k.Objects == 0 })
	slices.SortFunc(kinds, func(a, b VerifiedKind) int { return cmp.Compare(a.Kind, b.Kind) })
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s=%d:%s", k.Kind, k.Objects, k.Digest))
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
		if n, err := fmt.Sscanf(strings.Replace(rest, ":", " ", 1), "%d %s", &k.Objects, &k.Digest); n != 2 {
			return nil, fmt.Errorf("status.verified.digests: %q is not KIND=OBJECTS:DIGEST: %w", part, err)
		}
		kinds[kind] = k
	}
	return kinds, nil
}
