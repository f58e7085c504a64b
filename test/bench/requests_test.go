package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/harness"
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

// served counts what the API server has answered about what a migration reads and
// writes: Calico's two groups and DatastoreMigrations. Reads of the lock are not among
// them: everybody who wants to know whether v1 is open makes them.
type served struct{ writes, dryRuns, reads, lists float64 }

func servedBy(ctx context.Context, config *rest.Config) (served, error) {
	shown, err := scrapeServer(ctx, config)
	if err != nil {
		return served{}, err
	}
	var s served
	for _, m := range shown["apiserver_request_total"].GetMetric() {
		label := labelsOf(m)
		if !slices.Contains([]string{resources.V1Group, resources.V3Group, migrationv1.GroupVersion.Group}, label["group"]) {
			continue
		}
		n := m.GetCounter().GetValue()
		switch label["verb"] {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE":
			if label["dry_run"] != "" {
				s.dryRuns += n
			} else {
				s.writes += n
			}
		case "GET":
			if label["resource"] != resources.Default().Lock().V1Plural() {
				s.reads += n
			}
		case "LIST":
			s.lists += n
		}
	}
	return s, nil
}

func scrapeServer(ctx context.Context, config *rest.Config) (harness.Families, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return harness.Scrape(ctx, client, config.Host)
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, label := range m.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}

// busiest lists what the API server was asked most often, by all its clients.
func busiest(ctx context.Context, config *rest.Config, top int) (string, error) {
	shown, err := scrapeServer(ctx, config)
	if err != nil {
		return "", err
	}
	counts := map[string]float64{}
	for _, m := range shown["apiserver_request_total"].GetMetric() {
		labels := labelsOf(m)
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
