package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/controllers/check"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

type usageError struct{ error }

// exitCode tells why the program ends. A report of checks has said it already.
func exitCode(err error) int {
	if !errors.Is(err, check.ErrFailed) {
		fmt.Fprintln(os.Stderr, "manager:", err)
	}
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

func checkCommand(o *options) *cobra.Command {
	format := check.Table
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether the controllers can work",
		Long: `Check whether the controllers can work: cluster version, CRDs, machine files, permissions
of this account, and what a migration requires before it locks anything; also what
--leader-elect and --metrics-bind-address need. Pass the manager's flags. Changes nothing.

Each check has an id, and a page with the fix.
Exit codes: 0 no failure, perhaps warnings (‼); 1 a check failed (×); 2 usage.`,
		Example: `  kubectl -n phasegate-system exec deploy/phasegate-datastoremigration -- /manager check --controllers datastoremigration
  manager check --kubeconfig .cluster/kubeconfig -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, err := range []error{check.KnownFormat(format), o.validate()} {
				if err != nil {
					return usageError{err}
				}
			}
			cfg, err := restConfig(o.kubeconfig)
			if err != nil {
				return usageError{err}
			}
			files, err := checkup.Load(o.phasesDir, o.kindsFile)
			if err != nil {
				return err
			}
			report, err := checkup.Run(cmd.Context(), checkup.Options{
				Config: cfg, Controllers: o.controllers, CalicoNamespace: o.calicoNamespace, StoreQuota: o.storeQuota.Value(), Files: files, Proxy: o.flavour(),
				Process: append(o.leader.needs(), o.metrics.needs()...),
			})
			if err != nil {
				return err
			}
			return report.Write(cmd.OutOrStdout(), format)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.Flags().StringVarP(&format, "output", "o", format, "table or json")
	return cmd
}
