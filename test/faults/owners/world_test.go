package owners_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/faults"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// migrationName is the only migration's.
	migrationName = setup.MigrationName
	// collector is the account of the garbage collector.
	collector = "system:serviceaccount:kube-system:generic-garbage-collector"
)

// world is a cluster with Calico's API aggregated, and words to speak of it.
type world struct {
	*setup.Setup
	t      *testing.T
	server *fakeapiserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Setup: setup.ForTest(t, setup.Options{
		Cluster:   harness.Options{Own: true, Audit: true, Without: []string{"scheduler"}},
		Objects:   append(fixture.BuiltinTiers(), fixture.ClusterInformation()),
		NoStandIn: true, // it is this test's, to end its watches
	})}
	server, err := fakeapiserver.Listen(w.Config, w.Registry, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := fakeapiserver.Register(t.Context(), w.Config, server.Port(), server.CABundle()); err != nil {
		t.Fatal(err)
	}
	return w
}

// asAtFirst makes a cluster that has seen a migration like one that has seen none: the garbage
// collector knows what is served as v3 now, and the API server of the CRDs nothing.
func (w *world) asAtFirst() {
	w.t.Helper()
	w.renewV3CRDs()
	server, err := w.Server("kube-controller-manager")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := server.Kill(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := server.Revive(); err != nil {
		w.t.Fatal(err)
	}
	w.looksOn()
}

// renewV3CRDs makes the API server forget what it has read of the v3 CRDs' storage before the stand-in
// was there, and in other parts of the test. On a real cluster it has read nothing: v3 was always
// aggregated. So a watch that goes on behind the cut-over is sent back to the start, and its client sees
// all old objects vanish.
func (w *world) renewV3CRDs() {
	w.t.Helper()
	// A name that it did not have: the API server takes no notice of anything else.
	change := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"names":{"categories":["renewed-%d"]}}}`, time.Now().UnixNano()))
	for _, kind := range w.Registry.All() {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.V3CRDName()}}
		if err := w.Client.Patch(w.t.Context(), crd, change); err != nil {
			w.t.Fatal(err)
		}
	}
}

// edit changes a copy of the shipped machine.
type edit func(*v1alpha1.MachineSpec)

// machine is a changed copy of the shipped machine.
func (w *world) machine(edits ...edit) *machinestore.Handle {
	w.t.Helper()
	data, err := fs.ReadFile(phases.Files, datastoremigration.MachineName+".yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := yaml.UnmarshalStrict(data, m); err != nil {
		w.t.Fatal(err)
	}
	for _, change := range edits {
		change(&m.Spec)
	}
	if data, err = yaml.Marshal(m); err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, datastoremigration.MachineName+".yaml"), data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	store, err := machinestore.Load(machinestore.Options{Shipped: phases.Files, Dir: dir, Bindings: catalog.Bindings, Log: logr.Discard()})
	if err != nil {
		w.t.Fatal(err)
	}
	return store.Of(datastoremigration.MachineName)
}

// without leaves steps out.
func without(actions ...string) edit {
	return eachStep(func(s *v1alpha1.Step) bool {
		if slices.Contains(actions, s.Action) {
			s.If = "false"
		}
		return false
	})
}

// underTheLock opens no side door: all is copied under the lock.
func underTheLock(spec *v1alpha1.MachineSpec) {
	for i, s := range spec.Phases[0].Steps {
		if s.Action == "OpenSideDoor" || s.Action == "CloseSideDoor" {
			spec.Phases[0].Steps[i].If = "false"
		}
	}
}

// gateAfter is a step that waits for ever behind an action.
func gateAfter(action string) edit {
	return eachStep(func(s *v1alpha1.Step) bool { return s.Action == action })
}

func eachStep(gate func(*v1alpha1.Step) bool) edit {
	return func(spec *v1alpha1.MachineSpec) {
		for p := range spec.Phases {
			phase := &spec.Phases[p]
			for i := len(phase.Steps) - 1; i >= 0; i-- {
				if gate(&phase.Steps[i]) {
					phase.Steps = slices.Insert(phase.Steps, i+1, v1alpha1.Step{Name: "gate", Wait: "1h", Message: "at the gate"})
				}
			}
		}
	}
}

// in is the world for a part of the test.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.t = t
	return &part
}

// run lets a manager work, behind faults, until the test or its part ends.
func (w *world) run(machine *machinestore.Handle, rules ...*faults.Rule) {
	w.t.Helper()
	config := rest.CopyConfig(w.Config)
	config.Wrap(faults.New(rules...).Wrap)
	gate := datastoremigration.Gate(config, machine, datastoremigration.Settings{RequestTimeout: time.Millisecond, Registry: w.Registry, CalicoNamespace: setup.CalicoNamespace},
		runner.NewMetrics(prometheus.NewRegistry()))
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gate.Gate.Run(ctx, nil) }()
	w.t.Cleanup(func() {
		end()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Error(err)
		}
	})
}

// v3 is an object of Calico as its users write it.
func (w *world) v3(kind, name string, spec map[string]any, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	w.t.Helper()
	k, ok := w.Registry.Kind(kind)
	if !ok {
		w.t.Fatalf("no kind %s", kind)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(k.V3GVK())
	obj.SetName(name)
	obj.SetOwnerReferences(owners)
	return obj
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		if err := w.Client.Create(w.t.Context(), obj); err != nil {
			w.t.Fatal(err)
		}
	}
}

// ownerOf is a reference to an object that exists.
func ownerOf(obj *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Name: obj.GetName(), UID: obj.GetUID()}
}

// nobody is a reference to an object that never was.
func nobody(kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: resources.V3Group + "/v3", Kind: kind, Name: "never-was", UID: uuid.NewUUID()}
}

// seenByCollector returns when the garbage collector watches the kinds of these objects: it deletes
// them, since their owner does not exist.
func (w *world) seenByCollector(orphans ...client.Object) {
	w.t.Helper()
	w.create(orphans...)
	for _, obj := range orphans {
		harness.Eventually(w.t, "the garbage collector to delete "+obj.GetName(), func() error { return w.gone(obj) })
	}
}

func (w *world) gone(obj client.Object) error {
	err := w.Client.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
	switch {
	case apierrs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return errors.New("it is still there")
}

func (w *world) awaitStep(step string) *migrationv1.DatastoreMigration {
	w.t.Helper()
	var dm *migrationv1.DatastoreMigration
	harness.Eventually(w.t, "step "+step, func() (err error) {
		if dm, err = w.Migration(w.t.Context(), migrationName); err != nil {
			return err
		}
		if dm.Status.Machine.Step != step {
			return fmt.Errorf("phase %q, step %q: %s", dm.Status.Phase, dm.Status.Machine.Step, dm.Status.Message)
		}
		return nil
	})
	return dm
}

// abort deletes the migration and waits until everything is released.
func (w *world) abort() {
	w.t.Helper()
	dm := &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: migrationName}}
	if err := w.Client.Delete(w.t.Context(), dm); err != nil {
		w.t.Fatal(err)
	}
	if err := w.AwaitGone(w.t.Context(), dm, harness.Patience); err != nil {
		w.t.Fatal(err)
	}
}

// asked counts the requests of the garbage collector for a resource of Calico's v3.
func (w *world) asked(verb, resource string) int {
	w.t.Helper()
	file, err := os.Open(w.AuditLog)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	n := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, APIGroup string }
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line may be half written
		}
		if e.User.Username == collector && e.Verb == verb && e.ObjectRef.Resource == resource && e.ObjectRef.APIGroup == resources.V3Group {
			n++
		}
	}
	return n
}

// settled returns when the garbage collector has looked at everything that it had to look at when it
// was called: a ConfigMap whose owner never was comes last in its queue.
func (w *world) settled() {
	w.t.Helper()
	last := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "last-", Namespace: metav1.NamespaceDefault,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "never-was", UID: uuid.NewUUID()}}}}
	w.create(last)
	harness.Eventually(w.t, "the garbage collector to be done", func() error { return w.gone(last) })
}

// keepEndingWatches lets no watch of the aggregated API last, until the part of the test ends.
func (w *world) keepEndingWatches() {
	ctx := w.t.Context()
	go func() {
		ticker := time.NewTicker(3 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				w.server.EndWatches()
			}
		}
	}()
}

func (w *world) eventually(what string, met func() bool) {
	w.t.Helper()
	harness.Eventually(w.t, what, func() error {
		if met() {
			return nil
		}
		return errors.New("not yet")
	})
}
