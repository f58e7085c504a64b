package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

type (
	errand = migrationv1.DatastoreMigration
	scope  = runner.Scope[*errand]
	// deed is the work of an action.
	deed = func(context.Context, *scope) (map[string]any, error)
)

const finalizer = "errand.phasegate.dev/held"

// noon is when the clocks of these tests start.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// shared is the API server of all tests here: each test has an object of its own.
var shared = harness.Shared{Start: startServer}

func TestMain(m *testing.M) { shared.Main(m) }

func startServer() (*harness.Cluster, error) {
	ctx := context.Background()
	c, err := harness.Start(ctx, harness.Options{
		Own:     true, // a manager at work on a cluster that is given would meddle
		Without: []string{"fakenodes", "scheduler", "controller-manager"},
		Types:   []func(*runtime.Scheme) error{migrationv1.AddToScheme, v1alpha1.AddToScheme},
	})
	if err != nil {
		return nil, err
	}
	ours, err := crds.ReadDir(filepath.Join("..", "..", "charts", "phasegate", "files", "crds"))
	if err == nil {
		err = crds.Install(ctx, c.Config, crds.Set{CRDs: ours})
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// bench is one object of the machine testdata/errand.yaml on a real API server,
// and a reconciler whose clock, actions and requests are in the test's hands.
type bench struct {
	*runner.Reconciler[*errand]
	t     *testing.T
	name  string
	clock *handClock
	// machine is in force; edit exchanges it.
	machine  *fsm.Machine
	events   *events.FakeRecorder
	registry *prometheus.Registry
	// outside is another client, as somebody else would have it.
	outside client.WithWatch
	// take, work, give and welcome may be exchanged by a test at any time.
	take, work, give deed
	welcome          bool
	// external: Work calls something outside the cluster, from the next restart on.
	external bool
	// on is called before each write; nil lets it pass.
	on func(ctx context.Context, write string, send func() error) error

	mu     sync.Mutex
	writes []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, shared.Cluster(t).Client)
}

func newBenchOn(t *testing.T, outside client.WithWatch) *bench {
	t.Helper()
	nothing := func(context.Context, *scope) (map[string]any, error) { return nil, nil }
	b := &bench{
		t: t, outside: outside,
		clock: &handClock{clocktesting.NewFakeClock(noon), make(chan time.Time)}, events: events.NewFakeRecorder(100),
		take: nothing, give: nothing, work: answer(map[string]any{"done": true}, nil), welcome: true,
	}
	b.restart()
	obj := &errand{}
	obj.GenerateName, obj.Spec.Type = "errand-", migrationv1.APIServerToCRDs
	if err := b.outside.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	b.name = obj.Name
	return b
}

func answer(outputs map[string]any, err error) deed {
	return func(context.Context, *scope) (map[string]any, error) { return outputs, err }
}

// restart is what a new process begins with: nothing but the API server.
func (b *bench) restart() {
	b.t.Helper()
	b.registry = prometheus.NewRegistry()
	b.edit()
	b.Reconciler = &runner.Reconciler[*errand]{
		Client: interceptor.NewClient(b.outside, b.watched()), Machine: func() *fsm.Machine { return b.machine }, Program: b.program(),
		Clock: b.clock, Random: func() float64 { return 0.5 }, Recorder: b.events, Metrics: runner.NewMetrics(b.registry), MaxRuns: 1,
	}
}

// edit puts the machine file in force, with some texts replaced: old, new, old, new.
func (b *bench) edit(oldNew ...string) {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "errand.yaml"))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(string(data), oldNew[i]) {
			b.t.Fatalf("errand.yaml does not say %q any more", oldNew[i])
		}
	}
	def, diags := fsm.Load("errand.yaml", []byte(strings.NewReplacer(oldNew...).Replace(string(data))))
	if err := diags.Err(); err != nil {
		b.t.Fatal(err)
	}
	machine, diags := fsm.Bind(def, b.program().Bindings())
	if err := diags.Err(); err != nil {
		b.t.Fatal(err)
	}
	b.machine = machine
}

func (b *bench) program() *runner.Program[*errand] {
	action := func(do *deed, out map[string]fsm.Type) runner.Action[*errand] {
		return runner.Action[*errand]{
			ActionSpec: fsm.ActionSpec{Outputs: out},
			Do:         func(ctx context.Context, s *scope) (map[string]any, error) { return (*do)(ctx, s) },
		}
	}
	work := action(&b.work, map[string]fsm.Type{"done": fsm.TypeAny})
	work.External = b.external
	work.Params = map[string]fsm.Param{"say": {Type: fsm.TypeString}}
	return &runner.Program[*errand]{
		New:     func() *errand { return &errand{} },
		Actions: map[string]runner.Action[*errand]{"Take": action(&b.take, nil), "Work": work, "Give": action(&b.give, nil)},
		Guards: map[string]runner.Guard[*errand]{"welcome": {Open: func(context.Context, *fsm.Machine, *errand) (bool, string, error) {
			return b.welcome, "the door says so", nil
		}}},
	}
}

