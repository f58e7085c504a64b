package datastoremigration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

func TestLockIsFree(t *testing.T) {
	cases := map[string]struct {
		why            string
		locked         bool
		holder, asking types.UID
		want           []string
	}{
		"open":          {why: "nobody is in the way"},
		"our own":       {why: "a migration comes back to Pending with its lock", locked: true, holder: "known", asking: "known"},
		"another's":     {why: "two would open it for each other", locked: true, holder: "known", asking: "other", want: []string{`failure: v1 ClusterInformation has datastoreReady=false, locked by "known"`}},
		"a person asks": {why: "v1 stays locked for good after a migration: helm test is not to fail for it", locked: true, holder: "known", want: []string{"info: v1 is locked by DatastoreMigration v1-to-v3"}},
		"of one that is gone": {why: "nobody will open it", locked: true, holder: "gone", want: []string{
			"failure: v1 ClusterInformation has datastoreReady=false, locked by a DatastoreMigration that is gone, UID gone: its finalizer was removed by hand, so nobody gave back what it held"}},
		"by hand": {why: "no note says by whom", locked: true, want: []string{`failure: v1 ClusterInformation has datastoreReady=false, locked by ""`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			registry := resources.Default()
			info := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"datastoreReady": !c.locked}}}
			info.SetGroupVersionKind(registry.Lock().V1GVK())
			info.SetName(clusterInformationName)
			if c.holder != "" {
				info.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: string(c.holder)})
			}
			objects := []client.Object{info, &migration{ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3", UID: "known"}}}
			s := &steps{Settings: Settings{Registry: registry}, client: fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(objects...).Build()}
			var asking *migration
			if c.asking != "" {
				asking = &migration{ObjectMeta: metav1.ObjectMeta{UID: c.asking}}
			}
			findings, err := s.lockIsFree(asking).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, string(f.Level)+": "+f.Message)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
