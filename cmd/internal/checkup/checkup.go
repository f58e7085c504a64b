// Package checkup is all that can be asked of a cluster before there is anything to
// run on it, or when something does not: the checks of the controllers that are to
// run, in groups. It wires; what is asked is next to those who need it.
package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	toolhivev1beta1 "github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/mcpserver"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

// The controllers that there are, as --controllers names them.
const (
	DatastoreMigration = "datastoremigration"
	MCPServer          = "mcpserver"
	Custom             = "custom"
)

// Controllers are all of them.
var Controllers = []string{DatastoreMigration, MCPServer, Custom}

// Options say what is asked about.
type Options struct {
	// Config reaches the cluster, as the account that is asked about.
	Config *rest.Config
	// Controllers are those that are to run.
	Controllers []string
	// CalicoNamespace is where Calico's components run.
	CalicoNamespace string
	// StoreQuota is how many bytes etcd may have; 0: etcd's default.
	StoreQuota int64
	// Proxy is what the proxies of MCP servers run; empty: mcpserver.Phasegate.
	Proxy mcpserver.Flavour
	Files Files
	// Process is what the manager itself needs, whichever controllers it runs.
	Process []rbac.Need
	// Installing asks whether the chart can be installed: there are no CRDs yet, and
	// the account must have the rights that it is to grant.
	Installing bool
	// Namespace of the release; it matters for Installing only.
	Namespace string
}

// Run asks everything. The error is about a cluster that cannot be reached at all.
func Run(ctx context.Context, o Options) (check.Report, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.QPS = -1 // hundreds of small questions; the API server has its own limits
	api, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the discovery client: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: datastoremigration.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	groups, err := o.groups(c, api)
	if err != nil {
		return nil, err
	}
	return check.Make(ctx, groups), nil
}

func (o *Options) groups(c client.Client, api discovery.DiscoveryInterface) ([]check.Group, error) {
	crds, err := o.crds()
	if err != nil {
		return nil, err
	}
	groups := []check.Group{{Title: "cluster", Checks: []check.Check{check.KubernetesVersion(api), o.Files.check(o.Controllers), check.CRDs(c, crds, installCRDs, o.Installing)}}}
	settings := datastoremigration.Settings{Registry: o.Files.Registry, CalicoNamespace: o.CalicoNamespace, Discovery: api,
		Config: o.Config, Elsewhere: len(o.Process) == 0, StoreQuota: o.StoreQuota}
	if o.Installing {
		groups = append(groups, check.Group{Title: "installation", Checks: []check.Check{check.Rights(c, installing(o.Namespace), "ask your administrator to install the chart")}})
	}
	if len(o.Process) > 0 {
		groups = append(groups, check.Group{Title: "manager", Checks: []check.Check{
			check.Rights(c, o.Process, "grant it (Helm: rbac.create; it is in the Role of leader election or in the ClusterRole metrics-auth)")}})
	}
	for _, name := range o.Controllers {
		groups = append(groups, check.Group{Title: name, Checks: o.checksOf(name, c, settings)})
	}
	return groups, nil
}

func (o *Options) checksOf(controller string, c client.Client, settings datastoremigration.Settings) []check.Check {
	machines := slices.DeleteFunc(slices.Clone(o.Files.Machines), func(m *fsm.Machine) bool { return ControllerOf(m.Name()) != controller }) // one, but for Custom
	if controller == DatastoreMigration {
		return datastoremigration.Checks(c, settings, machines[0])
	}
	needs := generic.Program(builtin.Options{}).NeedsOfAny()
	if controller == MCPServer {
		needs = nil
	}
	for _, m := range machines {
		needs = rbac.Union(needs, catalog.Needs(m, settings, rbac.Served(c.RESTMapper())))
		if controller == MCPServer {
			needs = rbac.Union(needs, mcpserver.NeedsOf(o.Proxy, m, rbac.Served(c.RESTMapper())))
		}
	}
	return []check.Check{check.Rights(c, needs, check.GrantRights)}
}

// ControllerOf is the controller that runs a machine.
func ControllerOf(machine string) string {
	switch machine {
	case datastoremigration.MachineName:
		return DatastoreMigration
	case mcpserver.MachineName:
		return MCPServer
	}
	return Custom
}

const installCRDs = "helm upgrade with crds.install=auto, or apply what is missing of charts/phasegate/files/crds"

// shown are the fields of a status that every CRD of an object must keep.
var shown = []string{"status.phase", "status.message", "status.conditions"}

// crds are those that the controllers need: of their kinds, and of the states.
func (o *Options) crds() ([]check.WantedCRD, error) {
	all, err := catalog.CRDs()
	if err != nil {
		return nil, err
	}
	peers := map[string]check.WantedCRD{
		migrationv1.CRDName:     {Peer: "Calico", Fields: append([]string{"spec.type", "status.startedAt", "status.completedAt", "status.datastoreLockedAt"}, shown...)},
		toolhivev1beta1.CRDName: {Peer: "ToolHive", Fields: append([]string{"spec.image", "spec.transport"}, shown...)},
	}
	of := map[string]string{migrationv1.CRDName: DatastoreMigration, toolhivev1beta1.CRDName: MCPServer}
	var wanted []check.WantedCRD
	for _, crd := range all {
		if crd.Name != v1alpha1.MachineStateCRD && !slices.Contains(o.Controllers, of[crd.Name]) {
			continue
		}
		want := peers[crd.Name]
		want.CRD = crd
		wanted = append(wanted, want)
	}
	return wanted, nil
}

// installing is what helm install itself does. That nobody can grant what he does
// not have is what the checks of the controllers are for.
func installing(namespace string) []rbac.Need {
	const verbs = "get create patch delete"
	inCluster := rbac.Flatten("helm install",
		rbac.Rule(verbs, "apiextensions.k8s.io", "customresourcedefinitions"),
		rbac.Rule(verbs, "rbac.authorization.k8s.io", "clusterroles"), rbac.Rule(verbs, "rbac.authorization.k8s.io", "clusterrolebindings"))
	inNamespace := rbac.Flatten("helm install",
		rbac.Rule(verbs, "apps", "deployments"), rbac.Rule(verbs, "", "serviceaccounts"), rbac.Rule(verbs, "", "configmaps"),
		rbac.Rule(verbs, "", "services"), rbac.Rule(verbs, "", "secrets"),
		rbac.Rule(verbs, "rbac.authorization.k8s.io", "roles"), rbac.Rule(verbs, "rbac.authorization.k8s.io", "rolebindings"))
	for i := range inNamespace {
		inNamespace[i].Namespace = cmp.Or(namespace, "phasegate-system")
	}
	return append(inCluster, inNamespace...)
}
