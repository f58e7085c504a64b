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
	s = s.printable()
	cmd := &cobra.Command{
		Use:   "kubectl-phasegate",
		Short: "Migrate Calico's datastore, and manage objects that state machines drive",
		Long: `Migrate Calico's datastore, and manage objects that state machines drive. Before a
migration: check, then plan. While it runs: status -w, which also says what to do next.

Exit codes: 0 success, 1 findings or failure, 2 error, 3 timeout, 4 waiting for a person.
Data goes to stdout, progress to stderr. Colour needs a terminal, and NO_COLOR unset.`,
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
	add("look", "Inspect, read-only:",
		checkCommand(s), planCommand(s), statusCommand(s), conflictsCommand(s), verifyCommand(s), dashboardCommand(s), supportBundleCommand(s))
	add("act", "Act on objects:",
		approveCommand(s), retryCommand(s), restartCommand(s), abortCommand(s), cleanupCommand(s))
	add("glass", "Break glass, without a manager:",
		lockCommand(s), unlockCommand(s))
	add("machines", "Machine files, without a cluster:",
		lintCommand(s), graphCommand(s), explainCommand(s), diffCommand(s), simulateCommand(s), scaffoldCommand(s), schemaCommand(s), actionsCommand(s))
	cmd.AddCommand(versionCommand(s))
	return cmd
}
