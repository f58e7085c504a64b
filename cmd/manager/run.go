package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/custom"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/runner"
)

// The values of --controllers.
const (
	controllerDatastoreMigration = "datastoremigration"
	controllerMCPServer          = "mcpserver"
)

var allControllers = []string{controllerDatastoreMigration, controllerMCPServer}

// leaseName is the same for all controllers: one manager leads.
const leaseName = "phasegate-manager"

type options struct {
	kubeconfig      string
	phasesDir       string
	kindsFile       string
	controllers     []string
	calicoNamespace string
	proxyImage      string
	httpHosts       []string
	httpPrivate     []string
	leaderElect     bool
	leaderNamespace string
	metricsAddress  string
	probeAddress    string
}

// run checks every file before it talks to a cluster.
func run(ctx context.Context, o *options) error {
	for _, name := range o.controllers {
		if !slices.Contains(allControllers, name) {
			return fmt.Errorf("--controllers: %q is not known; known controllers: %v", name, allControllers)
		}
	}
	registry, err := loadRegistry(o.kindsFile)
	if err != nil {
		return err
	}
	http, err := o.http()
	if err != nil {
		return err
	}
	store, err := loadMachines(o.phasesDir, ctrl.Log)
	if err != nil {
		return err
	}
	cfg, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, o)
	if err != nil {
		return err
	}
	store.Register(metrics.Registry)
	measured := runner.NewMetrics(metrics.Registry)
	parts := []manager.Runnable{store, &custom.Fleet{Config: cfg, Store: store, Compiled: catalog.Compiled, Metrics: measured, HTTP: http}}
	if slices.Contains(o.controllers, controllerDatastoreMigration) {
		parts = append(parts, datastoremigration.Gate(cfg, store.Of(datastoremigration.MachineName), datastoremigration.Settings{
			Registry: registry, CalicoNamespace: o.calicoNamespace, HTTP: http,
		}, measured))
	}
	if slices.Contains(o.controllers, controllerMCPServer) {
		parts = append(parts, mcpserver.Gate(cfg, store.Of(mcpserver.MachineName), mcpserver.Settings{ProxyImage: o.proxyImage, HTTP: http}, measured))
	}
	for _, part := range parts {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("add %T to the manager: %w", part, err)
		}
	}
	return mgr.Start(ctx)
}

func newManager(cfg *rest.Config, o *options) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme:                  datastoremigration.NewScheme(),
		Metrics:                 metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:  o.probeAddress,
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: o.leaderNamespace,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ping", healthz.Ping)
}

// http is where machines may send requests.
func (o *options) http() (builtin.HTTP, error) {
	leave := builtin.HTTP{AllowHosts: o.httpHosts}
	for _, network := range o.httpPrivate {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return builtin.HTTP{}, fmt.Errorf("--allow-private-http: %w: write a network such as 10.1.0.0/16", err)
		}
		leave.AllowPrivate = append(leave.AllowPrivate, prefix)
	}
	return leave, nil
}

// restConfig has no client-side rate limit: the API server's own priority and
// fairness is the limit, and a lock must not wait behind a token bucket.
func restConfig(kubeconfig string) (*rest.Config, error) {
	find := ctrl.GetConfig
	if kubeconfig != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	cfg, err := find()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w: give --kubeconfig", err)
	}
	cfg.QPS = -1
	cfg.DisableCompression = true // of lists: it costs both sides more time than the network saves inside a cluster
	cfg.UserAgent = "phasegate-manager/" + version
	return cfg, nil
}
