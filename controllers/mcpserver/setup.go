package mcpserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
)

// MachineName is the name of the machine file that this controller runs.
const MachineName = "mcpserver"

// controllerName is also the reporting controller of Events.
const controllerName = "phasegate-mcpserver"

// NewScheme knows the types that the steps read and write.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// Bindings are the names that a machine file for MCPServer may use.
func Bindings() fsm.Bindings { return Program(nil, Settings{}).Bindings() }

// Gate makes the controllers, to be added to a manager: they run while the CRD of
// MCPServer is established, whosever it is.
func Gate(cfg *rest.Config, machine *machinestore.Handle, settings Settings, metrics *runner.Metrics) *runner.Controller {
	return runner.Driver[*server]{
		Name: controllerName, Config: cfg, CRDName: v1beta1.CRDName, Machine: machine, Metrics: metrics, Manager: settings.Manager, Limits: settings.Limits,
		Scheme: func() (*runtime.Scheme, error) { return NewScheme(), nil },
		Program: func(_ context.Context, c client.Client) (*runner.Program[*server], error) {
			return Program(c, settings), nil
		},
	}.Controller()
}
