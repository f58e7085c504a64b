package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/phasegate/phasegate/test/harness"
)

// controllerOfServers is the name of the controller in the manager's metrics.
const controllerOfServers = "phasegate-mcpserver"

// requests counts what a process has asked the API server, by method.
type requests map[string]float64

func requestsOf(shown harness.Families) requests {
	all := requests{}
	for _, m := range shown["rest_client_requests_total"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "method" {
				all[label.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// writes are those that change something. Events, which are POST, are among them.
func (r requests) writes() float64 { return r["POST"] + r["PUT"] + r["PATCH"] + r["DELETE"] }

// busiest lists what the API server was asked most often, by all its clients.
func busiest(ctx context.Context, config *rest.Config, top int) (string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	shown, err := harness.Scrape(ctx, client, config.Host)
	if err != nil {
		return "", err
	}
	counts := map[string]float64{}
	for _, m := range shown["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range m.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		what := strings.TrimSuffix(labels["verb"]+" "+labels["resource"]+"/"+labels["subresource"], "/")
		counts[what] += m.GetCounter().GetValue()
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	var lines []string
	for _, name := range names[:min(top, len(names))] {
		lines = append(lines, fmt.Sprintf("%s %.0f", name, counts[name]))
	}
	return strings.Join(lines, ", "), nil
}

// fleetManager is bin/manager at work on servers only.
type fleetManager struct {
	*harness.Process
	// metrics is the address of its metrics.
	metrics string
}

func (f *fleet) manager(name string) (*fleetManager, error) {
	path, err := harness.Binary("manager")
	if err != nil {
		return nil, err
	}
	address, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := harness.StartProcess(harness.Program{Name: name, Path: path, LogDir: f.cluster.LogDir, Args: []string{
		"--kubeconfig", f.cluster.Kubeconfig, "--controllers", "mcpserver", "--metrics-bind-address", address, "--metrics-secure=false",
	}})
	return &fleetManager{Process: p, metrics: address}, err
}

// settled waits until the manager has looked at n servers and has nothing more to
// do, and answers its metrics.
func (m *fleetManager) settled(ctx context.Context, n int) (shown harness.Families, err error) {
	err = harness.Await(ctx, "the manager to have nothing to do", patience, func(ctx context.Context) error {
		if err := m.Alive(); err != nil {
			return err
		}
		if shown, err = harness.Scrape(ctx, http.DefaultClient, "http://"+m.metrics); err != nil {
			return err
		}
		passes := shown.Sum("controller_runtime_reconcile_total", "controller", controllerOfServers)
		open := shown.Sum("workqueue_depth", "name", controllerOfServers) +
			shown.Sum("controller_runtime_active_workers", "controller", controllerOfServers)
		if passes < float64(n) || open > 0 {
			return fmt.Errorf("%v passes were made for %d servers, %v are waiting or at work", passes, n, open)
		}
		return nil
	})
	return shown, err
}