// watched notes every write of the reconciler, and lets the test stand in its way.
func (b *bench) watched() interceptor.Funcs {
	note := func(ctx context.Context, write string, send func() error) error {
		b.mu.Lock()
		b.writes = append(b.writes, write)
		on := b.on
		b.mu.Unlock()
		if on != nil {
			return on(ctx, write, send)
		}
		return send()
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return note(ctx, "state", func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return note(ctx, "drop", func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*v1alpha1.MachineState); ok {
				return note(ctx, "state", func() error { return c.Patch(ctx, obj, p, opts...) })
			}
			return note(ctx, "object", func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return note(ctx, sub, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
	}
}

// between lets a test do something before, or instead of, each write from now on.
func (b *bench) between(on func(ctx context.Context, write string, send func() error) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = on
}

// written are the writes since the last call.
func (b *bench) written() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.writes = nil }()
	return b.writes
}

func (b *bench) pass() (reconcile.Result, error) {
	return b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: b.name}})
}

// passTo makes passes until the object is stored in a phase, at the stepIndex.
func (b *bench) passTo(phase string) {
	b.t.Helper()
	for range 20 {
		if b.stored().Status.Machine.Phase == phase {
			b.written()
			return
		}
		if _, err := b.pass(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.t.Fatalf("not in %s after 20 passes but in %s: %s", phase, b.stored().Status.Phase, b.stored().Status.Message)
}

// atWork makes passes until the next one calls Work.
func (b *bench) atWork() {
	b.t.Helper()
	b.passTo("Working")
	if _, err := b.pass(); err != nil { // the ledger
		b.t.Fatal(err)
	}
	if held := b.stored().Status.Machine.HeldNames(); !slices.Equal(held, []string{"thing"}) {
		b.t.Fatalf("held %v before the work", held)
	}
	b.written()
	b.told()
}

// stored is the object as the API server has it, with its state in place of the view.
func (b *bench) stored() *errand {
	b.t.Helper()
	obj := b.shown()
	if state := b.state(); state != nil {
		obj.Status.Machine = state.Status.MachineStatus
		return obj
	}
	obj.Status.Machine = v1alpha1.MachineStatus{}
	return obj
}

// state is that of the object; nil where there is none.
func (b *bench) state() *v1alpha1.MachineState {
	b.t.Helper()
	list := &v1alpha1.MachineStateList{}
	if err := b.outside.List(b.t.Context(), list); err != nil {
		b.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.Object.Name == b.name {
			return &list.Items[i]
		}
	}
	return nil
}

// shown is the object as the API server has it.
func (b *bench) shown() *errand {
	b.t.Helper()
	obj := &errand{}
	if err := b.outside.Get(b.t.Context(), types.NamespacedName{Name: b.name}, obj); err != nil {
		b.t.Fatal(err)
	}
	return obj
}

// annotate is a write of somebody else.
func (b *bench) annotate(ctx context.Context, value string) error {
	return b.merge(ctx, fmt.Sprintf(`{"metadata":{"annotations":{"somebody":%q}}}`, value))
}

// merge is a patch by somebody else.
func (b *bench) merge(ctx context.Context, body string) error {
	obj := &errand{}
	obj.Name = b.name
	return b.outside.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(body)))
}

// anotherManager writes the state.
func (b *bench) anotherManager(ctx context.Context) error {
	body := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"another":"manager"}}}`))
	return b.outside.Patch(ctx, b.state(), body)
}

// told are the events since the last call.
func (b *bench) told() []string {
	var all []string
	for {
		select {
		case e := <-b.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// metrics are the values of a family by its labels, in the order of the exposition.
func (b *bench) metrics(family string) map[string]float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if !slices.Contains([]string{"machine", "kind", "object_namespace", "object"}, l.GetName()) {
					labels = append(labels, l.GetValue())
				}
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// tick lets a second pass; it returns when the publisher has noticed.
func (b *bench) tick(ctx context.Context) error {
	b.clock.Step(time.Second)
	select {
	case b.clock.ticks <- b.clock.Now():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nobody waits for the clock: %w", context.Cause(ctx))
	}
}

// handClock is moved by hand. Its tickers tick, and its functions are called, when
// somebody waits for that, and only when the test says so.
type handClock struct {
	*clocktesting.FakeClock
	ticks chan time.Time
}

func (c *handClock) NewTicker(time.Duration) clock.Ticker { return ticker(c.ticks) }

type ticker chan time.Time

func (t ticker) C() <-chan time.Time { return t }
func (t ticker) Stop()               {}

func (c *handClock) AfterFunc(_ time.Duration, call func()) clock.Timer {
	t := handTimer{stop: make(chan struct{}), fired: make(chan struct{})}
	go func() {
		select {
		case <-c.ticks:
			close(t.fired)
			call()
		case <-t.stop:
		}
	}()
	return t
}

// handTimer is stopped once.
type handTimer struct {
	clock.Timer

	stop, fired chan struct{}
}

func (t handTimer) Stop() bool {
	select {
	case t.stop <- struct{}{}:
		return true
	case <-t.fired:
		return false
	}
}
