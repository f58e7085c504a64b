package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/resources"
)

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
