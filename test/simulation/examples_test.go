package simulation

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
)

type nothing = generic.Object

// example is a machine, and what surrounds it.
type example struct {
	// file is a path from here, or the name of a shipped machine; diffs are edits of it.
	file    string
	shipped bool
	diffs   []string
	// objects arrive one after the other, the first at once.
	objects, targets []map[string]any
	// specs are edits of an object, requests what people ask of it.
	specs    []map[string]any
	requests []asking
	// unproved: it ends its Job with Delete, which the linter does not follow.
	unproved bool
	// never is what people do not do here.
	never []kind
	// exclusive: the machine promises that nobody else works on its target while its Job does.
	exclusive bool
	// works is the effect that an object takes when it has its target for itself; empty: it never does.
	works string
	// careless: actions look and then act, without a precondition.
	careless bool
	// succeeds: no Job fails.
	succeeds bool
	// fails: every Job does.
	fails bool
	// restores: at rest, what it has changed is as before.
	restores bool
	// pace is how long it is from one request over HTTP to the next of a step, at least.
	pace time.Duration
	// enough is the time in which everything comes to an end; goOn is what a person does for it.
	enough time.Duration
	goOn   func(*scene)

	reconciler func(*scene, client.Client) reconciler
	// planted is a defect, which is done before each pass; changed are texts of the file: old, new.
	planted func(*scene)
	changed []string
	// only are the habits of all people; nil: any but those that are never seen here.
	only []kind

	once   sync.Once
	parsed *machineFile
	wrong  error
}

// read parses the file once for all seeds.
func (e *example) read() (*machineFile, error) {
	e.once.Do(func() {
		var text []byte
		if text, e.wrong = e.text(); e.wrong == nil {
			e.parsed, e.wrong = newFile(text, e.bind)
		}
	})
	return e.parsed, e.wrong
}

type asking struct {
	annotation string
	tokens     []string
}

// tokens: a person asks again with one that was used before, too.
var tokens = []string{"A", "B", "A", "C"}

// draw makes the schedule of a seed.
func (e *example) draw(seed uint64) schedule {
	if e.only != nil {
		return drawHumans(seed, e.only)
	}
	return drawHumans(seed, slices.DeleteFunc(slices.Clone(habits), func(k kind) bool { return slices.Contains(e.never, k) }))
}

func (e *example) text() ([]byte, error) {
	if len(e.changed) > 0 {
		text, err := os.ReadFile(e.file)
		if changed := strings.NewReplacer(e.changed...).Replace(string(text)); changed != string(text) || err != nil {
			return []byte(changed), err
		}
		return nil, fmt.Errorf("%s does not say %q any more", e.file, e.changed[0])
	}
	if !e.shipped {
		return os.ReadFile(e.file)
	}
	text, err := fs.ReadFile(phases.Files, e.file+".yaml")
	if err != nil || len(e.diffs) == 0 {
		return text, err
	}
	dir, err := os.MkdirTemp("", "humans")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, e.file+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	for _, diff := range e.diffs {
		path, err := filepath.Abs(diff)
		if err != nil {
			return nil, err
		}
		apply := exec.Command("git", "apply", "-p0", path)
		apply.Dir = dir
		if said, err := apply.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", diff, err, said)
		}
	}
	return os.ReadFile(file)
}

func (e *example) bind(def *fsm.Definition) (*fsm.Machine, error) {
	b, err := catalog.Bindings(def)
	if err != nil {
		return nil, err
	}
	if e.planted != nil || len(e.changed) > 0 { // the linter would refuse some defects
		if m := fsm.Provable(def, b); m != nil {
			return m, nil
		}
	}
	m, diags := fsm.Bind(def, b)
	if m == nil && e.unproved {
		m = fsm.Provable(def, b)
	}
	if m == nil {
		return nil, diags.Err()
	}
	return m, nil
}

// scheme knows the kinds of the machine, and mapper where their objects are.
func (e *example) scheme(kind schema.GroupVersionKind) (*runtime.Scheme, meta.RESTMapper) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, migrationv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	if !scheme.Recognizes(kind) {
		scheme.AddKnownTypeWithName(kind, &generic.Object{})
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(stateKind, meta.RESTScopeRoot)
	for _, k := range []schema.GroupVersionKind{deploymentKind, jobKind, podKind, {Version: "v1", Kind: "ConfigMap"},
		{Group: "batch", Version: "v1", Kind: "CronJob"}, {Group: "events.k8s.io", Version: "v1", Kind: "Event"}, kind} {
		mapper.Add(k, meta.RESTScopeNamespace)
	}
	return scheme, mapper
}

