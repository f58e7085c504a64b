package policies

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// What stands in the cluster is compared with what was made: any part that says something else, or is somebody
// else's, is no fence of this migration.
func TestSame(t *testing.T) {
	made := func(uid, account string, whileUnknown admissionregistrationv1.FailurePolicyType) [4]client.Object {
		dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
		if uid != "" {
			dm.UID = "another"
		}
		return Fence(dm, resources.Default().Lock(), "default", account, whileUnknown)
	}
	const ignore, fail = admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	cases := map[string]struct {
		why  string
		have [4]client.Object
		open bool
		same string // a letter for each part
	}{
		"as it was made":    {why: "nobody has touched it", have: made("", "me", fail), same: "yyyy"},
		"another account":   {why: "both policies let one account pass, the bindings none", have: made("", "you", fail), same: "nyny"},
		"another migration": {why: "it is not ours", have: made("another", "me", fail), same: "nnnn"},
		"not closed yet":    {why: "the lock changes what is done while the parameter is unknown", have: made("", "me", ignore), same: "nyyy"},
		"while v1 is open":  {why: "then that difference is none", have: made("", "me", ignore), open: true, same: "yyyy"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for i, want := range made("", "me", fail) {
				letter := byte('n')
				if Same(c.have[i], want, c.open) {
					letter = 'y'
				}
				got.WriteByte(letter)
			}
			if got.String() != c.same {
				t.Errorf("parts are the same: %s, want %s: %s", got.String(), c.same, c.why)
			}
		})
	}
	going := made("", "me", fail)[0]
	now := metav1.Now()
	going.SetDeletionTimestamp(&now)
	if Same(going, made("", "me", fail)[0], false) {
		t.Error("a policy that is being deleted is taken for one that stands")
	}
}
