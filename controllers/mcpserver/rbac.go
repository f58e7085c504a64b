package mcpserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// proxyAccount is whom the proxy acts as. Its pods ask for the token themselves.
func proxyAccount(srv *server) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: objectMeta(srv, v1beta1.ProxyRBACName(srv.Name)), AutomountServiceAccountToken: new(false),
		ImagePullSecrets: pullSecrets(&srv.Spec)}
}

// backendAccount is that of a backend that names none. It may do nothing, so its
// pods get no token, unless spec.podTemplateSpec says so.
func backendAccount(srv *server) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: objectMeta(srv, v1beta1.BackendServiceAccountName(srv.Name)), AutomountServiceAccountToken: new(false),
		ImagePullSecrets: pullSecrets(&srv.Spec)}
}

// pullSecrets are those of the spec. Accounts have them as well: the server's image may come
// from the same registry as the proxy's.
func pullSecrets(s *v1beta1.MCPServerSpec) (secrets []corev1.LocalObjectReference) {
	for _, secret := range proxyOverrides(s).ImagePullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	return secrets
}

// role lets the proxy apply its own backend and Services. Which object a create or a
// list is about cannot be said by name.
func role(proxy Flavour, srv *server) *rbacv1.Role {
	services := []string{v1beta1.BackendServiceName(srv.Name), v1beta1.HeadlessServiceName(srv.Name)}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, ResourceNames: []string{srv.Name}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: services, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create"}},
	}
	if proxy == ToolHive {
		rules[0].Verbs = append(rules[0].Verbs, "watch") // it waits for its backend by a watch
		rules = append(rules, monitorRules(srv)...)
	}
	if transport(&srv.Spec) == v1beta1.TransportStdio {
		attach := attachRules(srv)
		if proxy == ToolHive {
			attach = attach[1:] // monitorRules have it
		}
		rules = append(rules, attach...)
	}
	return &rbacv1.Role{ObjectMeta: objectMeta(srv, v1beta1.ProxyRBACName(srv.Name)), Rules: rules}
}

// monitorRules let ToolHive's proxyrunner look every few seconds whether its backend is
// there: without them it does not start. The Service of the server's name is none that
// anybody makes. Get and watch of pods show no more than list, which it needs; ToolHive's operator grants all three.
func monitorRules(srv *server) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{srv.Name}, Verbs: []string{"get"}},
	}
}

// attachable is how many pods of a stdio server a proxy may attach to: it needs one, and
// takes the next where the first does not run.
const attachable = 16

// attachRules let the proxy of a stdio server find the server's pod and attach to it: by
// SPDY (a create) or WebSocket (a get and, in newer API servers, a create).
func attachRules(srv *server) []rbacv1.PolicyRule {
	var pods []string
	for i := range min(max(ptr.Deref(srv.Spec.BackendReplicas, 1), 1), attachable) {
		pods = append(pods, fmt.Sprintf("%s-%d", srv.Name, i))
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/attach"}, ResourceNames: pods, Verbs: []string{"create", "get"}},
	}
}

func roleBinding(srv *server) *rbacv1.RoleBinding {
	name := v1beta1.ProxyRBACName(srv.Name)
	return &rbacv1.RoleBinding{
		ObjectMeta: objectMeta(srv, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: srv.Namespace}},
	}
}
