package mcpserver

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// play is a server of the shipped machine whose actions are made up.
type play struct {
	*simulate.Fake
	t *testing.T
	// ensure and observe are the errors of EnsureWorkload and ObserveWorkload; seen is
	// what ObserveWorkload answers without one.
	ensure, observe error
	seen            outputs
	// applied is the generation that EnsureWorkload has applied last.
	applied int64
}

var (
	wellSeen = outputs{"wanted": int64(1), "current": true, "ready": true}
	notReady = outputs{"wanted": int64(1), "current": true, "waitingFor": "StatefulSet fetch: 0 of 1 pods are ready"}
)

// refusedSpec is an error that only a new spec ends.
var refusedSpec = fsm.Terminal("InvalidSpec", "the API server refuses it")

var shipped struct {
	once    sync.Once
	machine *fsm.Machine
}

// shippedMachine is bound once for all tests, of which most cases ask for it: nothing changes a machine.
func shippedMachine(t testing.TB) *fsm.Machine {
	t.Helper()
	shipped.once.Do(func() { shipped.machine = fsmtest.Machine(t, "../../phases/mcpserver.yaml", Bindings()) })
	return shipped.machine
}

func newPlay(t *testing.T) *play {
	t.Helper()
	machine := shippedMachine(t)
	p := &play{Fake: fsmtest.World(t, machine, map[string]any{"spec": map[string]any{"image": "example.org/fetch:1"}}), t: t, seen: wellSeen}
	p.Respond, p.Tell = p.act, p.mayBeReady
	return p
}

func (p *play) act(action string, _ fsm.Decision) (simulate.Answer, bool) {
	switch action {
	case "EnsureWorkload":
		if p.ensure == nil {
			p.applied = p.View().Generation
		}
		class := fsm.ClassForbidden
		if errors.Is(p.ensure, refusedSpec) {
			class = fsm.ClassTerminal
		}
		return simulate.Answer{Result: fsm.Result{Err: p.ensure, Class: class}}, true
	case "ObserveWorkload":
		return simulate.Answer{Result: fsm.Result{Outputs: p.seen, Err: p.observe, Class: fsm.ClassUnavailable}}, true
	}
	return simulate.Answer{}, false
}

// mayBeReady is asked after everything that happens.
func (p *play) mayBeReady(e simulate.Event) {
	status, _ := p.Self()["status"].(map[string]any)
	if observed, _ := status["observedGeneration"].(int64); meta.IsStatusConditionTrue(p.Shown.Conditions, fsm.ConditionReady) && observed > p.applied {
		p.t.Errorf("after %q the server is Ready of generation %d, but %d is what was applied", e.Text, observed, p.applied)
	}
}

// until lets time pass until the server is in a phase.
func (p *play) until(phase string) {
	p.t.Helper()
	if err := p.Run(time.Hour, func() bool { return p.Stored.Phase == phase }); err != nil || p.Stored.Phase != phase {
		p.t.Fatalf("phase %s, want %s: %v", p.Stored.Phase, phase, err)
	}
}

func (p *play) newImage() {
	p.t.Helper()
	if err := p.Set("spec.image", "example.org/fetch:2"); err != nil {
		p.t.Fatal(err)
	}
}

