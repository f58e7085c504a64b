package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/phasegate/phasegate/cmd/manager/internal/health"
	"github.com/phasegate/phasegate/controllers/machinestore"
)

const (
	// machinesSilent is how long nobody may look at the machine files, which happens
	// every second, until the process is taken for wedged.
	machinesSilent = 30 * time.Second
	// apiEvery is how often all probes together ask the API server, and apiTimeout
	// how long it may take to answer.
	apiEvery   = 5 * time.Second
	apiTimeout = 2 * time.Second
	// probeTimeout bounds what a probe may take to be read, and to end at a shutdown.
	probeTimeout = 2 * time.Second
)

type vitals struct{ machines, election health.Pulse }

// serveHealth adds the server of /healthz and /readyz, which answers on a standby
// as on the leader, and from before the first controller runs.
func serveHealth(mgr manager.Manager, o *options, v *vitals, ready []health.Check) error {
	if o.probeAddress == none {
		return nil
	}
	listener, err := net.Listen("tcp", o.probeAddress)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	alive := []health.Check{{Name: "machines", Ask: v.machines.Within(machinesSilent)}}
	if o.leader.elect {
		alive = append(alive, health.Check{Name: "leader-election", Ask: v.election.Within(o.leader.wedgedAfter())})
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", health.Handler(alive...))
	mux.Handle("/readyz", health.Handler(ready...))
	return mgr.Add(&manager.Server{
		Name: "health probes", Listener: listener, ShutdownTimeout: new(probeTimeout),
		Server: &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout},
	})
}

// readyChecks are the lines of /readyz?verbose, without those of the controllers.
func readyChecks(mgr manager.Manager, cfg *rest.Config, store *machinestore.Store) ([]health.Check, error) {
	asking := rest.CopyConfig(cfg)
	asking.Timeout = apiTimeout
	api, err := discovery.NewDiscoveryClientForConfig(asking)
	if err != nil {
		return nil, fmt.Errorf("make the client of /readyz: %w", err)
	}
	return []health.Check{
		{Name: "machines", Ask: func(context.Context) (string, error) { return inForce(store), store.NotDriven() }},
		{Name: "api", Ask: health.Kept(apiEvery, func(context.Context) (string, error) {
			v, err := api.ServerVersion()
			if err != nil {
				return "", fmt.Errorf("the API server does not answer: %w", err)
			}
			return v.GitVersion, nil
		})},
		{Name: "leader", Ask: func(context.Context) (string, error) { return role(mgr.Elected()), nil }},
	}, nil
}

// inForce tells of a file that is refused too, which makes nobody unready while a machine of
// its name goes on.
func inForce(store *machinestore.Store) string {
	note, sep := strings.Join(store.Names(), ", ")+" in force", "; refused: "
	for _, r := range store.Refusals() {
		note, sep = note+sep+r.Note, "; "
	}
	return note
}

// role is for information only: a standby is ready, to take over.
func role(elected <-chan struct{}) string {
	select {
	case <-elected:
		return "this process leads"
	default:
		return "standby, ready to take over"
	}
}
