package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigestsThereAndBack(t *testing.T) {
	text := JoinDigests([]VerifiedKind{{"Tier", 3, 2, "9f86"}, {"BGPPeer", 0, 0, "e3b0"}, {"IPPool", 1, 0, "6030"}})
	if want := "IPPool=1:6030 Tier=3+2:9f86"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	got, err := (&Verified{Digests: text}).ByKind()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]VerifiedKind{"IPPool": {"IPPool", 1, 0, "6030"}, "Tier": {"Tier", 3, 2, "9f86"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDigestsOfOthersAreRefused(t *testing.T) {
	for _, text := range []string{"Tier", "Tier=", "Tier=three:9f86", "Tier=3", "Tier=3+:9f86"} {
		if got, err := (&Verified{Digests: text}).ByKind(); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
