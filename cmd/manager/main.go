// Command manager runs phasegate's controllers against a cluster. It only reads
// flags and wires; the work is in package controllers.
package main

import (
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/phasegate/phasegate/cmd/internal/release"
	_ "github.com/phasegate/phasegate/cmd/internal/roots"
)

var version = release.Current().Version

func main() {
	paceCollector()
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(exitCode(err))
	}
}

func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run phasegate's controllers",
		Long: `Run phasegate's controllers against a cluster.

The machines are compiled in. A file in --phases-dir replaces the machine of the same name,
or adds a machine for another kind. All files are checked before anything starts: a finding
(file:line:column: code: what, fix) ends the program with exit code 1.

The directory is checked every second. Changes take effect without a restart. A file with a
finding is refused, and the last valid machine stays in force: the log, the metric
phasegate_machine_refused, and Events of the objects and of the manager's pod report it.

SIGTERM ends the program: running writes are finished or abandoned, the lease is released,
and the exit code is 0. A second signal ends it at once.`,
		Example: `  manager --kubeconfig .cluster/kubeconfig
  manager --phases-dir ./phases --calico-namespace kube-system`,
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(checkCommand(o))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
