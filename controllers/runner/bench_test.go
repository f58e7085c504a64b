package runner_test

import (
	"context"
	"os"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// BenchmarkPass is one pass with two steps, without an API server: what the runner
// itself costs. Tracing that is off must not show.
func BenchmarkPass(b *testing.B) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewInMemoryExporter()), sdktrace.WithSampler(sdktrace.NeverSample()))
	for name, tracing := range map[string]trace.TracerProvider{"off": nil, "not sampled": provider} {
		b.Run(name, func(b *testing.B) {
			r, req := benchPass(b)
			r.Tracing = tracing
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Reconcile(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// still answers one object that nobody changes, at the price of copying it: what a
// request costs is not what the runner costs. A write panics.
type still struct {
	client.Client
	obj *errand
}

func (s still) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.obj.DeepCopyInto(into.(*errand))
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

// TestPassIsCheap holds what BenchmarkPass measures and no busy machine changes.
func TestPassIsCheap(t *testing.T) {
	const most = 20 << 10
	result := testing.Benchmark(func(b *testing.B) {
		r, req := benchPass(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Reconcile(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
	if got := result.AllocedBytesPerOp(); result.N == 0 || got > most {
		t.Errorf("a pass with two steps allocates %d bytes beside its requests in %d runs, at most %d are allowed", got, result.N, most)
	}
}

func benchPass(b *testing.B) (*runner.Reconciler[*errand], reconcile.Request) {
	b.Helper()
	scheme := runtime.NewScheme()
	if err := migrationv1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	obj := &errand{}
	obj.Name = "bench"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).WithStatusSubresource(obj).Build()
	does := func(do deed, out map[string]fsm.Type) runner.Action[*errand] {
		return runner.Action[*errand]{ActionSpec: fsm.ActionSpec{Outputs: out}, Do: do}
	}
	program := &runner.Program[*errand]{
		New: func() *errand { return &errand{} },
		Actions: map[string]runner.Action[*errand]{
			"Take": does(answer(nil, nil), nil), "Give": does(answer(nil, nil), nil),
			// It waits for ever: each pass takes both steps and writes nothing.
			"Work": does(answer(nil, fsm.Wait("not yet")), map[string]fsm.Type{"done": fsm.TypeAny}),
		},
		Guards: map[string]runner.Guard[*errand]{"welcome": {Open: func(context.Context, *errand) (bool, string, error) { return true, "", nil }}},
	}
	data, err := os.ReadFile("testdata/errand.yaml")
	if err != nil {
		b.Fatal(err)
	}
	def, diags := fsm.Load("errand.yaml", data)
	if err := diags.Err(); err != nil {
		b.Fatal(err)
	}
	machine, diags := fsm.Bind(def, program.Bindings())
	if err := diags.Err(); err != nil {
		b.Fatal(err)
	}
	r := &runner.Reconciler[*errand]{
		Client: c, Machine: func() *fsm.Machine { return machine }, Program: program, Clock: standing{at: time.Now()},
		Recorder: &events.FakeRecorder{}, Metrics: runner.NewMetrics(prometheus.NewRegistry()),
	}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: obj.Name}}
	for began := time.Now(); time.Since(began) < time.Minute; {
		result, err := r.Reconcile(b.Context(), req)
		if err != nil {
			b.Fatal(err)
		}
		if result.RequeueAfter > time.Second { // it waits
			if err := c.Get(b.Context(), req.NamespacedName, obj); err != nil {
				b.Fatal(err)
			}
			r.Client = still{obj: obj}
			return r, req
		}
	}
	b.Fatal("the pass does not come to the step that waits")
	return nil, req
}
