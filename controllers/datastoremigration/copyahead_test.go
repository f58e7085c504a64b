package datastoremigration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/inflight"
)

// Others come first as long as nothing is locked, and never after.
func TestLowPriorityBeforeTheLock(t *testing.T) {
	cases := map[string]struct {
		why    string
		action string
		ahead  bool
		held   string // an effect
		want   bool   // that its requests can wait
	}{
		"planning":       {why: "it reads all of v1, and nobody waits for it", action: "Plan", want: true},
		"ahead":          {why: "nobody waits for it", action: "CopyResources", ahead: true, want: true},
		"under the lock": {why: "pods wait for their addresses", action: "CopyResources"},
		"verifying":      {why: "so they do", action: "Verify"},
		"taking back":    {why: "v1 is open by then", action: "DeleteCopies", want: true},
		"taking back what was copied under the lock": {why: "v1 opens after it", action: "DeleteCopies", held: "v1Lock"},
		"forgetting": {why: "it writes every object once the migration is over", action: "RemoveMigrationAnnotations", want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "u"}}
			dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockCooperative}
			dm.Status.CopyAhead = &migrationv1.CopyAhead{State: migrationv1.CopyAheadOpen}
			if c.held != "" {
				dm.Status.Machine.Held = []v1alpha1.HeldEffect{{Name: c.held}}
			}
			seen := errors.New("seen")
			var got atomic.Bool // kinds are listed side by side
			api := newFake().WithStatusSubresource(dm).WithObjects(dm, v3Service(""), lockObject(false)).Build()
			copies := interceptor.NewClient(api, interceptor.Funcs{
				List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
					got.Store(inflight.IsLowPriority(ctx))
					return seen
				},
			})
			action := underShipped(Program(api, Settings{Registry: resources.Default(), Discovery: nothingServed(), Copies: copies}).Actions[c.action])
			if _, err := runner.Once(t.Context(), api, dm, action, fsm.Params{"ahead": c.ahead}, clock.RealClock{}); !errors.Is(err, seen) {
				t.Fatalf("it did not come to a list: %v", err)
			}
			if got := got.Load(); got != c.want {
				t.Errorf("low priority: %t, want %t: %s", got, c.want, c.why)
			}
		})
	}
}
