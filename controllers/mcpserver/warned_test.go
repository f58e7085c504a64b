package mcpserver

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// An annotation comes while the last step of the phase waits, so that the next pass goes on with that step, and shows the
// condition before CheckSpec has its turn.
func TestAConditionThatIsShownBeforeItsStepRunsIsTold(t *testing.T) {
	srv := &server{ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "fetch", UID: "u", Generation: 1}, Spec: httpServer}
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(srv).WithStatusSubresource(&server{}).Build()
	program, waits := Program(c, Settings{}), true
	for _, name := range []string{"EnsureWorkload", "ObserveWorkload"} {
		action := program.Actions[name]
		action.Do = func(context.Context, *scope) (outputs, error) {
			if name == "ObserveWorkload" && waits {
				return nil, fsm.Wait("the pods come up")
			}
			return wellSeen, nil
		}
		program.Actions[name] = action
	}
	machine, recorder := shippedMachine(t), events.NewFakeRecorder(100)
	r := &runner.Reconciler[*server]{Client: c, Machine: func() *fsm.Machine { return machine }, Program: program, Recorder: recorder,
		Clock: clocktesting.NewFakeClock(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)), Random: rand.Float64, Metrics: runner.NewMetrics(prometheus.NewRegistry())}
	passes := func() {
		for range 4 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(srv)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	passes()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(srv), srv); err != nil {
		t.Fatal(err)
	}
	srv.Annotations = map[string]string{v1beta1.AnnotationRestartedAt: "yesterday"}
	if err := c.Update(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	passes()
	waits = false
	passes()
	close(recorder.Events)
	var told []string
	for e := range recorder.Events {
		if strings.HasPrefix(e, "Warning") {
			told = append(told, e)
		}
	}
	want := []string{`Warning InvalidRestartTimestamp annotation mcpserver.toolhive.stacklok.dev/restarted-at is "yesterday", which is not a time such as 2006-01-02T15:04:05Z: nothing is restarted`}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
