package datastoremigration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// A fence settles from the moment on at which it was seen first, and anew where it was made anew.
func TestAFenceSettlesSince(t *testing.T) {
	cases := []struct {
		why    string
		uid    types.UID // of the migration
		parts  fenceParts
		second int
		want   int
	}{
		{why: "it was just made", uid: "m", parts: fenceParts{"a", "b"}, second: 1, want: 1},
		{why: "it was made while objects were copied", uid: "m", parts: fenceParts{"a", "b"}, second: 60, want: 1},
		{why: "somebody has removed a part, and it was made anew", uid: "m", parts: fenceParts{"a", "c"}, second: 70, want: 70},
		{why: "the same as before", uid: "m", parts: fenceParts{"a", "c"}, second: 80, want: 70},
		{why: "another migration of the same name knows nothing of it", uid: "n", parts: fenceParts{"a", "c"}, second: 90, want: 90},
	}
	var l caches
	for _, c := range cases {
		dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: c.uid}}
		got := l.fenced(dm, c.parts, time.Unix(int64(c.second), 0))
		if diff := cmp.Diff(time.Unix(int64(c.want), 0), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

func TestVerifiedToo(t *testing.T) {
	at := metav1.NewTime(time.Unix(100, 0))
	before := &migrationv1.Verified{At: at, Revision: 7, Digests: "IPPool=1:aa Tier=3:bb"}
	cases := map[string]struct {
		why  string
		late copier.Late
		all  bool
		want *migrationv1.Verified
	}{
		"nothing landed":    {why: "what was verified is so still", late: copier.Late{Revision: 9}, all: true, want: before},
		"brought":           {why: "what was written since is newer than this", all: true, late: copier.Late{Revision: 9, Kinds: []migrationv1.VerifiedKind{{Kind: "Tier", Objects: 4, Digest: "cc"}}}, want: &migrationv1.Verified{At: at, Revision: 9, Digests: "IPPool=1:aa Tier=4:cc"}},
		"all deleted":       {why: "a kind without objects is left out", all: true, late: copier.Late{Revision: 9, Kinds: []migrationv1.VerifiedKind{{Kind: "Tier"}}}, want: &migrationv1.Verified{At: at, Revision: 9, Digests: "IPPool=1:aa"}},
		"another undecided": {why: "the clean-up names what was written since", late: copier.Late{Revision: 9, Kinds: []migrationv1.VerifiedKind{{Kind: "Tier", Objects: 4, Digest: "cc"}}}, want: &migrationv1.Verified{At: at, Revision: 7, Digests: "IPPool=1:aa Tier=4:cc"}},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, verifiedToo(before, c.late, c.all)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.why, diff)
		}
	}
}

// What a person has to decide fits into the state, whatever there is of it.
func TestUndecidedIsBounded(t *testing.T) {
	late := copier.Late{Problems: []resources.Problem{{Kind: "Tier", Name: "refused", Message: "no"}}}
	for range 100 {
		late.Conflicts = append(late.Conflicts, copier.Conflict{Kind: "GlobalNetworkSet", Name: "x", Fields: []resources.FieldDiff{{Path: strings.Repeat("p", 300), Want: "1", Have: "2"}}})
	}
	open := undecided(late)
	if len(open) == 0 || len(open) > migrationv1.MaxConflicts || len(open.String()) > lateLength {
		t.Errorf("%d objects, %d bytes", len(open), len(open.String()))
	}
	one := undecided(copier.Late{Problems: late.Problems})
	if diff := cmp.Diff(migrationv1.Conflicts{{Kind: "Tier", Name: "refused", Fields: []string{"no"}}}, one); diff != "" {
		t.Errorf("a refusal (-want +got):\n%s", diff)
	}
}

// How long late writes are looked for is counted by this process.
func TestCachesKnowSince(t *testing.T) {
	now := time.Unix(1000, 0)
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: types.UID("u")}}
	at := metav1.NewTime(now.Add(-time.Hour)) // by a clock of another
	c := &caches{}
	if got := c.verified(dm, at, now); !got.Equal(now) {
		t.Errorf("a manager that has just started counts from %s", got)
	}
	if got := c.verified(dm, metav1.NewTime(at.Add(time.Millisecond)), now.Add(time.Minute)); !got.Equal(now) {
		t.Errorf("a minute later it counts from %s", got)
	}
	if got := c.verified(dm, metav1.NewTime(now), now.Add(time.Minute)); !got.Equal(now.Add(time.Minute)) {
		t.Errorf("another comparison counts from %s", got)
	}

	one, two := []apiServer{{address: "a"}}, []apiServer{{address: "a"}, {address: "b"}}
	for i, step := range []struct {
		why     string
		servers []apiServer
		opened  bool
		want    time.Time
	}{
		{"they have just refused", one, false, now},
		{"they have refused since", one, false, now},
		{"one has come", two, false, now.Add(2 * time.Second)},
		{"v1 was open meanwhile", two, true, now.Add(3 * time.Second)},
	} {
		if step.opened {
			c.opened(dm)
		}
		if got := c.closed(dm, step.servers, now.Add(time.Duration(i)*time.Second)); !got.Equal(step.want) {
			t.Errorf("%d: since %s, want %s: %s", i, got, step.want, step.why)
		}
	}
}

// What is on record is lifted, and nothing else is.
func TestBarrierKinds(t *testing.T) {
	cases := map[string]struct {
		why  string
		note string
		want []string
	}{
		"none":          {why: "small kinds only"},
		"two":           {why: "as planBarriers writes them", note: "IPAMHandle,NetworkPolicy", want: []string{"IPAMHandle", "NetworkPolicy"}},
		"by a person":   {why: "a blank is no mistake", note: "IPAMHandle, NetworkPolicy", want: []string{"IPAMHandle", "NetworkPolicy"}},
		"known no more": {why: "its entry has left the registry; a migration goes on", note: "BandwidthPolicy,IPAMHandle", want: []string{"IPAMHandle"}},
	}
	s := newEffects(nil, Settings{Registry: resources.Default()})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, kind := range s.watchSync.barrierKinds(tc.note) {
				got = append(got, kind.Name())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
