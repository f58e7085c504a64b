package runner_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	looplab "github.com/looplab/fsm"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/machine/program"
	"github.com/phasegate/phasegate/fsm/verify/simulate"
)

// shippedProgram has every name of datastore-migration.yaml, and does nothing: each action answers zeros, each
// guard is open.
func shippedProgram(tb testing.TB) (*fsm.Machine, *runner.Program[*errand]) {
	tb.Helper()
	read := func(file string) []byte {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		return data
	}
	b, diags := program.LoadBindings("bindings.yaml", read("../../docs/machines/datastore-migration.bindings.yaml"))
	if err := diags.Err(); err != nil {
		tb.Fatal(err)
	}
	program := &runner.Program[*errand]{New: func() *errand { return &errand{} },
		Actions: map[string]runner.Action[*errand]{}, Guards: map[string]runner.Guard[*errand]{}, Roles: b.Roles}
	for name, spec := range b.Actions {
		program.Actions[name] = runner.Action[*errand]{ActionSpec: spec, Do: answer(simulate.Zero(spec), nil)}
	}
	for name := range b.Guards {
		program.Guards[name] = runner.Guard[*errand]{Open: func(context.Context, *fsm.Machine, *errand) (bool, string, error) { return true, "", nil }}
	}
	def, diags := fsm.Load("datastore-migration.yaml", read("../../phases/datastore-migration.yaml"))
	if err := diags.Err(); err != nil {
		tb.Fatal(err)
	}
	m, diags := fsm.Bind(def, program.Bindings())
	if err := diags.Err(); err != nil {
		tb.Fatal(err)
	}
	return m, program
}

// standingIn is an object of the shipped machine in a phase, and its state.
func standingIn(m *fsm.Machine, phase string, held ...string) (*errand, *v1alpha1.MachineState) {
	obj := &errand{}
	obj.Name, obj.UID, obj.Generation, obj.Finalizers = "carried", "0", 1, []string{m.Finalizer()}
	obj.Spec.Type = migrationv1.APIServerToCRDs
	since := metav1.NewMicroTime(noon)
	st := v1alpha1.MachineStatus{Name: m.Name(), Revision: m.Revision(), Phase: phase, EnteredAt: &since, Held: v1alpha1.Held(held...), Generation: 1}
	obj.Status.Machine = st
	state := &v1alpha1.MachineState{}
	state.Name = v1alpha1.MachineStateName(m.Name(), obj.UID)
	state.Spec = v1alpha1.MachineStateSpec{Machine: m.Name(), Object: v1alpha1.ObjectReference{APIVersion: m.For().APIVersion, Kind: m.For().Kind, Name: obj.Name, UID: obj.UID}}
	state.Status.MachineStatus = st
	return obj, state
}

// carried drives an object that stands in a phase, on an API server that is played.
type carried struct {
	t        testing.TB
	client   client.Client
	r        *runner.Reconciler[*errand]
	recorder *events.FakeRecorder
	req      reconcile.Request
	// refuse is asked before each write of a state; nil lets all pass.
	refuse func() error
}

func carry(t testing.TB, m *fsm.Machine, program *runner.Program[*errand], phase string, held ...string) *carried {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	obj, state := standingIn(m, phase, held...)
	c := &carried{t: t, recorder: events.NewFakeRecorder(100), req: reconcile.Request{NamespacedName: types.NamespacedName{Name: obj.Name}}}
	c.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj, state).WithStatusSubresource(obj).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, under client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, state := obj.(*v1alpha1.MachineState); state && c.refuse != nil {
				if err := c.refuse(); err != nil {
					return err
				}
			}
			return under.Patch(ctx, obj, patch, opts...)
		},
	})
	c.r = &runner.Reconciler[*errand]{Client: c.client, Machine: func() *fsm.Machine { return m }, Program: program, Clock: standing{at: noon}, MaxRuns: 1,
		Recorder: c.recorder, Metrics: runner.NewMetrics(prometheus.NewRegistry())}
	return c
}

// passes makes some, and answers the phase that is stored then, and the Events.
func (c *carried) passes(n int) (phase string, told []string) {
	c.t.Helper()
	ctx := log.IntoContext(c.t.Context(), zap.New(zap.WriteTo(io.Discard)))
	for range n {
		if _, err := c.r.Reconcile(ctx, c.req); err != nil {
			c.t.Fatal(err)
		}
	}
	_, state := c.stored()
	for len(c.recorder.Events) > 0 {
		told = append(told, <-c.recorder.Events)
	}
	return state.Status.Phase, told
}

