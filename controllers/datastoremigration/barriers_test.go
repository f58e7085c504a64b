package datastoremigration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources/copier"
)

// What is on record is lifted; what cannot be read is never taken for nothing.
func TestBarriersOf(t *testing.T) {
	cases := map[string]struct {
		why  string
		note map[string]string
		want []copier.Barrier
		says string
	}{
		"none": {why: "small kinds only"},
		"two": {why: "as planBarriers writes them", note: map[string]string{migrationv1.AnnotationBarriers: `[{"kind":"IPAMHandle","name":"a"},{"kind":"NetworkPolicy","namespace":"shop","name":"web"}]`},
			want: []copier.Barrier{{Kind: "IPAMHandle", Name: "a"}, {Kind: "NetworkPolicy", Namespace: "shop", Name: "web"}}},
		"unreadable": {why: "a person has edited it", note: map[string]string{migrationv1.AnnotationBarriers: `IPAMHandle a`},
			says: "annotation migration.projectcalico.org/barriers of DatastoreMigration to-v3 cannot be read: repair it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := barriersOf(&migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", Annotations: tc.note}})
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: error %v, want %q", tc.why, err, tc.says)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