// target is what the Job of an object works on.
func (e *example) target(s *scene, owner types.UID) string {
	for _, obj := range s.driven() {
		if obj.GetUID() == owner {
			name, _, _ := nested(obj, "spec", "deployment")
			return name
		}
	}
	return ""
}

// drive is the reconciler that the manager has for a program: one that goes on after a commit, or lets others come in between.
func drive[T runner.Object[T]](s *scene, c client.Client, p *runner.Program[T]) reconciler {
	return &runner.Reconciler[T]{Client: c, Machine: func() *fsm.Machine { return s.file.inForce }, Program: p, Clock: s.clock,
		Recorder: &events.FakeRecorder{}, Metrics: runner.NewMetrics(prometheus.NewRegistry()), Manager: "default/phasegate", States: s.statesOf, MaxRuns: []int{1, 0}[s.chance.IntN(2)]}
}

func driveCustom(s *scene, c client.Client) reconciler {
	return drive(s, c, generic.Program(builtin.Options{Client: c, HTTP: s.site.leave()}))
}

func driveMigration(s *scene, c client.Client) reconciler {
	return drive(s, c, modelled(s, datastoremigration.Program(c, datastoremigration.Settings{Registry: resources.Default()})))
}

func driveServer(s *scene, c client.Client) reconciler {
	return drive(s, c, modelled(s, mcpserver.Program(c, mcpserver.Settings{})))
}

// named is an object of the kind of the machine.
func named(name string, spec map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": spec}
}

func deployment(name string) map[string]any {
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{"replicas": int64(3), "template": map[string]any{"image": "shop:1"}}}
}

// set is a person who edits the spec of all objects.
func set(spec map[string]any) func(*scene) {
	return func(s *scene) {
		for _, obj := range s.driven() {
			s.edit(refOf(obj), func(o object) { o.Object["spec"] = merge(o.Object["spec"].(map[string]any), spec) })
		}
	}
}

// setBack is a person who reads the message of an object that is to work on another target than the one it holds, and names
// that one again.
func setBack(s *scene) {
	for _, obj := range s.driven() {
		message, _, _ := nested(obj, "status", "message")
		if _, rest, otherwise := strings.Cut(message, "is held with name: "); otherwise {
			held, _, _ := strings.Cut(rest, ",")
			s.edit(refOf(obj), func(o object) {
				o.Object["spec"] = merge(o.Object["spec"].(map[string]any), map[string]any{"backup": held})
			})
		}
	}
}

// approve is a person who approves whatever waits for it.
func approve(s *scene) {
	for _, obj := range s.driven() {
		if st := s.stateOf(obj); st != nil && strings.HasPrefix(st.Phase, "AwaitingApproval") {
			s.annotate(refOf(obj), "phasegate.dev/approve", fmt.Sprint("yes-", s.passes))
		}
	}
}

// unscale is a person who looks after what somebody has scaled by hand: a restore waits until its application has
// stopped, and one that comes after it for the application.
func unscale(s *scene) {
	in := func(phase string) bool {
		return slices.ContainsFunc(s.driven(), func(obj object) bool {
			st := s.stateOf(obj)
			return st != nil && strings.HasPrefix(st.Phase, phase)
		})
	}
	replicas := int64(3)
	switch {
	case in("Restoring"):
		replicas = 0
	case !in("Pending"):
		return
	}
	for _, d := range s.all(deploymentKind, "") {
		if s.meddled[d.GetName()] {
			s.edit(refOf(d), func(o object) { _ = unstructured.SetNestedField(o.Object, replicas, "spec", "replicas") })
		}
	}
}

// succeed lets the test of the network succeed, which a machine waits for.
func succeed(s *scene) {
	s.edit(ref{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, types.NamespacedName{Namespace: "network-tests", Name: "smoke-test"}}, func(o object) {
		o.Object["status"] = map[string]any{"lastSuccessfulTime": s.clock.Now().UTC().Format(time.RFC3339)}
	})
}

var (
	retrying  = []asking{{"phasegate.dev/retry", tokens}}
	migration = named("to-v3", map[string]any{"type": "APIServerToCRDs"})
	restore   = map[string]any{"deployment": "bookshop", "replicas": int64(3), "image": "restore:1", "backup": "monday"}
	smokeTest = map[string]any{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "smoke-test", "namespace": "network-tests"},
		"status": map[string]any{"lastSuccessfulTime": "2026-01-01T00:00:00Z"}}
)

