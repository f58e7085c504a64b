package datastoremigration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
