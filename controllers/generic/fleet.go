package generic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/fsm"
)

// Program binds the names of a machine file to the built-in actions.
func Program(o builtin.Options) *runner.Program[*Object] {
	return &runner.Program[*Object]{
		New:     func() *Object { return &Object{} },
		Actions: builtin.Actions[*Object](o),
		// All of them, as the plural is not known.
		Rights: crdgate.Rights(""),
	}
}

// Bindings are the names that the machine of any kind may use.
func Bindings() fsm.Bindings {
	b := Program(builtin.Options{}).Bindings()
	b.Fields, b.Reserved = slices.Sorted(maps.Keys(described)), reserved
	return b
}

// Fleet runs a controller for each machine that no Go code is made for, also for
// those whose file comes later. Add it to a manager; it runs on the leader only.
type Fleet struct {
	Config *rest.Config
	Store  *machinestore.Store
	// Compiled tells which machines have a controller of their own.
	Compiled func(name string) bool
	// HTTP is where HTTPRequest may go.
	HTTP    builtin.HTTP
	Metrics *runner.Metrics
	// Manager is that of runner.Driver.
	Manager string
	// Limits are those of each controller.
	Limits runner.Limits

	mu sync.Mutex
	// gates are those of the machines that run, by machine.
	gates map[string]*runner.Controller
}

// NeedLeaderElection makes the manager start the fleet on the leader only.
func (f *Fleet) NeedLeaderElection() bool { return true }

// Start runs until ctx is done and all controllers have ended.
func (f *Fleet) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		changed := f.Store.Changed()
		for _, gate := range f.added() {
			group.Go(func() error { return gate.Start(ctx) })
		}
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-changed:
		}
	}
}

// added makes the gates of the machines that are new.
func (f *Fleet) added() []*runner.Controller {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gates == nil {
		f.gates = map[string]*runner.Controller{}
	}
	var added []*runner.Controller
	for _, name := range f.Store.Names() {
		if f.gates[name] == nil && !f.Compiled(name) {
			f.gates[name] = f.gate(name)
			added = append(added, f.gates[name])
		}
	}
	return added
}

// Ready says for a probe what the controllers do, and is an error while one that
// should run does not. It may be called at any time.
func (f *Fleet) Ready(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var notes []string
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(f.gates)) {
		note, err := f.gates[name].Ready(ctx)
		notes, faults = append(notes, name+" "+note), append(faults, err)
	}
	if len(notes) == 0 {
		return "no machine is driven from its file alone", nil
	}
	return strings.Join(notes, "; "), errors.Join(faults...)
}

// gate is the controller of one machine, which runs while its CRD is there, and that of
// what its objects have left.
func (f *Fleet) gate(name string) *runner.Controller {
	machine := f.Store.Of(name)
	kind := machine.InForce().For() // the store refuses another kind under the same name
	return runner.Driver[*Object]{
		Name: "phasegate-" + name, Config: f.Config, Machine: machine, Metrics: f.Metrics, Manager: f.Manager, Limits: f.Limits,
		Scheme: func() (*runtime.Scheme, error) {
			return newScheme(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		},
		Program: func(_ context.Context, c client.Client) (*runner.Program[*Object], error) {
			api, err := discovery.NewDiscoveryClientForConfig(f.Config)
			if err != nil {
				return nil, fmt.Errorf("make the client that asks which kinds are served: %w", err)
			}
			return Program(builtin.Options{Client: c, Discovery: api, HTTP: f.HTTP}), nil
		},
	}.Controller()
}

// newScheme knows Object under the kind, and the types of Kubernetes.
func newScheme(kind schema.GroupVersionKind) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	if scheme.Recognizes(kind) {
		return nil, fmt.Errorf("%s is a kind of Kubernetes itself: a machine must be for one of a CRD", kind)
	}
	scheme.AddKnownTypeWithName(kind, &Object{})
	metav1.AddToGroupVersion(scheme, kind.GroupVersion())
	return scheme, nil
}
