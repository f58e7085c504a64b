package datastoremigration

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// The end of a lock is counted from the moment at which v1 was closed, also where the process that closed it has died before it
// could say so. A lock that never came about has no end yet.
func TestALockEndsAfterACrash(t *testing.T) {
	const limit, down = 30 * time.Minute, 20 * time.Minute
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		why    string
		closes bool // the write that the process dies at
		want   time.Time
	}{
		"right after the write":  {why: "v1 has been closed for 20 minutes by then", closes: true, want: begin.Add(limit)},
		"right before the write": {why: "v1 was open until now", want: begin.Add(down + limit)},
	} {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "me"}}
			world := newFake().WithStatusSubresource(dm).WithObjects(dm, lockObject(true)).Build()
			clock := clocktesting.NewFakeClock(begin)
			died := errors.New("died")
			dying := interceptor.NewClient(world, interceptor.Funcs{Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if obj.GetName() != clusterInformationName {
					return cl.Patch(ctx, obj, patch, opts...)
				}
				if c.closes {
					return errors.Join(died, cl.Patch(ctx, obj, patch, opts...))
				}
				return died
			}})
			with := fsm.Params{"deadline": limit.String()}
			lock := func(cl client.WithWatch) (*migration, error) {
				live := &migration{}
				must(t, cl.Get(t.Context(), types.NamespacedName{Name: dm.Name}, live))
				_, err := runner.Once(t.Context(), cl, live, actionOn(cl, "LockV1"), with, clock)
				return live, err
			}
			if _, err := lock(dying); !errors.Is(err, died) {
				t.Fatalf("%v, want it to die", err)
			}
			clock.Step(down)
			after, err := lock(world)
			must(t, err)
			if lock := after.Status.Lock; lock == nil || lock.Deadline == nil || !lock.Deadline.Time.Equal(c.want) {
				t.Errorf("lock %+v, want it to end at %s: %s", lock, c.want, c.why)
			}
		})
	}
}
