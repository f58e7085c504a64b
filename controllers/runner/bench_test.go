package runner_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// benchedPass takes one step, which waits, and writes nothing.
type benchedPass struct {
	step    string // in the file
	most    uint64 // bytes that it may allocate
	outcome error  // of its action
	tracing trace.TracerProvider
}

var benchedPasses = map[string]benchedPass{
	"waits":            {step: "{action: Work}", most: 20 << 10, outcome: fsm.Wait("not yet")},
	"reads the object": {step: `{action: Work, until: 'self.metadata.name == ""'}`, most: 30 << 10}, // half of it is the API machinery's, for the object as data
	"not sampled": {step: "{action: Work}", most: 20 << 10, outcome: fsm.Wait("not yet"), tracing: sdktrace.NewTracerProvider(
		sdktrace.WithSyncer(tracetest.NewInMemoryExporter()), sdktrace.WithSampler(sdktrace.NeverSample()))},
}

// BenchmarkPass is a pass without an API server: what the runner itself costs. Tracing
// that is off must not show.
func BenchmarkPass(b *testing.B) {
	for name, p := range benchedPasses {
		b.Run(name, func(b *testing.B) {
			pass := p.prepare(b)
			b.ReportAllocs()
			for b.Loop() {
				pass()
			}
		})
	}
}

// TestPassIsCheap holds what BenchmarkPass measures and no busy machine changes. make test
// runs it without the race detector.
func TestPassIsCheap(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates, too")
	}
	const passes = 100
	for name, p := range benchedPasses {
		t.Run(name, func(t *testing.T) {
			pass := p.prepare(t)
			got := uint64(math.MaxUint64)
			for range 5 { // what else runs in this process only adds to it
				var before, after goruntime.MemStats
				goruntime.ReadMemStats(&before)
				for range passes {
					pass()
				}
				goruntime.ReadMemStats(&after)
				got = min(got, (after.TotalAlloc-before.TotalAlloc)/passes)
			}
			if got > p.most {
				t.Errorf("a pass allocates %d bytes beside its requests, at most %d are allowed", got, p.most)
			}
		})
	}
}

// still answers one object that nobody changes, at the price of copying it: what a
// request costs is not what the runner costs. A write panics.
type still struct {
	client.Client
	obj   *errand
	state *v1alpha1.MachineState
}

func (s still) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *errand:
		s.obj.DeepCopyInto(into)
	case *v1alpha1.MachineState:
		s.state.DeepCopyInto(into)
	}
	return nil
}

// standing is a clock at which the next check is always the same: else it would be
// written once a second.
type standing struct {
	clock.RealClock
	at time.Time
}

func (s standing) Now() time.Time              { return s.at }
func (standing) Since(time.Time) time.Duration { return 0 }

// prepare brings an object to the step, and answers what makes a pass over it.
func (p benchedPass) prepare(tb testing.TB) func() {
	tb.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(migrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		tb.Fatal(err)
	}
	obj := &errand{}
	obj.Name, obj.UID = "bench", "0"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithStatusSubresource(obj).Build()
	does := func(do deed, out map[string]fsm.Type) runner.Action[*errand] {
		return runner.Action[*errand]{ActionSpec: fsm.ActionSpec{Outputs: out}, Do: do}
	}
	program := &runner.Program[*errand]{
		New: func() *errand { return &errand{} },
		Actions: map[string]runner.Action[*errand]{
			"Take": does(answer(nil, nil), nil), "Give": does(answer(nil, nil), nil),
			"Work": does(answer(nil, p.outcome), map[string]fsm.Type{"done": fsm.TypeAny}),
		},
		Guards: map[string]runner.Guard[*errand]{"welcome": {Open: func(context.Context, *fsm.Machine, *errand) (bool, string, error) { return true, "", nil }}},
	}
	data, err := os.ReadFile("testdata/errand.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	def, diags := fsm.Load("errand.yaml", bytes.Replace(data, []byte("{action: Work}"), []byte(p.step), 1))
	if err := diags.Err(); err != nil {
		tb.Fatal(err)
	}
	machine, diags := fsm.Bind(def, program.Bindings())
	if err := diags.Err(); err != nil {
		tb.Fatal(err)
	}
	r := &runner.Reconciler[*errand]{
		Client: c, Machine: func() *fsm.Machine { return machine }, Program: program, Clock: standing{at: time.Now()},
		Recorder: &events.FakeRecorder{}, Tracing: p.tracing, Metrics: runner.NewMetrics(prometheus.NewRegistry()),
	}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: obj.Name}}
	// As in a manager. Without a logger, controller-runtime keeps all that are made of none
	// until it has one, and the collector of garbage has more and more to look at.
	ctx := log.IntoContext(tb.Context(), zap.New(zap.WriteTo(io.Discard)).WithValues("controller", "errand", "reconcileID", "0"))
	pass := func() reconcile.Result {
		result, err := r.Reconcile(ctx, req)
		if err != nil {
			tb.Fatal(err)
		}
		return result
	}
	for began := time.Now(); pass().RequeueAfter < time.Second; { // it waits longer
		if time.Since(began) > time.Minute {
			tb.Fatal("the passes do not come to the step that waits")
		}
	}
	if err := c.Get(tb.Context(), req.NamespacedName, obj); err != nil {
		tb.Fatal(err)
	}
	state := &v1alpha1.MachineState{}
	if err := c.Get(tb.Context(), types.NamespacedName{Name: v1alpha1.MachineStateName(machine.Name(), obj.UID)}, state); err != nil {
		tb.Fatal(err)
	}
	r.Client = still{obj: obj, state: state}
	return func() { pass() }
}
