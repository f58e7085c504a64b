package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/preview"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/lint"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

func planCommand(s streams) *cobra.Command {
	o := lookOptions{orNone: true}
	cmd := &cobra.Command{
		Use:   "plan [NAME]",
		Short: "Show what a migration would copy and reject, and how long v1 would be locked",
		Long: `Show what a migration would do, before it exists or before it locks anything: copies per
kind, objects that v3 would reject and why, conflicts, objects only in v3, objects outside
Calico that depend on Calico's, what blocks the start, and how long v1 would be locked.
Runs the migration's own code as you (--as: as the manager's account). Changes nothing.

Every v1 object is read once, and validated against the v3 CRDs. Webhooks and admission
policies are asked by dry runs, if v3 is reachable: while Calico's API server serves v3,
only after a migration copies ahead.

Exit codes: 0 nothing blocks the migration, 1 something does (×), 2 error.`,
		Example: `  kubectl phasegate plan
  kubectl phasegate plan to-v3 -o wide
  kubectl phasegate plan --as system:serviceaccount:phasegate-system:phasegate-datastoremigration
  kubectl phasegate plan -o jsonpath='{range .rejected[*]}{.kind} {.name}: {.message}{"\n"}{end}'`,
		Args: cobra.MaximumNArgs(1),
	}
	at := clusterFlags(cmd)
	out := outputFlags(cmd, "table", "wide")
	cmd.ValidArgsFunction = completeMigrations(at)
	flags := cmd.Flags()
	flags.StringVar(&o.calicoNamespace, "calico-namespace", "calico-system", "namespace of calico-node, calico-typha and calico-kube-controllers")
	o.storeQuota = storeQuotaFlag(flags)
	flags.StringVar(&o.kindsFile, "kinds-file", "", "kind registry file, as for the manager")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		o.args = args
		l, err := newLook(cmd.Context(), s, at, o)
		if err != nil {
			return err
		}
		say(s.err, "Reading every object of v1...")
		plan, err := l.plan(cmd.Context())
		if err != nil {
			return err
		}
		err = display(s.out, out, shown[*preview.Plan]{kind: "Plan", of: migrationKind, name: l.dm.Name, value: plan, text: (*preview.Plan).Text})
		if err != nil || plan.Ready() {
			return err
		}
		return errFindings
	}
	return cmd
}

// storeQuotaFlag is the manager's flag of that name.
func storeQuotaFlag(flags *pflag.FlagSet) *resource.QuantityValue {
	quota := &resource.QuantityValue{}
	flags.Var(quota, "store-quota", "etcd's --quota-backend-bytes, such as 8Gi; default: that of etcd, 2Gi")
	return quota
}

type lookOptions struct {
	args                       []string
	kindsFile, calicoNamespace string
	// storeQuota is nil for who asks for nothing that depends on it.
	storeQuota *resource.QuantityValue
	// orNone also looks where there is no migration yet.
	orNone bool
}

type look struct {
	*datastoremigration.Inspector
	registry *resources.Registry
	dm       *migration
}

func newLook(ctx context.Context, s streams, at *cluster, o lookOptions) (*look, error) {
	registry, err := lint.LoadRegistry(o.kindsFile)
	if err != nil {
		return nil, err
	}
	_, dm, machine, err := at.drivenMigration(ctx, s, nil, o.args)
	if o.orNone && errors.Is(err, errNothing) {
		dm = &migration{}
		machine, err = chooseMachine(s, datastoremigration.MachineName)
	}
	if err != nil {
		return nil, err
	}
	cfg, err := at.rest()
	if err != nil {
		return nil, err
	}
	settings := datastoremigration.Settings{Registry: registry, CalicoNamespace: o.calicoNamespace}
	if o.storeQuota != nil {
		settings.StoreQuota = o.storeQuota.Value()
	}
	l, err := datastoremigration.Look(cfg, settings, machine, dm)
	return &look{l, registry, dm}, err
}

func (l *look) plan(ctx context.Context) (*preview.Plan, error) {
	plan := &preview.Plan{Migration: l.dm.Name}
	copies, err := l.Plan(ctx)
	if err != nil {
		return nil, fmt.Errorf("read v1: %w", err)
	}
	plan.Copies(copies)
	answers := l.Checks(ctx)
	if err := plan.Checked(answers); err != nil && len(plan.Blockers) == 0 { // else it may be for a right that is named in them
		return nil, err
	}
	if plan.Dependents, plan.DependentsUnseen, err = l.Dependents(ctx); err != nil {
		return nil, fmt.Errorf("find what depends on Calico's objects: %w", err)
	}
	var compared copier.Comparison
	if plan.Conflicts, compared, err = l.conflicts(ctx, false); err != nil {
		return nil, err
	}
	plan.Compared(compared)
	delay, err := l.WebhookDelay(ctx)
	if err != nil {
		return nil, err
	}
	plan.Expect(l.dm.Status.CopyAhead, answers, delay)
	return plan, nil
}
