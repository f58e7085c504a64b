package resources

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestReverseUID(t *testing.T) {
	for from, to := range map[types.UID]types.UID{
		testUID:                                reversedID,
		"a1b2c3d4-e5f6-4a7b-8c9d-0123456789ab": "854dc32b-a76f-4ade-8cb9-80c4a2e691d5",
		"00000000-0000-4000-8000-000000000001": "00000000-0000-4000-8000-000000000080",
	} {
		for _, pair := range [][2]types.UID{{from, to}, {to, from}} {
			got, err := ReverseUID(pair[0])
			if err != nil || got != pair[1] {
				t.Errorf("ReverseUID(%s) = %s, %v; want %s", pair[0], got, err, pair[1])
			}
		}
	}
	upper, err := ReverseUID("0E5E3214-5BDA-429E-8D53-2F1B77363286")
	if err != nil || upper != reversedID {
		t.Errorf("upper case gives %s, %v; want lower case %s", upper, err, reversedID)
	}
	for _, bad := range []types.UID{"", "abc", "0e5e3214x5bda-429e-8d53-2f1b77363286", "0e5e3214-5bda-429e-8d53-2f1b7736328g", testUID + "0", "0e5e32145bda429e8d532f1b77363286"} {
		if got, err := ReverseUID(bad); err == nil {
			t.Errorf("ReverseUID(%q) = %s, want an error", bad, got)
		}
	}
}
