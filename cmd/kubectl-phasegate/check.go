package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/phasegate/phasegate/cmd/internal/checkup"
	"github.com/phasegate/phasegate/controllers/check"
)

func checkCommand(s streams) *cobra.Command {
	o := checkup.Options{Controllers: []string{checkup.DatastoreMigration, checkup.MCPServer}}
	format, phasesDir, kindsFile := check.Table, "", ""
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Run the preflight checks",
		Long: `Run the preflight checks: cluster version, CRDs, machine files, permissions, and what a
migration requires before it locks anything. Changes nothing. A migration runs the same
checks in its first step.

Checks your permissions, or with --as those of the manager's account, which are decisive.
With --pre: whether you may install the chart and grant its permissions.

Permissions for ToolHive's proxies are checked if --proxy, or else the chart's Deployment,
says that the manager runs them.

crds-installed shows whose each CRD is. The CRDs of Calico and ToolHive suffice. With
--pre, missing CRDs are no failure: the chart installs them.

Each check has an id, and a page with the fix.
Exit codes: 0 no failure, perhaps warnings (‼); 1 a check failed (×); 2 usage.`,
		Example: `  kubectl phasegate check --pre
  kubectl phasegate check --controllers datastoremigration \
    --as system:serviceaccount:phasegate-system:phasegate-datastoremigration`,
		Args: cobra.NoArgs,
	}
	where := clusterFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.Installing, "pre", false, "check before the installation")
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers, "controllers that will run")
	f.StringVar(&o.CalicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, calico-typha and calico-kube-controllers")
	proxy := f.String("proxy", "", "program of the MCP servers' proxies, phasegate or toolhive; default: as the chart's Deployment says")
	quota := storeQuotaFlag(f)
	f.StringVar(&phasesDir, "phases-dir", "", "directory of machine files, as for the manager")
	f.StringVar(&kindsFile, "kinds-file", "", "kind registry file, as for the manager")
	f.StringVarP(&format, "output", "o", format, "table or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := check.KnownFormat(format); err != nil {
			return err
		}
		for _, name := range o.Controllers {
			if !slices.Contains(checkup.Controllers, name) {
				return fmt.Errorf("--controllers: %q is not known: name some of the known controllers: %v", name, checkup.Controllers)
			}
		}
		if o.Config, err = where.rest(); err != nil {
			return err
		}
		o.Namespace, o.StoreQuota = where.only(), quota.Value()
		if o.Files, err = checkup.Load(phasesDir, kindsFile); err != nil {
			return err
		}
		return askCluster(cmd.Context(), s, o, *proxy, format)
	}
	return cmd
}

// askCluster asks, and prints what came of it. Which proxies the rights are for is what is
// said, or what the manager runs.
func askCluster(ctx context.Context, s streams, o checkup.Options, proxy, format string) error {
	note, err := o.SetProxy(ctx, proxy)
	if err != nil {
		return err
	}
	if note != "" {
		say(s.err, "%s", note)
	}
	report, err := checkup.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := report.Write(s.out, format); !errors.Is(err, check.ErrFailed) {
		return err
	}
	return errFindings
}
