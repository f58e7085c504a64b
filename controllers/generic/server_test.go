package generic_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/test/support/crds"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/test/support/harness"
)

const namespace = "default"

var restoreKind = schema.GroupVersionKind{Group: "db.example.org", Version: "v1", Kind: "DatabaseRestore"}

// bench is a fleet with a directory of machine files, on a real API server.
type bench struct {
	t      *testing.T
	c      client.Client
	config *rest.Config
	dir    string
}

func newBench(t *testing.T, cluster *harness.Cluster) *bench {
	t.Helper()
	before := goleak.IgnoreCurrent()
	b := &bench{t: t, c: cluster.Client, config: cluster.Config, dir: t.TempDir()}
	logger := testr.New(t)
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), logger))
	store, err := machinestore.Load(machinestore.Options{Shipped: fstest.MapFS{}, Dir: b.dir, Log: logger,
		Bindings: func(*fsm.Definition) (fsm.Bindings, error) { return generic.Bindings(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	fleet := &generic.Fleet{Config: cluster.Config, Store: store, Compiled: func(string) bool { return false },
		Metrics: runner.NewMetrics(prometheus.NewRegistry())}
	ended := make(chan error, 2)
	for _, part := range []interface{ Start(context.Context) error }{store, fleet} {
		go func() { ended <- part.Start(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
	return b
}

// file is testdata/restore.yaml with some texts replaced: old, new, old, new.
func file(t *testing.T, oldNew ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "restore.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(string(data), oldNew[i]) {
			t.Fatalf("restore.yaml does not say %q any more", oldNew[i])
		}
	}
	return strings.NewReplacer(oldNew...).Replace(string(data))
}

func (b *bench) put(text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "restore.yaml"), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// crd installs testdata/crd.yaml, changed, and removes it at the end.
func (b *bench) crd(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "crd.yaml"))
	if err != nil {
		b.t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		b.t.Fatal(err)
	}
	change(crd)
	harness.Eventually(b.t, "the CRD to be created", func() error { return b.c.Create(b.t.Context(), crd) })
	b.t.Cleanup(func() {
		if err := b.c.Delete(context.Background(), crd); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
	return crd
}

func (b *bench) create(name string, spec map[string]any) {
	b.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(restoreKind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	harness.Eventually(b.t, name+" to be created", func() error { return b.c.Create(b.t.Context(), obj) })
}

func (b *bench) get(name string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(restoreKind)
	return obj, b.c.Get(b.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, obj)
}

func (b *bench) patch(name, body string) {
	b.t.Helper()
	obj, err := b.get(name)
	if err == nil {
		err = b.c.Patch(b.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(body)))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// shows waits until the status has all of some texts at their paths.
func (b *bench) shows(name string, want map[string]string) {
	b.t.Helper()
	harness.Eventually(b.t, fmt.Sprintf("%s to show %v", name, want), func() error {
		obj, err := b.get(name)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for path := range want {
			got[path], _, _ = unstructured.NestedString(obj.Object, append([]string{"status"}, strings.Split(path, ".")...)...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// told waits for an Event of a reason about an object, and answers its note.
func (b *bench) told(name, reason string) (note string) {
	b.t.Helper()
	harness.Eventually(b.t, fmt.Sprintf("an Event %s of %s", reason, name), func() error {
		list := &eventsv1.EventList{}
		if err := b.c.List(b.t.Context(), list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("none among %d", len(list.Items))
	})
	return note
}

func (b *bench) remove(name string) {
	b.t.Helper()
	obj, err := b.get(name)
	if err == nil {
		err = b.c.Delete(b.t.Context(), obj)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	harness.Eventually(b.t, name+" to be gone", func() error {
		obj, err := b.get(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %v, %w", obj.Object["status"], err)
	})
}

// forgetting is a change of the CRD that makes it drop what a machine remembers.
func forgetting(crd *apiextensionsv1.CustomResourceDefinition) {
	delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "machine")
}

func asItIs(*apiextensionsv1.CustomResourceDefinition) {}

func TestFleet(t *testing.T) {
	cluster := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	// One request, so that the connection that all share is there from the start.
	if err := cluster.Client.List(t.Context(), &apiextensionsv1.CustomResourceDefinitionList{}); err != nil {
		t.Fatal(err)
	}
	ours, err := crds.ReadDir(filepath.Join("..", "..", "charts", "phasegate", "files", "crds"))
	if err == nil {
		err = crds.Install(t.Context(), cluster.Config, crds.Set{CRDs: ours})
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *bench){
		"life": life, "reload": reload, "watches": watches, "forgetful CRD": forgetful, "target": target, "fields": fields,
	} {
		t.Run(name, func(t *testing.T) { test(t, newBench(t, cluster)) })
	}
}

// A file that comes while the program runs, for a CRD that comes later still, and
// objects that were there before both.
func life(t *testing.T, b *bench) {
	b.crd(asItIs)
	b.create("early", map[string]any{"backup": "monday"})
	b.put(file(t))
	b.shows("early", map[string]string{"phase": "Restoring", "message": "restoring monday", "machine.phase": "Restoring"})

	b.patch("early", `{"spec":{"ready":true}}`)
	b.shows("early", map[string]string{"phase": "Restored"})
	obj, err := b.get("early")
	if err != nil || !slices.Equal(obj.GetFinalizers(), []string{"db.example.org/restore"}) {
		t.Errorf("finalizers %v, %v", obj.GetFinalizers(), err)
	}
	b.create("none", map[string]any{"replicas": int64(0)})
	b.shows("none", map[string]string{"phase": "Refused"})
	for _, name := range []string{"early", "none"} {
		b.remove(name)
	}
}

// What a person sees who edits the file wrongly, and then rightly.
func reload(t *testing.T, b *bench) {
	b.crd(asItIs)
	b.put(file(t))
	b.create("r", map[string]any{"backup": "monday"})
	b.create("done", map[string]any{"ready": true, "backup": "sunday"})
	b.shows("r", map[string]string{"phase": "Restoring"})
	b.shows("done", map[string]string{"phase": "Restored"})

	b.put(file(t, "to: Restored,", "to: Elsewhere,"))
	if note := b.told("r", "MachineRefused"); !strings.Contains(note, "restore.yaml:20:12: PG001") {
		t.Errorf("the Event does not name place and code: %s", note)
	}
	b.create("meanwhile", map[string]any{"ready": true, "backup": "tuesday"})
	b.shows("meanwhile", map[string]string{"phase": "Restored"}) // the last good machine goes on

	b.put(file(t, "'restoring $", "'bringing back $", "poll: 1h", "poll: 2h"))
	b.shows("r", map[string]string{"phase": "Restoring", "message": "bringing back monday"})
	list := &eventsv1.EventList{}
	if err := b.c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == "done" && e.Reason == "MachineRefused" {
			t.Error("an object that has arrived was told of a refused file")
		}
	}
	for _, name := range []string{"r", "done", "meanwhile"} {
		b.remove(name)
	}
}

// An informer that the first file did not ask for follows the second, without a
// poll that could do its work; and another is freed.
func watches(t *testing.T, b *bench) {
	watch := func(name string) string {
		return "finalizer: db.example.org/restore\n  watch: [{apiVersion: v1, kind: ConfigMap, name: " + name + "}]"
	}
	change := func(name, value string) {
		t.Helper()
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name, cm.Data = namespace, name, map[string]string{"k": value}
		err := b.c.Create(t.Context(), cm)
		if apierrors.IsAlreadyExists(err) {
			err = b.c.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"k":%q}}`, value)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Each look at the object that comes by itself would be in an hour. A pass shows
	// itself by what it writes: the age is in the message of the step.
	counting := []string{"'restoring ${self.spec.backup}'", "'at ${string(now)}'"}
	b.crd(asItIs)
	b.put(file(t, append(counting, "finalizer: db.example.org/restore", watch("one"))...))
	b.create("w", map[string]any{"backup": "monday"})
	b.shows("w", map[string]string{"phase": "Restoring"})
	for _, name := range []string{"one", "two"} {
		if name == "two" {
			b.put(file(t, append(counting, "finalizer: db.example.org/restore", watch("two"))...))
			b.told("w", "MachineReloaded")
		}
		before := b.message("w")
		tries := 0
		harness.Eventually(t, "a pass after a change of "+name, func() error {
			tries++
			change(name, fmt.Sprint(tries))
			if b.message("w") == before {
				return errors.New("none yet")
			}
			return nil
		})
	}
	b.remove("w")
}

func (b *bench) message(name string) string {
	b.t.Helper()
	obj, err := b.get(name)
	if err != nil {
		b.t.Fatal(err)
	}
	message, _, _ := unstructured.NestedString(obj.Object, "status", "message")
	return message
}

// A CRD that has no place for status.machine is another project's as a rule: its objects are
// driven all the same, and nothing is written again and again. One without a status
// subresource is named to whoever made an object, and nothing is done until it is repaired.
func forgetful(t *testing.T, b *bench) {
	crd := b.crd(func(crd *apiextensionsv1.CustomResourceDefinition) {
		forgetting(crd)
		crd.Spec.Versions[0].Subresources = nil
	})
	b.put(file(t))
	b.create("f", map[string]any{"backup": "monday"})
	if note := b.told("f", "NotDriven"); !strings.Contains(note, "CRD databaserestores.db.example.org has no status subresource") {
		t.Errorf("the Event does not say what to repair: %s", note)
	}
	obj, err := b.get("f")
	if err != nil || obj.Object["status"] != nil || len(obj.GetFinalizers()) > 0 {
		t.Errorf("it was driven all the same: %v, %v", obj.Object, err)
	}
	body := `[{"op":"add","path":"/spec/versions/0/subresources","value":{"status":{}}}]`
	if err := b.c.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(body))); err != nil {
		t.Fatal(err)
	}
	b.shows("f", map[string]string{"phase": "Restoring", "machine.phase": ""})
	b.remove("f")
}
