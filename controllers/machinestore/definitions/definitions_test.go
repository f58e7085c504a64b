package definitions

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/fsm"
)

func door(name, poll string) string {
	return `apiVersion: phasegate.dev/v1alpha1
kind: Machine
metadata: {name: ` + name + `}
spec:
  for: {apiVersion: example.com/v1, kind: ` + strings.ToUpper(name[:1]) + name[1:] + `}
  initial: Closed
  phases:
  - {name: Closed, poll: ` + poll + `, next: [{to: Open, when: 'self.metadata.generation > 1'}], onDelete: {immediate: true}}
  - {name: Open, terminal: success, onDelete: {immediate: true}}
`
}

func none(*fsm.Definition) (fsm.Bindings, error) { return fsm.Bindings{}, nil }

const manager = "phasegate-system/phasegate-custom"

// cluster is a fake one, and the writes that it gets.
func cluster(t *testing.T, writes *[]string, refuse error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(refuse, c.List(ctx, l, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			*writes = append(*writes, "create "+o.GetName())
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			body, err := p.Data(o)
			if err != nil || !strings.Contains(string(body), "resourceVersion") {
				t.Errorf("a write without a precondition: %s %v", body, err)
			}
			*writes = append(*writes, "patch "+o.GetName())
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			*writes = append(*writes, "delete "+o.GetName())
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
}

// storeOf has the machines of files.
func storeOf(t *testing.T, names ...string) *machinestore.Store {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(door(name, "2s")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store, err := machinestore.Load(machinestore.Options{Shipped: fstest.MapFS{}, Dir: dir, Bindings: none, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// assertPublished looks for what a manager has published that does not run.
func assertPublished(t *testing.T, c client.Client, store *machinestore.Store, runs string) {
	t.Helper()
	all, unread, err := List(t.Context(), c)
	if err != nil || unread != "" {
		t.Fatal(unread, err)
	}
	for _, pub := range all {
		if pub.Manager == manager && (pub.Machine != runs || pub.Revision != store.Of(runs).InForce().Revision()) {
			t.Errorf("published is %s %s", pub.Machine, pub.Revision)
		}
	}
}

// Each look ends with what runs, whatever there was before; a second look writes nothing.
func TestPublish(t *testing.T) {
	store := storeOf(t, "door", "gate")
	right := definitionOf(store.Of("door").InForce(), manager)
	edited, other, gone := *right.DeepCopy(), *right.DeepCopy(), *right.DeepCopy()
	edited.Spec.Text = "edited by hand"
	other.Name, other.Labels = v1alpha1.MachineDefinitionName("door", "another/one"), map[string]string{v1alpha1.ManagerLabel: v1alpha1.ManagerKey("another/one")}
	gone.Name, gone.Spec.Machine = v1alpha1.MachineDefinitionName("old", manager), "old"
	cases := map[string]struct {
		why   string
		there []client.Object
		runs  string
		want  []string
	}{
		"nothing yet":         {why: "the first start", runs: "door", want: []string{"create " + right.Name}},
		"as it is":            {why: "a look that changes nothing writes nothing", there: []client.Object{&right}, runs: "door"},
		"edited":              {why: "an edit changes no machine, and must not look as if it did", there: []client.Object{&edited}, runs: "door", want: []string{"patch " + right.Name}},
		"machine is gone":     {why: "its file was removed before the last start", there: []client.Object{&right, &gone}, runs: "door", want: []string{"delete " + gone.Name}},
		"another one's":       {why: "each installation has its own", there: []client.Object{&other}, runs: "door", want: []string{"create " + right.Name}},
		"runs another one":    {why: "what a process does not run is not in force by it", there: []client.Object{&right}, runs: "gate", want: []string{"create " + v1alpha1.MachineDefinitionName("gate", manager), "delete " + right.Name}},
		"runs nothing at all": {why: "--controllers was changed", there: []client.Object{&right}, want: []string{"delete " + right.Name}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var writes []string
			c := cluster(t, &writes, nil, copies(tc.there)...)
			p := &Publisher{Client: c, Store: store, Runs: func(m string) bool { return m == tc.runs }, Manager: manager, Log: logr.Discard()}
			for range 2 {
				if err := p.Publish(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, writes); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
			assertPublished(t, c, store, tc.runs)
		})
	}
}

// Managers that elect no leader have no name that tells them apart, such as one on a developer's machine beside that of a
// practice cluster: each leaves the other's, and takes back what it has published itself.
func TestPublishBesideAnother(t *testing.T) {
	var writes []string
	c, store := cluster(t, &writes, nil), storeOf(t, "door", "gate")
	runs := map[string]string{"one": "door", "other": "gate"}
	publishers := map[string]*Publisher{}
	for who := range runs {
		publishers[who] = &Publisher{Client: c, Store: store, Runs: func(m string) bool { return m == runs[who] }, Log: logr.Discard()}
	}
	for range 2 {
		for _, who := range []string{"one", "other"} {
			if err := publishers[who].Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	runs["other"] = ""
	if err := publishers["other"].Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	door, gate := v1alpha1.MachineDefinitionName("door", ""), v1alpha1.MachineDefinitionName("gate", "")
	if diff := cmp.Diff([]string{"create " + door, "create " + gate, "delete " + gate}, writes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func copies(all []client.Object) (fresh []client.Object) {
	for _, o := range all {
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		fresh = append(fresh, o)
	}
	return fresh
}

// A machine runs whether it can be shown or not; the error says what is missing.
func TestPublishWithoutTheRight(t *testing.T) {
	var writes []string
	refused := apierrs.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "machinedefinitions"}, "", nil)
	p := &Publisher{Client: cluster(t, &writes, refused), Store: storeOf(t), Manager: manager, Log: logr.Discard()}
	if err := p.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "helm upgrade") || len(writes) > 0 {
		t.Errorf("got %v after %v", err, writes)
	}
	if _, unread, err := List(t.Context(), p.Client); err != nil || !strings.Contains(unread, "you may not list") {
		t.Errorf("who may not read them can do without: %q, %v", unread, err)
	}
}

func TestDriver(t *testing.T) {
	pub := func(manager, revision string) Published {
		return Published{Machine: "door", Manager: manager, Revision: revision}
	}
	a1, b1, b2 := pub("a", "1"), pub("b", "1"), pub("b", "2")
	cases := map[string]struct {
		why               string
		all               []Published
		manager, revision string
		want              Published
		none              bool
	}{
		"none":              {why: "nobody has published one", none: true},
		"only one":          {why: "the object is new", all: []Published{a1}, want: a1},
		"the manager's":     {why: "who drives it decides, also by a newer file", all: []Published{a1, b2}, manager: "b", revision: "1", want: b2},
		"the revision's":    {why: "its manager is not known, or has published nothing", all: []Published{a1, b2}, manager: "c", revision: "2", want: b2},
		"both":              {why: "the same file twice", all: []Published{a1, b1}, manager: "b", revision: "1", want: b1},
		"without a lease":   {why: "a manager that shares no lease is like any", all: []Published{a1, pub("", "2")}, revision: "2", want: pub("", "2")},
		"none of them fits": {why: "the first, and the caller sees that the revision differs", all: []Published{a1, b2}, manager: "c", revision: "3", want: a1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := Driver(tc.all, tc.manager, tc.revision)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok == tc.none {
				t.Errorf("%s: %t (-want +got):\n%s", tc.why, ok, diff)
			}
		})
	}
}

// What is read compiles to what the manager runs, under its revision.
func TestCompile(t *testing.T) {
	p := Published{Machine: "door", Manager: manager, Revision: "sha256:of-another-program", Text: door("door", "2s")}
	m, err := p.Compile(none)
	if err != nil || m.Revision() != p.Revision || !slices.Equal(m.Phases(), []string{"Closed", "Open"}) {
		t.Errorf("got %v, error %v", m, err)
	}
	p.Text = strings.Replace(p.Text, "poll:", "pollOften:", 1)
	if _, err := p.Compile(none); err == nil || !strings.Contains(err.Error(), "version of the manager") {
		t.Errorf("a field of a newer manager: %v", err)
	}
}
