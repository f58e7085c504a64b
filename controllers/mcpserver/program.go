// Package mcpserver is the work behind the MCPServer machine: one file per step.
// What comes after what is written in phases/mcpserver.yaml, not here; how the
// status is stored is the runner's business, how the backend is applied that of
// package backend, which runs in the proxy.
package mcpserver

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/controllers/runner/crdgate"
	"github.com/phasegate/phasegate/fsm"
)

type (
	server  = v1beta1.MCPServer
	scope   = runner.Scope[*server]
	outputs = map[string]any
)

// Settings are what the steps need to know besides the object.
type Settings struct {
	// Proxy is which program the proxies run; empty is Phasegate.
	Proxy Flavour
	// ProxyImage is the image of the proxy's pods.
	ProxyImage string
	// Program is what is known of ToolHive's proxyrunner in ProxyImage.
	Program toolhive.Program
	// ProxyResources are those of the proxy's container, where the spec does not say.
	ProxyResources corev1.ResourceRequirements
	// AnyUser leaves the user and the groups of pods to the cluster: OpenShift gives each namespace its own, and refuses others.
	AnyUser bool
	// OpenShift tells whether that is so, where it is for the cluster to say; nil is no.
	OpenShift func(context.Context) (bool, error)
	// HTTP is where the built-in HTTPRequest may go.
	HTTP builtin.HTTP
	// Manager is that of runner.Driver.
	Manager string
	// Limits are those of the controller.
	Limits runner.Limits
}

// steps is the receiver of every action. It keeps nothing between calls: all
// state is in the cluster.
type steps struct {
	Settings
	// client reads from and writes to the API server, without a cache.
	client client.Client
}

// Program binds the names of the machine file to the work; the built-in actions
// are there for edited files. The client must not read from a cache.
func Program(c client.Client, settings Settings) *runner.Program[*server] {
	s := &steps{Settings: settings, client: c}
	actions := builtin.Actions[*server](builtin.Options{Client: c, HTTP: settings.HTTP})
	maps.Copy(actions, s.actions())
	return &runner.Program[*server]{
		New:       func() *server { return &server{} },
		Actions:   actions,
		Contended: true,
		Decorate:  s.decorate,
		Warned:    []string{v1beta1.ConditionPodTemplateValid, v1beta1.ConditionRestartRequestValid, v1beta1.ConditionSpecEnforced},
		Abridge:   (*server).Abridge,
		Watches:   settings.Proxy.watches(),
		// ToolHive's operator and proxyrunner write this label on what they make, too.
		Made:       v1beta1.LabelName,
		References: settings.Proxy.references(),
		Roles:      roles,
		Rights:     crdgate.Rights(v1beta1.CRDName),
	}
}

// on is a rule for resources of one group.
func on(verbs, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Fields(verbs)}
}

func (s *steps) actions() map[string]runner.Action[*server] {
	return map[string]runner.Action[*server]{
		"CheckSpec": {ActionSpec: fsm.ActionSpec{Doc: "Finds what in the spec cannot be used, is not enforced or is not understood; changes nothing."},
			Do: s.checkSpec, Rights: s.Proxy.configRights()},
		"ResolveRefs": {ActionSpec: fsm.ActionSpec{Doc: "Records the hashes of the configurations that the spec names; changes nothing."},
			Do: s.resolveRefs, Rights: s.Proxy.configRights()},
		"EnsureWorkload": {ActionSpec: fsm.ActionSpec{Doc: "Brings the proxy's objects to what the spec says, and scales the backend of a stopped server to zero. Writes only what differs."},
			Do: s.ensureWorkload, Rights: ensureWorkloadRights(s.Proxy)},
		"ObserveWorkload": {ActionSpec: fsm.ActionSpec{Doc: "Looks how far the pods of the proxy and the backend are; changes nothing.",
			Outputs: map[string]fsm.Type{
				"wanted": fsm.TypeInt, "readyReplicas": fsm.TypeInt,
				"current": fsm.TypeBool, "ready": fsm.TypeBool, "failing": fsm.TypeBool, "missing": fsm.TypeBool, "waitingFor": fsm.TypeString}}, Do: s.observeWorkload, Rights: lookRights()},
		"StampPodTemplates": {ActionSpec: fsm.ActionSpec{Doc: "Writes the token of the restart into the pod templates of proxy and backend, which replaces their pods."},
			Do: s.stampPodTemplates, Rights: stampPodTemplatesRights()},
		"DeletePods": {ActionSpec: fsm.ActionSpec{Doc: "Deletes the pods of proxy and backend that do not bear the token of the restart."}, Do: s.deletePods, Rights: deletePodsRights()},
		"DeleteChildren": {ActionSpec: fsm.ActionSpec{Doc: "Deletes what was made for the server, and lists what is still there.",
			Params:  map[string]fsm.Param{"part": {Type: fsm.TypeString, Required: true, Doc: "proxy, backend or rest"}},
			Outputs: map[string]fsm.Type{"remaining": fsm.TypeStrings}}, Do: s.deleteChildren, Rights: deleteChildrenRights()},
	}
}
