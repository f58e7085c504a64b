package runner_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

// gaugesOf are the values other than 0 of an object's gauges.
func gaugesOf(b *bench) map[string]float64 {
	shown := map[string]float64{}
	for _, family := range []string{"phase", "object_info", "ready", "stalled", "blocked_exits", "held_effects", "step_attempts",
		"phase_entered_timestamp_seconds", "phase_deadline_timestamp_seconds"} {
		for labels, value := range b.metrics("phasegate_" + family) {
			if value != 0 {
				shown[strings.TrimSpace(family+" "+labels)] = value
			}
		}
	}
	return shown
}

func TestGaugesOfAStatus(t *testing.T) {
	micro := func(d time.Duration) *metav1.MicroTime { m := metav1.NewMicroTime(noon.Add(d)); return &m }
	is := func(kind string) metav1.Condition { return metav1.Condition{Type: kind, Status: metav1.ConditionTrue} }
	cases := map[string]struct {
		why        string
		machine    v1alpha1.MachineStatus
		conditions []metav1.Condition
		want       map[string]float64
	}{
		"new": {why: "an object that nobody has driven yet", want: map[string]float64{"object_info": 1}},
		"at work": {why: "all that a status tells of a phase", machine: v1alpha1.MachineStatus{Revision: "sha256:1", Phase: "Working", EnteredAt: micro(0), Deadline: micro(time.Hour),
			Attempts: 3, Held: v1alpha1.Held("thing"), Blocked: []v1alpha1.Blocked{{To: "Done"}, {To: "Refused"}}},
			want: map[string]float64{"object_info sha256:1": 1, "phase Working": 1, "phase_entered_timestamp_seconds": float64(noon.Unix()),
				"phase_deadline_timestamp_seconds": float64(noon.Add(time.Hour).Unix()), "step_attempts": 3, "held_effects": 1, "blocked_exits": 2}},
		"at rest": {why: "Ready is what users wait for", machine: v1alpha1.MachineStatus{Phase: "Done"}, conditions: []metav1.Condition{is(fsm.ConditionReady)},
			want: map[string]float64{"object_info": 1, "phase Done": 1, "ready": 1}},
		"in a phase of another file": {why: "it stands there, whatever the machine in force has", machine: v1alpha1.MachineStatus{Phase: "Elsewhere"},
			conditions: []metav1.Condition{is(fsm.ConditionStalled)}, want: map[string]float64{"object_info": 1, "phase Elsewhere": 1, "stalled": 1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, registry: prometheus.NewRegistry()}
			b.edit()
			metrics := runner.NewMetrics(b.registry)
			obj := &errand{}
			obj.Name, obj.Status.Machine, obj.Status.Conditions = "some", c.machine, c.conditions
			metrics.Stored(b.machine, obj)
			if diff := cmp.Diff(c.want, gaugesOf(b)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
			metrics.Gone(b.machine, client.ObjectKeyFromObject(obj))
			if diff := cmp.Diff(map[string]float64{}, gaugesOf(b)); diff != "" {
				t.Errorf("an object that is gone (-want +got):\n%s", diff)
			}
		})
	}
}

// Thousands of objects have tens of thousands of series. Counted, they have one for each phase, and alerts still name
// those that need somebody.
func TestObjectsAreCounted(t *testing.T) {
	b := &bench{t: t, registry: prometheus.NewRegistry()}
	b.edit()
	metrics := runner.NewMetrics(b.registry)
	metrics.CountObjects()
	for name, st := range map[string]migrationv1.DatastoreMigrationStatus{
		"one": {Machine: v1alpha1.MachineStatus{Phase: "Done"}}, "two": {Machine: v1alpha1.MachineStatus{Phase: "Done"}},
		"failing": {Machine: v1alpha1.MachineStatus{Phase: "Working", Attempts: 3}},
		"stuck":   {Machine: v1alpha1.MachineStatus{Phase: "Working"}, Conditions: []metav1.Condition{{Type: fsm.ConditionStalled, Status: metav1.ConditionTrue}}},
	} {
		obj := &errand{Status: st}
		obj.Name = name
		metrics.Stored(b.machine, obj)
	}
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetName() != "machine" && l.GetName() != "kind" && l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			got[family.GetName()+" "+strings.Join(labels, ",")] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"phasegate_objects phase=Done,ready=false,stalled=false":    2,
		"phasegate_objects phase=Working,ready=false,stalled=false": 1,
		"phasegate_objects phase=Working,ready=false,stalled=true":  1,
		"phasegate_stalled object=stuck":                            1,
		"phasegate_step_attempts object=failing":                    3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// By default no machine has more series than those of so many objects.
func TestManyObjectsAreCounted(t *testing.T) {
	b := &bench{t: t, registry: prometheus.NewRegistry()}
	b.edit()
	metrics := runner.NewMetrics(b.registry)
	for i := range runner.ObjectsMost + 1 {
		obj := &errand{}
		obj.Name = strconv.Itoa(i)
		metrics.Stored(b.machine, obj)
		shown := i < runner.ObjectsMost
		if i < runner.ObjectsMost-1 {
			continue
		}
		if ready, counts := len(b.metrics("phasegate_ready")), len(b.metrics("phasegate_objects")); (ready > 0) != shown || (counts > 0) == shown {
			t.Errorf("of %d objects there are series about each: %d, and about all: %d", i+1, ready, counts)
		}
	}
	metrics.Gone(b.machine, types.NamespacedName{Name: "0"})
	if len(b.metrics("phasegate_ready")) == 0 {
		t.Error("one less, and they are shown again")
	}
}

// A controller ends with its CRD, and so with all its objects: nobody looks at them
// any more to see that they are gone.
func TestGaugesEndWithTheController(t *testing.T) {
	b := newBench(t)
	file, err := os.ReadFile("testdata/errand.yaml")
	if err != nil {
		t.Fatal(err)
	}
	store, err := machinestore.Load(machinestore.Options{
		Shipped: fstest.MapFS{"errand.yaml": {Data: file}}, Log: logr.Discard(),
		Bindings: func(*fsm.Definition) (fsm.Bindings, error) { return b.program().Bindings(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	var gone atomic.Bool
	c := &runner.Driver[*errand]{
		Name: "errands", Config: shared.Cluster(t).Config, Scheme: func() (*runtime.Scheme, error) { return b.outside.Scheme(), nil }, Machine: store.Of("errand"), Metrics: b.Metrics,
		Program: func(context.Context, client.Client) (*runner.Program[*errand], error) {
			p := b.program()
			p.Stored = func(_ *fsm.Machine, obj *errand) {
				if obj.Name == b.name && obj.Status.Machine.Phase == "Done" {
					cancel()
				}
			}
			p.Gone = func(key types.NamespacedName) { gone.Store(gone.Load() || key.Name == b.name) }
			return p, nil
		},
	}
	if err := c.Run(ctx, nil); err != nil || ctx.Err() != context.Canceled {
		t.Fatalf("the controller ended with %v, %v; want it to end when the object is done", err, ctx.Err())
	}
	if diff := cmp.Diff(map[string]float64{}, gaugesOf(b)); diff != "" {
		t.Errorf("gauges after the end (-want +got):\n%s", diff)
	}
	if !gone.Load() {
		t.Errorf("the program was not told that nobody looks at %s any more", b.name)
	}
}
