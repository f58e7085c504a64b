package resources

import (
	"fmt"
	"math/bits"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// ReverseUID maps the UID of a v1 object to the UID under which Calico's aggregated API shows it, and
// back: the bits of every byte are reversed, except for the version and the variant byte. It is its own
// inverse. The error says that uid is no UUID.
func ReverseUID(uid types.UID) (types.UID, error) {
	id, err := ParseUID(uid)
	if err != nil {
		return "", err
	}
	return types.UID(uuid.UUID(Reversed(id)).String()), nil
}

// Reversed is ReverseUID of what ParseUID returns.
func Reversed(id [16]byte) [16]byte {
	for i := range id {
		if i != 6 && i != 8 { // version and variant stay readable
			id[i] = bits.Reverse8(id[i])
		}
	}
	return id
}

// IsMirror tells whether a v3 object is no object of its own but the v1 object with this UID as the
// aggregated API server shows it: under its own UID, or under the reversed one. See ParseUID; zero is no object.
func IsMirror(v1, v3 [16]byte) bool {
	return v1 != [16]byte{} && (v3 == v1 || v3 == Reversed(v1))
}

// ParseUID is the 16 bytes that a UID spells. The error says that it is no UUID.
func ParseUID(uid types.UID) ([16]byte, error) {
	id, err := uuid.Parse(string(uid))
	if err != nil || len(uid) != len(id.String()) { // it reads other spellings, too
		return [16]byte{}, fmt.Errorf("%q is no UUID", string(uid))
	}
	return id, nil
}
