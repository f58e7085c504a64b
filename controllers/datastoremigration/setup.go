package datastoremigration

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// MachineName is the name of the machine file that this controller runs.
const MachineName = "datastore-migration"

// controllerName is also the reporting controller of Events.
const controllerName = "phasegate-datastoremigration"

// NewScheme knows the types that the steps read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(migrationv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(apiregistrationv1.AddToScheme(scheme))
	return scheme
}

// Bindings are the names that a machine file for DatastoreMigration may use.
func Bindings() fsm.Bindings { return Program(nil, Settings{Registry: resources.Default()}).Bindings() }

// Gate makes the controllers, to be added to a manager: they run while the CRD of
// DatastoreMigration is established, whosever it is; and whether it is or not, what
// migrations have left that are gone is released.
func Gate(cfg *rest.Config, machine *machinestore.Handle, settings Settings, metrics *runner.Metrics) *runner.Controller {
	return runner.Driver[*migration]{
		Name: controllerName, Config: cfg, CRDName: migrationv1.CRDName, Machine: machine, Namespace: settings.CalicoNamespace,
		Metrics: metrics, Manager: settings.Manager, Limits: settings.Limits,
		Scheme: func() (*runtime.Scheme, error) { return NewScheme(), nil },
		Program: func(ctx context.Context, c client.Client) (*runner.Program[*migration], error) {
			settings, err := settings.connected(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return Program(c, settings), nil
		},
	}.Controller()
}

// connected are the settings with their clients, which end with ctx.
func (settings Settings) connected(ctx context.Context, cfg *rest.Config) (Settings, error) {
	var err error
	settings.Config = cfg
	if settings.Discovery, err = discovery.NewDiscoveryClientForConfig(cfg); err != nil {
		return settings, fmt.Errorf("make the discovery client of %s: %w", controllerName, err)
	}
	if settings.Metadata, err = metadata.NewForConfig(cfg); err != nil {
		return settings, fmt.Errorf("make the client for watches of %s: %w", controllerName, err)
	}
	settings.Ending = ctx.Done()
	if settings.Copying != nil {
		if settings.Copies, err = client.New(settings.Copying, client.Options{Scheme: NewScheme()}); err != nil {
			return settings, fmt.Errorf("make the client of the copies of %s: %w", controllerName, err)
		}
	}
	return settings, nil
}

// Settings are what the steps need to know of the cluster.
type Settings struct {
	// Registry lists the kinds to migrate.
	Registry *resources.Registry
	// CalicoNamespace is where calico-node, calico-typha and
	// calico-kube-controllers run.
	CalicoNamespace string
	// Config is what the client was made of, to ask each API server by itself; nil: all that is asked
	// goes where the client leads.
	Config *rest.Config
	// Elsewhere says that the checks are not asked from where the manager runs.
	Elsewhere bool
	// Discovery tells what the API server serves, for the checks.
	Discovery discovery.DiscoveryInterface
	// Metadata is for watches of the kinds with many objects; nil: they are listed under the lock.
	Metadata metadata.Interface
	// Ending is closed when the controller ends, and its watches with it; nil: never.
	Ending <-chan struct{}
	// HTTP is where the built-in HTTPRequest may go.
	HTTP builtin.HTTP
	// Copying is for the requests of copies, which are many; nil: they go where all others
	// go. Its transport should know inflight.WithLowPriority, which marks them while nothing is locked. Copies is the
	// client made of it, by Gate.
	Copying *rest.Config
	Copies  client.Client
	// Pod is the one that this program runs in; empty outside of pods.
	Pod types.NamespacedName
	// MemoryLimit is how many bytes of memory this program may use; 0: as many as there are.
	MemoryLimit int64
	// Manager is that of runner.Driver.
	Manager string
	// Limits are those of the controller.
	Limits runner.Limits
	// StoreQuota is how many bytes etcd may have (its --quota-backend-bytes); 0: DefaultStoreQuota.
	StoreQuota int64
	// RequestTimeout is the longest --request-timeout of an API server; 0: DefaultRequestTimeout.
	RequestTimeout time.Duration
	// Metrics are what is measured; nil: nobody looks.
	Metrics *Metrics
}
