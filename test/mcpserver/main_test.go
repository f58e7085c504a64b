// Package mcpserver runs bin/manager and bin/proxyrunner on a real control plane
// and looks at MCPServers as their users do: through kubectl, Events and status.
// Nodes pretend to run pods; the proxies among them run as real processes, with
// the rights of their pods (test/support/podrunner). Nothing here knows how either works
// inside.
//
// All tests share one cluster and one manager, each in a namespace of its own.
package mcpserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/podrunner"
)

// managerAccount has the rights that the chart grants, and no others.
const managerAccount = "phasegate-manager"

// setUp starts everything once, when the first test asks for it.
var (
	setUp = sync.OnceValues(newWorld)
	inUse *world
	// complaint is a line of a log that says that a right is missing, or an error
	// of the manager: none of these tests gives it a reason for one, but that it is
	// told to end while client-go reads an answer.
	complaint = regexp.MustCompile(`(?i:forbidden|unauthorized)|"level":"error"`)
	ending    = "context canceled"
	// byPolicy is how an API server words the refusal of a policy: no right is missing.
	byPolicy = "denied request: "
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	// Tests wait most of the time, so the number of cores is no measure. A flag on
	// the command line still wins.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	if os.Getenv(crds.EnvPeers) != "" {
		delete(authz, "quota") // ToolHive's CRD has no field that our types do not know
	}
	code := m.Run()
	if inUse != nil {
		if err := inUse.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// world is the cluster with what runs on it.
type world struct {
	*harness.Cluster
	pods    *podrunner.Runner
	manager *harness.Process
	// metrics is the address of the manager's.
	metrics string

	mu sync.Mutex
	// edits change what is started for pods of a namespace; see space.editProxies.
	edits map[string]proxyEdit
}

func newWorld() (w *world, err error) {
	inUse, err = worldOf()
	return inUse, err
}

// worldOf has our CRDs; args are more of the manager's.
func worldOf(args ...string) (*world, error) {
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	driven, err := crds.Driven(root)
	if err != nil {
		return nil, err
	}
	driven.CRDs = append(driven.CRDs, toolConfigCRD)
	return worldWith(driven, args...)
}

// worldWith starts a cluster with these CRDs, and all that runs on it. The caller closes
// it; also after an error, if it is not nil.
func worldWith(installed crds.Set, args ...string) (*world, error) {
	ctx := context.Background()
	cluster, err := harness.Start(ctx, harness.Options{Own: true, Types: apiTypes})
	if err != nil {
		return nil, err
	}
	w := &world{Cluster: cluster, edits: map[string]proxyEdit{}}
	if err := crds.Install(ctx, cluster.Config, installed); err != nil {
		return w, err
	}
	rules, err := harness.ChartRules("mcpserver")
	if err != nil {
		return w, err
	}
	if err := cluster.Grant(ctx, managerAccount, rules); err != nil {
		return w, err
	}
	if w.metrics, err = harness.FreeAddress(); err != nil {
		return w, err
	}
	binary, err := harness.Binary("proxyrunner")
	if err != nil {
		return w, err
	}
	w.pods, err = podrunner.Start(podrunner.Options{
		Cluster: cluster, Programs: map[string]string{v1beta1.ProxyContainer: binary}, Edit: w.editProxy,
	})
	if err != nil {
		return w, err
	}
	return w, w.startManager(args...)
}

// startManager runs bin/manager with the rights of the chart.
func (w *world) startManager(args ...string) error {
	path, err := harness.Binary("manager")
	if err != nil {
		return err
	}
	w.manager, err = harness.StartProcess(harness.Program{
		Name: "manager", Path: path, LogDir: w.LogDir, Args: append([]string{
			"--kubeconfig", w.KubeconfigOf(managerAccount), "--controllers", "mcpserver",
			"--proxy-image", proxyImage, "--metrics-bind-address", w.metrics, "--metrics-secure=false",
		}, args...),
	})
	return err
}

// close ends everything, and then looks for what no single test would notice: all
// of them together prove that the rights of the manager and of proxies suffice, and
// that no proxy crashes, whatever its server goes through.
func (w *world) close() error {
	var errs []error
	if w.manager != nil {
		errs = append(errs, w.manager.Stop(20*time.Second))
	}
	if w.pods != nil {
		w.pods.Stop()
		if crashed := w.pods.Crashed(); len(crashed) > 0 {
			errs = append(errs, fmt.Errorf("processes of these pods ended by themselves: %v", crashed))
		}
	}
	errs = append(errs, w.complaints(), w.Stop())
	return errors.Join(errs...)
}

// complaints are those in the logs, one for each.
func (w *world) complaints() error {
	logs, err := filepath.Glob(filepath.Join(w.LogDir, "*.log"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if complaint.MatchString(line) && !strings.Contains(line, ending) && !strings.Contains(line, byPolicy) {
				errs = append(errs, fmt.Errorf("in %s: %s", filepath.Base(path), line))
				break
			}
		}
	}
	return errors.Join(errs...)
}