// examples are the machines that are shipped, those of the documents, and two that promise
// more than those do.
var examples = map[string]*example{
	"datastore-migration": {shipped: true, file: "datastore-migration", objects: []map[string]any{migration}, requests: retrying, never: []kind{respecs, joins},
		enough: 100 * time.Hour, reconciler: driveMigration},
	"approval-gate": {shipped: true, file: "datastore-migration", diffs: []string{"../../docs/extend/examples/approval-gate/gate.diff"},
		objects: []map[string]any{migration}, requests: append(retrying, asking{"phasegate.dev/approve", tokens}), never: []kind{respecs, joins},
		enough: 100 * time.Hour, goOn: approve, reconciler: driveMigration},
	"health-check": {shipped: true, file: "datastore-migration", diffs: []string{"../../docs/extend/examples/health-check/smoke-test.diff"},
		objects: []map[string]any{migration}, targets: []map[string]any{smokeTest}, requests: retrying, never: []kind{respecs, joins},
		enough: 100 * time.Hour, goOn: succeed, reconciler: driveMigration},
	"mcpserver": {shipped: true, file: "mcpserver", objects: []map[string]any{named("fetch", map[string]any{"image": "fetch:1"})},
		specs: []map[string]any{{"image": "fetch:2"}, {"image": "fetch:1"}}, never: []kind{joins},
		requests: []asking{{"mcpserver.toolhive.stacklok.dev/restarted-at", []string{"2026-01-02T01:00:00Z", "2026-01-02T02:00:00Z", "2026-01-02T01:00:00Z"}}},
		enough:   4 * time.Hour, reconciler: driveServer},
	"database-restore": {file: "../../docs/extend/examples/database-restore/database-restore.yaml", exclusive: true, works: "stopped", restores: true,
		objects: []map[string]any{named("monday", restore), named("tuesday", restore)}, targets: []map[string]any{deployment("bookshop")},
		requests: retrying, never: []kind{respecs, deletesJob}, enough: 30 * time.Hour, goOn: unscale, reconciler: driveCustom},
	"site-check": {file: "../../docs/extend/examples/site-check/site-check.yaml", objects: []map[string]any{named("homepage", map[string]any{"url": "SITE"})},
		never: []kind{respecs, joins}, pace: time.Second, enough: 50 * time.Hour, reconciler: driveCustom},
	"restore": {file: "../../controllers/generic/testdata/restore.yaml", objects: []map[string]any{named("nightly", map[string]any{"backup": "a"}), named("weekly", map[string]any{"backup": "a"})},
		specs: []map[string]any{{"backup": "b"}, {"replicas": int64(0)}, {"replicas": int64(2)}}, enough: 60 * time.Hour, goOn: set(map[string]any{"ready": true}), reconciler: driveCustom},
	"target": {file: "../../controllers/generic/testdata/target.yaml", restores: true, objects: []map[string]any{named("one", map[string]any{"backup": "app"}), named("two", map[string]any{"backup": "app"})},
		targets: []map[string]any{deployment("app"), deployment("other")}, specs: []map[string]any{{"backup": "other"}, {"backup": "app"}},
		enough: 60 * time.Hour, goOn: func(s *scene) { set(map[string]any{"ready": true})(s); setBack(s) }, reconciler: driveCustom},
	"notes": {file: "testdata/notes.yaml", succeeds: true, restores: true, objects: []map[string]any{named("tidy", map[string]any{"deployment": "shop"})}, targets: []map[string]any{deployment("shop")},
		// Its phase notes what it changes itself: it must not begin anew.
		never:  []kind{respecs, joins, scales, crashes, lies, retimes, renamesPhase, renamesStep, renamesEffect, addsPhase, removesPhase, addsStep, deletes, vanishes, fails, outage},
		enough: 10 * time.Hour, reconciler: driveCustom},
	"maintenance": {file: "testdata/maintenance.yaml", unproved: true, restores: true, exclusive: true, objects: []map[string]any{
		named("tidy", map[string]any{"deployment": "shop", "url": "SITE"}), named("other", map[string]any{"deployment": "bar", "url": "SITE"})},
		targets: []map[string]any{deployment("shop"), deployment("bar")}, requests: append(retrying, asking{"phasegate.dev/approve", tokens}), never: []kind{respecs},
		pace: time.Second, enough: 60 * time.Hour, goOn: approve, reconciler: driveCustom},
}
