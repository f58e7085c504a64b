// Package harness is what the integration tests and the demo share: a control
// plane to work on, programs to run against it, and a way to wait for things.
//
// It knows how to get a cluster (test/cluster's program, or the KUBECONFIG that
// is given) but nothing of what is tested on it: no Calico, no machine.
//
// Nothing outlives the program that uses it, not even if that program is killed:
// see keeper.go for clusters and process.go for programs. This needs Linux.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// startLimit is many times what a cluster needs, for machines under load.
const startLimit = 3 * time.Minute

// Options say what cluster is wanted. The zero value is a whole one: it has a
// garbage collector, a scheduler and three nodes, and is in a temporary directory.
type Options struct {
	// Own asks for a new cluster even if KUBECONFIG is set.
	Own bool
	// Tools is the directory of the binaries; bin/tools of the repository if empty.
	Tools string
	// Without names servers that are not needed: "fakenodes", "scheduler",
	// "controller-manager".
	Without []string
	// Nodes is the number of simulated nodes; 0 means three.
	Nodes int
	// Fsync makes etcd as slow and as safe as in production.
	Fsync bool
	// APIServerArgs are flags for kube-apiserver besides, for a cluster that differs.
	APIServerArgs []string
	// NoPolicies are kinds of admission policies that kube-apiserver is not to serve:
	// MutatingPolicies, ValidatingPolicies.
	NoPolicies []string
	// Audit makes kube-apiserver write down every request: Cluster.AuditLog.
	Audit bool
	// Keep leaves the cluster running at the end, for somebody to look at.
	Keep bool
	// Types adds API types to the scheme of Client, which has those of client-go,
	// CRDs and APIServices.
	Types []func(*runtime.Scheme) error
	// Progress receives the launcher's report; nil for nothing.
	Progress io.Writer
	// Test is whose cluster it is, for the table of costs; empty where several share it.
	Test string
}

// Cluster is a running control plane.
type Cluster struct {
	// Config is the administrator's, without a client-side rate limit.
	Config *rest.Config
	// Client is an uncached client made of Config.
	Client client.WithWatch
	// Kubeconfig is the path of the administrator's kubeconfig file.
	Kubeconfig string
	// LogDir is where programs started for this cluster write their output.
	LogDir string
	// AuditLog is a file with an audit.k8s.io/v1 Event, as JSON, in each line; empty
	// unless Options.Audit asked for it.
	AuditLog string

	// stop ends what Start started. It does it once.
	stop func() error
}

// Start brings a cluster up, or connects to the one that KUBECONFIG names. The
// caller stops it; if the caller's program ends before, it is stopped as well.
// Every call gives another cluster, unless KUBECONFIG is set.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	begun := time.Now()
	base, err := os.MkdirTemp("", "phasegate-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the cluster: %w", err)
	}
	c := &Cluster{
		Kubeconfig: os.Getenv(clientcmd.RecommendedConfigPathEnvVar),
		LogDir:     filepath.Join(base, "logs"),
		stop:       func() error { return nil },
	}
	if err := os.Mkdir(c.LogDir, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory for logs: %w", err)
	}
	if o.Own || c.Kubeconfig == "" {
		if o.Audit {
			if err := c.audit(&o); err != nil {
				return nil, errors.Join(err, os.RemoveAll(base))
			}
		}
		if err := c.launch(ctx, base, o); err != nil {
			return nil, errors.Join(err, os.RemoveAll(base))
		}
	}
	if err := c.connect(o); err != nil {
		return nil, errors.Join(err, c.Stop(), os.RemoveAll(base))
	}
	if !o.Keep {
		end, up := c.stop, time.Since(begun)
		c.stop = func() error {
			cost := Cost{Test: o.Test, What: "cluster", Start: up, CPU: CPUOf(base)}
			err := end()
			cost.Took = time.Since(begun)
			cost.Write()
			return errors.Join(err, os.RemoveAll(base))
		}
	}
	c.stop = sync.OnceValue(c.stop)
	return c, nil
}

// ForTest is Start for the duration of a test. A failure to start fails the test, and -short skips it.
func ForTest(t testing.TB, o Options) *Cluster {
	t.Helper()
	notShort(t)
	o.Test = t.Name()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}

// Stop ends the cluster and returns when it has ended, unless it is to be kept or
// is not ours. It may be called twice.
func (c *Cluster) Stop() error { return c.stop() }

// launch starts a cluster of our own in base.
func (c *Cluster) launch(ctx context.Context, base string, o Options) error {
	launcher, err := tool(o.Tools, "cluster")
	if err != nil {
		return err
	}
	home := filepath.Join(base, "cluster")
	c.Kubeconfig = filepath.Join(home, "kubeconfig")
	if !o.Keep {
		// First, so that a cluster that is half way up has somebody to end it, too.
		if c.stop, err = keep(launcher, home, filepath.Join(c.LogDir, "down.log")); err != nil {
			return err
		}
	}
	if len(o.NoPolicies) > 0 {
		_, minor, err := kubernetesOf(o.Tools)
		if err != nil {
			return errors.Join(err, c.stop())
		}
		o.APIServerArgs = append(slices.Clone(o.APIServerArgs), withoutPolicies(minor, o.NoPolicies...)...)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := up(ctx, launcher, home, o); err != nil {
		return errors.Join(err, c.stop())
	}
	return nil
}

// auditPolicy records who asked for what, and nothing of what was sent; a line for
// each request, when its answer is complete.
const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n"

// auditSize is the size in MB from which on another file would be begun, and what is in the first one be missed. Of
// its own accord kube-apiserver does so at 100.
const auditSize = "10000"

// audit adds the flags that make kube-apiserver write AuditLog.
func (c *Cluster) audit(o *Options) error {
	policy := filepath.Join(c.LogDir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	c.AuditLog = filepath.Join(c.LogDir, "audit.log")
	o.APIServerArgs = append(slices.Clone(o.APIServerArgs), "--audit-policy-file="+policy, "--audit-log-path="+c.AuditLog, "--audit-log-maxsize="+auditSize)
	return nil
}

func up(ctx context.Context, launcher, home string, o Options) error {
	args := []string{"up", "--dir", home, "--tools", filepath.Dir(launcher)}
	if !o.Fsync {
		args = append(args, "--no-fsync")
	}
	if o.Nodes > 0 {
		args = append(args, fmt.Sprintf("--nodes=%d", o.Nodes))
	}
	for _, arg := range o.APIServerArgs {
		args = append(args, "--api-server-arg="+arg)
	}
	if len(o.Without) > 0 {
		args = append(args, "--without="+strings.Join(o.Without, ","))
	}
	var said bytes.Buffer
	out := io.Writer(&said)
	if o.Progress != nil {
		out = io.MultiWriter(&said, o.Progress)
	}
	cmd := exec.CommandContext(ctx, launcher, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Asked politely, the launcher stops what it has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start a cluster: %s: %w:\n%s", cmd, err, said.String())
	}
	return nil
}

// connect fills in Config and Client.
func (c *Cluster) connect(o Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	}, o.Types...) {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build the scheme: %w", err)
		}
	}
	c.Config = config
	c.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return nil
}

// notShort skips a test that is about to use a control plane where the tests without one are wanted alone.
func notShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
}