var locks = []string{"v1Fence", "sideDoor", "dependents", "v1Lock", "v1Owners", "apiService", "v3Lock", "v3Copies"}

// What is stored is what the events say, and what is told is what is stored.
func TestEventsCarryAPass(t *testing.T) {
	m, program := shippedProgram(t)
	for name, c := range map[string]struct {
		why   string
		m     *fsm.Machine
		phase string
		told  []string
		shown string
	}{
		"as the file says": {"the twin of the others", m, "Converged", []string{"Normal AllVerified Migrating → Converged"}, ""},
		"refused": {"a callback that refuses an event stops it", m.With(m.Program(), looplab.Callbacks{
			"before_AllVerified": func(_ context.Context, e *looplab.Event) { e.Cancel(errors.New("not today")) }}),
			"Migrating", nil, "illegal transition: AllVerified from Migrating: not today"},
	} {
		t.Run(name, func(t *testing.T) {
			b := carry(t, c.m, program, "Migrating", locks...)
			phase, told := b.passes(1)
			if d := cmp.Diff([]any{c.phase, c.told}, []any{phase, told}); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, d)
			}
			if obj, _ := b.stored(); !strings.Contains(obj.Status.Message, c.shown) {
				t.Errorf("%s: %q", c.why, obj.Status.Message)
			}
		})
	}
}

// A transition that is not stored is told nobody; the next pass, with a state machine of its own, tells it once.
func TestWhatIsNotStoredIsNotTold(t *testing.T) {
	m, program := shippedProgram(t)
	b := carry(t, m, program, "Migrating", locks...)
	b.refuse = func() error { return conflict() }
	if phase, told := b.passes(1); phase != "Migrating" || told != nil {
		t.Errorf("in %s, told %v, although nothing was stored", phase, told)
	}
	b.refuse = nil
	if phase, told := b.passes(1); phase != "Converged" || len(told) != 1 {
		t.Errorf("in %s, told %v, want Converged, once", phase, told)
	}
}

// taken answers one object that nobody changes, as still does, and to each write what it answered to the same write once.
type taken struct {
	still
	obj   *errand
	state *v1alpha1.MachineState
}

func (w taken) Patch(_ context.Context, into client.Object, _ client.Patch, _ ...client.PatchOption) error {
	w.state.DeepCopyInto(into.(*v1alpha1.MachineState))
	return nil
}

func (w taken) Status() client.SubResourceWriter { return takenStatus{obj: w.obj} }

type takenStatus struct {
	client.SubResourceWriter
	obj *errand
}

func (w takenStatus) Patch(_ context.Context, into client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	w.obj.DeepCopyInto(into.(*errand))
	return nil
}

// BenchmarkPassTransition is a pass over the shipped machine that takes a transition: the conflicts are resolved.
func BenchmarkPassTransition(b *testing.B) {
	m, program := shippedProgram(b)
	const phase = "WaitingForConflictResolution"
	once := carry(b, m, program, phase, locks...)
	before, state := once.stored()
	if now, told := once.passes(1); now != "Migrating" || len(told) != 1 {
		b.Fatalf("in %s, told %v", now, told)
	}
	wrote := taken{still: still{obj: before, state: state}}
	wrote.obj, wrote.state = once.stored()
	once.r.Client, once.r.Recorder = wrote, &events.FakeRecorder{}
	ctx := log.IntoContext(b.Context(), zap.New(zap.WriteTo(io.Discard)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := once.r.Reconcile(ctx, once.req); err != nil {
			b.Fatal(err)
		}
	}
}

// stored is what is played: the object and its state.
func (c *carried) stored() (*errand, *v1alpha1.MachineState) {
	c.t.Helper()
	obj, state := &errand{}, &v1alpha1.MachineState{}
	key := types.NamespacedName{Name: v1alpha1.MachineStateName("datastore-migration", "0")}
	if err := errors.Join(c.client.Get(c.t.Context(), c.req.NamespacedName, obj), c.client.Get(c.t.Context(), key, state)); err != nil {
		c.t.Fatal(err)
	}
	return obj, state
}

// conflict is the answer to a write of what somebody else has written meanwhile.
func conflict() error {
	return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("machinestates").GroupResource(), "carried", errors.New("the state was written meanwhile"))
}
