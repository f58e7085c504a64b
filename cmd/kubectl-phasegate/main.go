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
		Short: "Check, draw and explain machines, and speak to the objects they drive",
		Long: `Check, draw and explain machine files (phases/*.yaml), offline; and speak to the
objects that machines drive.

Exit codes: 0 all is well, 1 findings or a failure, 2 the command could not be
carried out, 3 timed out, 4 nothing moves before a person has acted.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl phasegate"},
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetIn(s.in)
	cmd.SetOut(s.out)
	cmd.SetErr(s.err)
	cmd.SetUsageTemplate(usageTemplate)
	cmd.AddCommand(
		checkCommand(s),
		dashboardCommand(s),
		planCommand(s),
		statusCommand(s),
		conflictsCommand(s),
		verifyCommand(s),
		simulateCommand(s),
		versionCommand(s),
		graphCommand(s),
		explainCommand(s),
		diffCommand(s),
		approveCommand(s),
		retryCommand(s),
		restartCommand(s),
		schemaCommand(s),
		lintCommand(s),
		actionsCommand(s),
		abortCommand(s),
		cleanupCommand(s),
		lockCommand(s),
		unlockCommand(s),
		supportBundleCommand(s),
	)
	return cmd
}