func TestReadyIsOfTheSpecThatWasApplied(t *testing.T) {
	type shown struct{ Phase, Reconciling, Message string }
	for name, test := range map[string]struct {
		why   string
		comes func(*play)
		want  shown
	}{
		"applied": {"the next look brings it", (*play).newImage, shown{Phase: "Ready"}},
		"refused": {"an admission webhook answers 403", func(p *play) { p.ensure = errors.New("denied by a webhook"); p.newImage() },
			shown{"Ready", "StepFailed", "denied by a webhook (attempt 1, next in 1s)"}},
		"waiting": {"it is made again once the one of before is gone", func(p *play) { p.ensure = fsm.Wait("Deployment fetch is being deleted"); p.newImage() },
			shown{"Ready", "StepNotDone", "Deployment fetch is being deleted"}},
		"after a failed look": {"the last step is done again, and then it is the first one's turn", func(p *play) {
			p.observe = errors.New("etcd is gone")
			if err := p.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
			p.observe = nil
			p.newImage()
		}, shown{Phase: "Ready"}},
		"during a restart": {"the pods that came are of the spec of before", func(p *play) {
			p.Annotate(map[string]string{v1beta1.AnnotationRestartedAt: token})
			p.until("Restarting")
			p.newImage()
		}, shown{Phase: "Ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t)
			p.until("Ready")
			test.comes(p)
			if err := p.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
			got := shown{Phase: p.Shown.Phase}
			if c := meta.FindStatusCondition(p.Shown.Conditions, fsm.ConditionReconciling); meta.IsStatusConditionTrue(p.Shown.Conditions, c.Type) {
				got.Reconciling, got.Message = c.Reason, c.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// The first closed exit of Pending is the one for a restart, which nobody asked for.
func TestStartTimeoutSaysWhatWasMissing(t *testing.T) {
	p := newPlay(t)
	p.seen = notReady
	p.until("Failed")
	last := p.Stored.History[len(p.Stored.History)-1]
	got := []string{last.Reason, last.Message}
	want := []string{"StartTimeout", "Pending lasted longer than 10m: Waiting for StatefulSet fetch: 0 of 1 pods are ready"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Who corrects the spec gets the whole time for it, whether the look at it comes to its
// end or the last step of it failed before.
func TestCorrectedSpecHasTheWholeTime(t *testing.T) {
	for name, before := range map[string]func(*play){
		"no pod is ready": func(p *play) { p.seen = notReady },
		"a step fails":    func(p *play) { p.seen, p.ensure = notReady, errors.New("denied by a webhook") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t)
			before(p)
			pass := func(d time.Duration, want string) {
				t.Helper()
				if err := p.Run(d, func() bool { return false }); err != nil {
					t.Fatal(err)
				}
				if p.Stored.Phase != want {
					t.Fatalf("after %s more it is %s, want %s: %+v", d, p.Stored.Phase, want, p.Stored.History)
				}
			}
			pass(9*time.Minute, "Pending")
			p.ensure = nil
			p.newImage()
			pass(9*time.Minute, "Pending")
			pass(2*time.Minute, "Failed")
		})
	}
}

// A restart replaces the pods of a server that cannot be run as its spec says, too: they are of the spec
// of before. A second look at the spec follows, and restarts nothing.
func TestRestartOfAFailedServer(t *testing.T) {
	for name, test := range map[string]struct {
		why string
		// after is what the look at the spec answers once the restart was asked for.
		after error
		want  []string
	}{
		"still refused": {"the pods are replaced all the same", refusedSpec, []string{"RestartingFailed", "Pending", "Failed"}},
		"corrected":     {"Ready is of the spec that was applied", nil, []string{"RestartingFailed", "Pending", "Ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t)
			p.until("Ready")
			p.ensure = refusedSpec
			p.newImage()
			p.until("Failed")
			stamps := 0
			p.Respond = func(action string, c fsm.Decision) (simulate.Answer, bool) {
				if action == "StampPodTemplates" {
					stamps++
				}
				return p.act(action, c)
			}
			before := len(p.Stored.History)
			p.ensure = test.after
			p.Annotate(map[string]string{v1beta1.AnnotationRestartedAt: token})
			if err := p.RunUntilIdle(); err != nil {
				t.Fatal(err)
			}
			if err := p.Run(5*time.Minute, func() bool { return false }); err != nil {
				t.Fatal(err)
			}
			var went []string
			for _, h := range p.Stored.History[before:] {
				went = append(went, h.To)
			}
			if diff := cmp.Diff(test.want, went); diff != "" || stamps != 1 {
				t.Errorf("%s: %d stamps, want 1; phases (-want +got):\n%s", test.why, stamps, diff)
			}
		})
	}
}
