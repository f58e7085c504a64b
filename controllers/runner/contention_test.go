package runner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
)

// Another controller that answers each of our writes with its own would be answered for ever.
func TestAnotherControllerIsLeftAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		why       string
		contended bool
		// holds: it has acquired an effect.
		holds bool
		// every is at which of our looks the other one writes, and calls how many there are, pace apart; 0: a second.
		every, calls int
		pace         time.Duration
		// atLeast and atMost are our writes.
		atLeast, atMost int
		told            string
	}{
		"it answers each write":   {why: "three answers, and one after each pause", contended: true, every: 1, calls: 600, atLeast: 4, atMost: 6, told: "drives this object as well"},
		"one write":               {why: "a person who tries what happens is corrected at once", contended: true, every: 1000, calls: 10, atLeast: 1, atMost: 1},
		"now and then":            {why: "what others write every quarter of an hour is corrected each time", contended: true, every: 90, calls: 900, pace: 10 * time.Second, atLeast: 10, atMost: 10},
		"it holds something":      {why: "a lock must not wait for anybody", contended: true, holds: true, every: 1, calls: 100, atLeast: 100, atMost: 110},
		"a kind that has no peer": {why: "no other project has a controller for it", every: 1, calls: 100, atLeast: 100, atMost: 110},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(migrationv1.AddToScheme(scheme))
			utilruntime.Must(v1alpha1.AddToScheme(scheme))
			b := newBenchOn(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&errand{}).WithReturnManagedFields().Build())
			b.welcome = tc.holds
			program := *b.Program
			program.Contended = tc.contended
			r := &runner.Reconciler[*errand]{Client: b.Client, Machine: b.Machine, Program: &program, Clock: b.Clock, Random: b.Random, Metrics: b.Metrics,
				Recorder: events.NewFakeRecorder(10000)}
			for range 6 { // until it has nothing more to do
				b.passOf(r)
			}
			var ours int
			var said string
			for i := range tc.calls {
				if i%tc.every == 0 {
					obj := &errand{}
					obj.Name = b.name
					status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed","message":"theirs"}}`))
					if err := b.outside.Status().Patch(t.Context(), obj, status, client.FieldOwner("other")); err != nil {
						t.Fatal(err)
					}
				}
				b.clock.Step(max(tc.pace, time.Second))
				writes, _, more := b.passOf(r)
				ours, said = ours+writes, said+more
			}
			if ours < tc.atLeast || ours > tc.atMost || !strings.Contains(said, tc.told) {
				t.Errorf("%d writes, %d to %d are wanted (%s); events:\n%s", ours, tc.atLeast, tc.atMost, tc.why, said)
			}
		})
	}
}
