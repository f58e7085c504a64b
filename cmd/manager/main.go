// Command manager runs phasegate's controllers against a cluster. It only reads
// flags and wires; the work is in package controllers.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// version is stamped by the Makefile.
var version = "dev"

func main() {
	logger := zap.New(zap.UseDevMode(false))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run phasegate's controllers",
		Long: `Run phasegate's controllers against a cluster.

The machines are compiled in. A file in --phases-dir replaces the machine of the
same name, or adds a machine for another kind. All files are checked completely
before anything starts, and a finding (file:line:column: code: what, fix) ends
the program with exit code 1.

While the program runs, the directory is looked at every second. A change takes
effect without a restart; a file with a finding is refused, and the last good
machine goes on: the log, the metric phasegate_machine_refused and Events of the
objects tell.`,
		Example: `  manager --kubeconfig .cluster/kubeconfig
  manager --phases-dir ./phases --calico-namespace kube-system`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty: $KUBECONFIG, in-cluster, or ~/.kube/config")
	f.StringVar(&o.phasesDir, "phases-dir", "", "directory of machine files (*.yaml) that replace compiled-in ones of the same name or add to them")
	f.StringVar(&o.kindsFile, "kinds-file", "", "kind registry file that replaces the compiled-in one")
	f.StringSliceVar(&o.controllers, "controllers", allControllers, "controllers to run")
	f.StringVar(&o.calicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, calico-typha and calico-kube-controllers")
	f.StringVar(&o.proxyImage, "proxy-image", "ghcr.io/phasegate/proxyrunner:"+version, "image of the proxies of MCP servers")
	f.StringArrayVar(&o.httpHosts, "allow-http-host", nil, "HOST or HOST:PORT that the action HTTPRequest may ask; may be repeated; none: it asks nobody")
	f.StringArrayVar(&o.httpPrivate, "allow-private-http", nil, "private network, such as 10.1.0.0/16, in which an allowed host may be; may be repeated")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "run only while holding the leader election lease")
	f.StringVar(&o.leaderNamespace, "leader-elect-namespace", "", "namespace of the lease; empty: the pod's own")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "0", `address of /metrics, such as :8080; "0" serves none`)
	f.StringVar(&o.probeAddress, "health-probe-bind-address", "0", `address of /healthz and /readyz, such as :8081; "0" serves none`)
	return cmd
}
