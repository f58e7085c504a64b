// Command kubectl-phasegate checks, draws and explains machine files, and speaks
// to the objects that machines drive. As a file of this name on the PATH it is
// the kubectl plugin `kubectl phasegate`.
package main

import (
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/phasegate/phasegate/cmd/internal/release"
	_ "github.com/phasegate/phasegate/cmd/internal/roots"
)

var version = release.Current().Version

// streams are where a command reads and writes; tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctrl.SetLogger(logr.Discard()) // libraries have nothing to tell who sits at a terminal
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	cmd := command(s)
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(exitCode(s, err))
	}
}

func command(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-phasegate",
		Short: "Migrate Calico's datastore, and look after all that a machine drives",
		Long: `Migrate Calico's datastore, and look after all that a machine drives. Before a migration:
check, then plan. While it runs: status -w. Where it is stuck, status says what to do.

Exit codes: 0 all is well, 1 findings or a failure, 2 the command could not be
carried out, 3 timed out, 4 nothing moves before a person has acted. Data is on stdout,
progress on stderr; colour is only on a terminal, and not with NO_COLOR.`,
		Example: `  kubectl phasegate plan
  kubectl phasegate status -w`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl phasegate"},
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	cmd.SetUsageTemplate(usageTemplate)
	add := func(id, title string, commands ...*cobra.Command) {
		cmd.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		cmd.AddCommand(commands...)
	}
	add("look", "Look, and change nothing:",
		checkCommand(s), planCommand(s), statusCommand(s), conflictsCommand(s), verifyCommand(s), dashboardCommand(s), supportBundleCommand(s))
	add("act", "Act on what is under way:",
		approveCommand(s), retryCommand(s), restartCommand(s), abortCommand(s), cleanupCommand(s))
	add("glass", "Break glass, when no manager does it:",
		lockCommand(s), unlockCommand(s))
	add("machines", "Machine files, without a cluster:",
		lintCommand(s), graphCommand(s), explainCommand(s), diffCommand(s), simulateCommand(s), scaffoldCommand(s), schemaCommand(s), actionsCommand(s))
	cmd.AddCommand(versionCommand(s))
	return cmd
}
