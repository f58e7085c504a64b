package datastoremigration

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/datastoremigration/policies"
	"github.com/phasegate/phasegate/resources"
)

// Under the lock a manager that was installed anew under another name goes on: the fence lets it pass in place of the
// account that is on record. For any other account somebody has opened v1.
func TestAnotherAccountUnderTheLock(t *testing.T) {
	const before, now = "system:serviceaccount:a:one", "system:serviceaccount:b:other"
	for name, c := range map[string]struct {
		why, fence, onRecord string
		broken               bool
	}{
		"installed anew":         {why: "nobody else has passed", fence: before, onRecord: before},
		"somebody's account":     {why: "who passed may have written v1", fence: "jo", onRecord: before, broken: true},
		"nothing is on record":   {why: "nobody can tell whose it was", fence: before, broken: true},
		"this one, as it was":    {why: "nothing has happened", fence: now, onRecord: now},
		"died after taking over": {why: "the record follows the fence", fence: now, onRecord: before},
	} {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockEnforced}
			lock := lockObject(false)
			lock.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: "u"})
			fence := newEffects(nil, Settings{Registry: resources.Default()}).fence.partsFor(dm, c.fence, admissionregistrationv1.Fail)
			cl := interceptor.NewClient(newFake().WithStatusSubresource(dm).
				WithObjects(fence[:]...).WithObjects(dm, lock, onceState(dm.UID, fenceAccountKey, c.onRecord)).Build(), interceptor.Funcs{
				Create: func(ctx context.Context, cl client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if review, is := obj.(*authenticationv1.SelfSubjectReview); is {
						review.Status.UserInfo.Username = now
						return nil
					}
					return cl.Create(ctx, obj, opts...)
				}})
			err := secondLook(t, cl, dm)
			if broken := err != nil && strings.Contains(err.Error(), "another client has removed or changed the fence"); broken != c.broken || err != nil && !broken {
				t.Fatalf("it says %v: %s", err, c.why)
			}
			for _, name := range policies.Names {
				if passes := letsPass(t, cl, name, now); passes == c.broken {
					t.Errorf("%s lets this account pass: %t: %s", name, passes, c.why)
				}
			}
			state := onceState(dm.UID, "", "")
			must(t, cl.Get(t.Context(), client.ObjectKeyFromObject(state), state))
			if got := string(state.Status.Saved[fenceAccountKey]); !c.broken && got != now {
				t.Errorf("on record is %q: %s", got, c.why)
			}
		})
	}
}

// letsPass tells whether a fence is made for an account.
func letsPass(t *testing.T, cl client.Client, fence, account string) bool {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	must(t, cl.Get(t.Context(), client.ObjectKey{Name: fence}, policy))
	return strings.Contains(policy.Spec.MatchConditions[0].Expression, account)
}

// secondLook is what BlockV1Writes says after the first look, which waits for the API servers.
func secondLook(t *testing.T, cl client.Client, dm *migration) error {
	t.Helper()
	_, err := once(t, cl, dm, "BlockV1Writes", nil)
	if isWait(err) {
		_, err = once(t, cl, dm, "BlockV1Writes", nil)
	}
	return err
}

// What stands in the cluster is compared with what was made: any part that says something else, or is somebody
// else's, is no fence of this migration.
func TestSameFence(t *testing.T) {
	made := func(uid, account string, whileUnknown admissionregistrationv1.FailurePolicyType) [4]client.Object {
		dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
		if uid != "" {
			dm.UID = "another"
		}
		return policies.Fence(dm, resources.Default().Lock(), "default", account, whileUnknown)
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
				if policies.Same(c.have[i], want, c.open) {
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
	if policies.Same(going, made("", "me", fail)[0], false) {
		t.Error("a policy that is being deleted is taken for one that stands")
	}
}
