package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/cmd/manager/internal/health"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/controllers/machinestore"
	"github.com/phasegate/phasegate/controllers/machinestore/definitions"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/phases"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/inflight"
	"github.com/phasegate/phasegate/resources/pager"
)

// run checks every flag and file before it talks to a cluster. It ends when ctx
// does, without an error: also when something did not end in time, which the log
// tells then.
func run(ctx context.Context, o *options) error {
	if err := o.validate(); err != nil {
		return err
	}
	logger, err := o.log.logger(os.Stderr)
	if err != nil {
		return err
	}
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	p := &program{options: o}
	if p.registry, err = lint.LoadRegistry(o.kindsFile); err != nil {
		return err
	}
	if p.store, err = loadMachines(o, logger, p.vitals.machines.Beat); err != nil {
		return err
	}
	unlimited, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := p.manager(unlimited)
	if err != nil {
		return err
	}
	endTracing, err := o.tracing.start(ctx, logger.WithName("tracing"))
	if err != nil {
		return err
	}
	defer endTracing()
	err = mgr.Start(ctx)
	if ctx.Err() != nil {
		if err != nil {
			logger.Info("not everything has ended in time, the rest is abandoned", "error", err.Error())
		}
		return nil
	}
	return err
}

// loadMachines loads the compiled-in machines, and those of a directory over them.
// looked is called each time the directory has been looked at; nil: nobody asks.
func loadMachines(o *options, log logr.Logger, looked func()) (*machinestore.Store, error) {
	store, err := machinestore.Load(machinestore.Options{
		Shipped: phases.Files, Dir: o.phasesDir, Bindings: catalog.Bindings, Log: log.WithName("machines"), Looked: looked,
		Runs: o.runsMachine,
	})
	if err != nil {
		return nil, fmt.Errorf("--phases-dir: %w", err)
	}
	return store, nil
}

type program struct {
	*options
	registry *resources.Registry
	store    *machinestore.Store
	vitals   vitals
}

type controller interface {
	manager.Runnable
	Ready(context.Context) (string, error)
}

// manager wires it all. All requests but those for the lease, for /readyz and of the
// copy of a migration go through one limit.
func (p *program) manager(unlimited *rest.Config) (manager.Manager, error) {
	cfg := rest.CopyConfig(unlimited)
	cfg.Wrap(inflight.New(p.maxRequests, metrics.Registry).Wrap)
	options := manager.Options{
		Scheme:                  datastoremigration.NewScheme(),
		Metrics:                 p.metrics.server(),
		HealthProbeBindAddress:  none, // serveHealth says more
		GracefulShutdownTimeout: &p.shutdownTimeout,
	}
	p.leader.configure(&options, unlimited, cfg, &p.vitals.election)
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	p.store.Register(metrics.Registry)
	ours, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, fmt.Errorf("make the client of machine states: %w", err)
	}
	p.store.Objects = states(ours)
	ready, err := readyChecks(mgr, unlimited, p.store)
	if err != nil {
		return nil, err
	}
	parts := []manager.Runnable{p.store, &definitions.Publisher{Client: ours, Store: p.store, Runs: p.runsMachine, Manager: p.leader.installation(),
		Log: mgr.GetLogger().WithName("definitions")}}
	measured := runner.NewMetrics(metrics.Registry)
	if !p.metrics.objects {
		measured.CountObjects()
	}
	controllers := p.controllersOf(unlimited, cfg, measured)
	for _, name := range checkup.Controllers {
		if c := controllers[name]; c != nil {
			parts, ready = append(parts, c), append(ready, health.Check{Name: name, Ask: c.Ready})
		}
	}
	var faults []error
	for _, part := range parts {
		faults = append(faults, mgr.Add(part))
	}
	faults = append(faults, serveHealth(mgr, p.options, &p.vitals, ready), tellOwnPod(mgr, unlimited, p.store))
	return mgr, errors.Join(faults...)
}

// copying is for the copy of a migration: it has connections of its own, so that no
// status and no watch queues behind ten thousand objects, and a limit that follows what
// the API server bears. It may write as long as all others may.
func (p *program) copying(unlimited, work *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(unlimited)
	cfg.Dial = work.Dial
	if cfg.Dial == nil { // client-go shares the connections of those that have none of their own
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // as its own
	}
	cfg.Wrap(inflight.NewAdaptive(p.maxRequests, metrics.Registry).Wrap)
	cfg.Wrap(inflight.NewLowPriority(p.maxRequests, metrics.Registry).Wrap)
	return cfg
}

// memoryLimit is what GOMEMLIMIT says, which the chart sets; 0 without it.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return 0
}

func (p *program) controllersOf(unlimited, cfg *rest.Config, measured *runner.Metrics) map[string]controller {
	all := map[string]controller{}
	if p.runs(checkup.DatastoreMigration) {
		all[checkup.DatastoreMigration] = datastoremigration.Gate(cfg, p.store.Of(datastoremigration.MachineName), datastoremigration.Settings{
			Registry: p.registry, CalicoNamespace: p.calicoNamespace, HTTP: p.http, Copying: p.copying(unlimited, cfg),
			Metrics: datastoremigration.NewMetrics(metrics.Registry, time.Now), MemoryLimit: memoryLimit(), Pod: ownPod(),
			Manager: p.leader.installation(), Limits: p.limits(), StoreQuota: p.storeQuota.Value(), RequestTimeout: p.requestTimeout,
		}, measured)
	}
	if p.runs(checkup.MCPServer) {
		all[checkup.MCPServer] = mcpserver.Gate(cfg, p.store.Of(mcpserver.MachineName), mcpserver.Settings{Proxy: p.flavour(), ProxyImage: p.imageOfProxies(), Program: p.proxyRunner, ProxyResources: p.proxies, OpenShift: p.openShiftOf(cfg), HTTP: p.http, Manager: p.leader.installation(), Limits: p.limits()}, measured)
	}
	if p.runs(checkup.Custom) {
		all[checkup.Custom] = &generic.Fleet{Config: cfg, Store: p.store, Compiled: catalog.Compiled, Metrics: measured, HTTP: p.http, Manager: p.leader.installation(), Limits: p.limits()}
	}
	return all
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

// states reads the states of a machine's objects from the API server. Where it does not
// have their CRD, there are none.
func states(reader client.Reader) machinestore.Objects {
	return func(ctx context.Context, machine string, each func(*v1alpha1.MachineState)) error {
		for state, err := range machinestate.Each(ctx, reader, machine) {
			if err != nil {
				return pager.UnlessAbsent(ctx, reader, v1alpha1.MachineStateCRD, err)
			}
			each(state)
		}
		return nil
	}
}
