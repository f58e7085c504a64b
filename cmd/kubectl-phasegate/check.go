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
		Short: "Ask whether a cluster is fit",
		Long: `Ask whether a cluster is fit for what is to run on it: its version, CRDs, machine
files, rights, and what a migration demands before it locks anything. Nothing is
changed. A migration asks the same in its first step.

It is asked as you. With --as it is asked as the manager's account, which is what
counts for rights. With --pre it is asked before anything is installed: whether
you may install the chart, and have the rights that it is to grant.

The rights for ToolHive's proxies are asked about if the manager runs them: --proxy
says so, or the flags of the Deployment that the chart has made.

crds-installed says whose each CRD is. Those of Calico and ToolHive do as they are;
with --pre, those that are missing are no failure, since the chart brings them.

Each check has an id and a page with what to do.
Exit codes: 0 all is well or there are warnings (‼), 1 a check failed (×), 2 usage.`,
		Example: `  kubectl phasegate check --pre
  kubectl phasegate check --controllers datastoremigration \
    --as system:serviceaccount:phasegate-system:phasegate-datastoremigration`,
		Args: cobra.NoArgs,
	}
	where := clusterFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.Installing, "pre", false, "before the installation")
	f.StringSliceVar(&o.Controllers, "controllers", o.Controllers, "controllers that are to run")
	f.StringVar(&o.CalicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, calico-typha and calico-kube-controllers")
	proxy := f.String("proxy", "", "what the proxies of MCP servers run: phasegate or toolhive; none: what the manager of the chart says, where it can be seen")
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
		fmt.Fprintln(s.err, note)
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
