package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
)

var theirs = Settings{Proxy: ToolHive, ProxyImage: "example.org/thv:1", Program: programOf("thv:v0.63.0")}

func programOf(image string) toolhive.Program {
	program, _ := toolhive.ProgramOf(image, "") // nothing is said, so that there is no error
	return program
}

// doTheirs is do for a manager whose proxies are ToolHive's.
func doTheirs(ctx context.Context, c client.Client, srv *server, action string) (outputs, error) {
	return doWith(ctx, &steps{Settings: theirs, client: c}, srv, action)
}

func text(value string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(value)} }

// much is a spec that asks for all that needs no other object.
func much(s *v1beta1.MCPServerSpec) {
	s.Audit = text(`{"enabled":true}`)
	s.AuthzConfig = text(`{"type":"inline","inline":{"policies":["permit(principal, action, resource);"]}}`)
	s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:6379", PasswordRef: &v1beta1.SecretKeyRef{Name: "pw", Key: "k"}}
}

// all is a spec that asks for all that one of the proxies may not give.
func all(s *v1beta1.MCPServerSpec) {
	ref := text(`{"name":"a"}`)
	s.OIDCConfigRef, s.OIDCConfig, s.AuthServerRef, s.AuthzConfigRef, s.AuthzConfig, s.WebhookConfigRef = ref, ref, ref, ref, ref, ref
	s.ExternalAuthConfigRef, s.ToolConfigRef = &v1beta1.LocalRef{Name: "a"}, &v1beta1.LocalRef{Name: "a"}
	s.RateLimiting, s.ToolsFilter, s.TelemetryConfigRef, s.Audit = ref, text(`["a"]`), ref, text(`{"enabled":true}`)
	s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:1"}
}

// What is enforced is refused no more, under this flavour alone.
func TestWhatEachFlavourRefuses(t *testing.T) {
	ours := [2][]string{{"oidcConfigRef", "oidcConfig", "authServerRef", "authzConfigRef", "authzConfig", "externalAuthConfigRef", "webhookConfigRef",
		"rateLimiting", "toolConfigRef", "tools", "audit"}, {"telemetryConfigRef", "sessionStorage"}}
	for flavour, want := range map[Flavour][2][]string{"": ours, Phasegate: ours, ToolHive: {{"oidcConfig", "tools"}, nil}} {
		srv := fetch(all)
		if diff := cmp.Diff(want, [2][]string{protection(flavour, srv), extras(flavour, srv)}); diff != "" {
			t.Errorf("%q: protection and extras that it does not give (-want +got):\n%s", flavour, diff)
		}
	}
	for _, field := range toolhive.Enforced {
		if field == "" || strings.Contains(field, ".") {
			t.Errorf("%q is no field of a spec", field)
		}
	}
}

// TestTheirProxy holds what is different about the pods: the file says what the spec does,
// and a secret is in no object.
func TestTheirProxy(t *testing.T) {
	w := newWorld(t, httpServer)
	w.edit(w.srv, `{"spec":{"audit":{"enabled":true},"sessionStorage":{"provider":"redis","address":"r:6379","passwordRef":{"name":"pw","key":"k"}},
		"resourceOverrides":{"proxyDeployment":{"env":[{"name":"THV_SESSION_REDIS_PASSWORD","value":"stolen"}]}}}}`)
	if _, err := doTheirs(t.Context(), w.client, w.srv, "EnsureWorkload"); err != nil {
		t.Fatal(err)
	}
	d := w.deployment()
	c := d.Spec.Template.Spec.Containers[0]
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "THV_SESSION_REDIS_PASSWORD" })
	if c.Image != "example.org/thv:1" || i < 0 || c.Env[i].ValueFrom == nil || c.Env[i].Value != "" {
		t.Errorf("image %s, variables %v: want theirs, and the password of the Secret whatever else is set", c.Image, c.Env)
	}
	var file map[string]any
	if err := json.Unmarshal([]byte(get(w, &corev1.ConfigMap{}, "fetch-runconfig").Data[v1beta1.RunConfigFile]), &file); err != nil {
		t.Fatal(err)
	}
	if file["owner"] != nil || file["audit_config"] == nil || file["mcpserver_generation"] != float64(w.srv.Generation) {
		t.Errorf("file: %v", file)
	}
	before := d.Spec.Template
	w.edit(w.srv, `{"spec":{"backendReplicas":3}}`)
	if _, err := doTheirs(t.Context(), w.client, w.srv, "EnsureWorkload"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, w.deployment().Spec.Template); diff != "" {
		t.Errorf("the number of backend pods needs no other proxy (-before +after):\n%s", diff)
	}
}

// The program asks for the pods of its backend before it serves anybody.
func TestTheirProxyListsPods(t *testing.T) {
	role := role(ToolHive, fetch(nil))
	if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") }) {
		t.Errorf("rules %v: it does not start where it may not list pods", role.Rules)
	}
}

// theirSet is a StatefulSet as their proxyrunner makes it, or as ours does.
func theirSet(ctx context.Context, c client.Client, srv *server, serviceName string, change func(*appsv1.StatefulSet)) error {
	labels := map[string]string{"app": srv.Name, v1beta1.LabelName: srv.Name, "toolhive": "true"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: srv.Namespace, Name: srv.Name, Labels: labels}}
	set.Spec = appsv1.StatefulSetSpec{ServiceName: serviceName, Selector: &metav1.LabelSelector{MatchLabels: v1beta1.BackendSelector(srv.Name)},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mcp", Image: "a"}}}}}
	if change != nil {
		change(set)
	}
	return c.Create(ctx, set)
}

// isTaken tells whether a step found an object of somebody else under a name of the server.
func isTaken(err error) bool {
	reason, _ := terminal(err)
	return reason == "NameTaken"
}

func TestMakeWay(t *testing.T) {
	owned := func(by string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: by, UID: "u-9", Controller: new(true)}}
		}
	}
	for name, c := range map[string]struct {
		why     string
		service string
		change  func(*appsv1.StatefulSet)
		// goes: it is asked to go; owner is the kind of its controller then; taken: it keeps the name from the server.
		goes  bool
		owner string
		taken bool
	}{
		"theirs":        {"it goes with the server, and wakes it", "fetch", nil, false, "MCPServer", false},
		"ours":          {"theirs would change what cannot be changed, and never start", "mcp-fetch-headless", nil, true, "", false},
		"somebody's":    {"what is not ours is left alone", "mcp-fetch-headless", owned("other"), false, "ConfigMap", true},
		"of no label":   {"a name proves nothing", "fetch", func(s *appsv1.StatefulSet) { delete(s.Labels, v1beta1.LabelName) }, false, "", true},
		"of a stranger": {"the same, of another shape", "x", func(s *appsv1.StatefulSet) { delete(s.Labels, v1beta1.LabelName) }, false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, httpServer)
			if err := theirSet(t.Context(), w.client, w.srv, c.service, c.change); err != nil {
				t.Fatal(err)
			}
			ensure := func() {
				t.Helper()
				_, err := doTheirs(t.Context(), w.client, w.srv, "EnsureWorkload")
				if taken := isTaken(err); taken != c.taken || err != nil && !taken {
					t.Fatalf("error = %v, want that the name is taken: %v", err, c.taken)
				}
			}
			ensure()
			set := get(w, &appsv1.StatefulSet{}, "fetch")
			owner := ""
			if ref := metav1.GetControllerOf(set); ref != nil {
				owner = ref.Kind
			}
			if goes := set.DeletionTimestamp != nil; goes != c.goes || owner != c.owner {
				t.Errorf("%s: goes = %v, want %v; owner %q, want %q", c.why, goes, c.goes, owner, c.owner)
			}
			version := set.ResourceVersion
			ensure()
			if again := get(w, &appsv1.StatefulSet{}, "fetch").ResourceVersion; again != version && !c.goes {
				t.Errorf("a second look wrote: resourceVersion %s, was %s", again, version)
			}
		})
	}
}

// Our proxy's Services belong to the MCPServer, theirs to the StatefulSet: an object has
// one owner that controls it.
func TestOurServicesMakeWay(t *testing.T) {
	w := newWorld(t, httpServer)
	for _, name := range []string{"mcp-fetch", "mcp-fetch-headless"} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.srv.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{ownerReference(w.srv)}}}
		if svc.Spec.Ports, svc.Spec.Selector = []corev1.ServicePort{{Port: 8080}}, v1beta1.BackendSelector(w.srv.Name); name == "mcp-fetch-headless" {
			svc.Spec.ClusterIP = corev1.ClusterIPNone
		}
		if err := w.client.Create(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := doTheirs(t.Context(), w.client, w.srv, "EnsureWorkload"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mcp-fetch", "mcp-fetch-headless"} {
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.srv.Namespace, Name: name}, &corev1.Service{})
		if !apierrs.IsNotFound(err) {
			t.Errorf("Service %s: %v, want that it is gone", name, err)
		}
	}
}

// TestTheirRefs is about references that the proxy is made from: one that leads nowhere,
// or to what cannot be said, stops the server before anything is made.
func TestTheirRefs(t *testing.T) {
	inNamespace := func(obj client.Object) client.Object { obj.SetNamespace("tools"); return obj }
	bundle := func(data map[string]string) client.Object {
		return inNamespace(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Data: data})
	}
	oidc := func(s *server) { s.Spec.OIDCConfigRef = text(`{"name":"idp","audience":"a"}`) }
	idp := config("MCPOIDCConfig", "idp", map[string]any{"type": "inline", "inline": map[string]any{"issuer": "https://idp"}})
	withCA := config("MCPOIDCConfig", "idp", map[string]any{"type": "inline", "inline": map[string]any{"issuer": "https://idp",
		"caBundleRef": map[string]any{"configMapRef": map[string]any{"name": "ca"}}}})
	for name, c := range map[string]struct {
		why     string
		change  func(*server)
		objects []client.Object
		want    []seen
		// reason and says are of the error; empty for none.
		reason, says string
	}{
		"there": {why: "the hash tells one content from another", change: oidc, objects: []client.Object{idp},
			want: []seen{{"OIDCConfigRefValidated", "True", "OIDCConfigRefValid", "MCPOIDCConfig idp has hash c59bd5d6ab3e330e"}}},
		"not there": {why: "nobody would be asked who he is", change: oidc, reason: "OIDCConfigRefNotFound", says: "MCPOIDCConfig idp is not in namespace tools",
			want: []seen{{"OIDCConfigRefValidated", "False", "OIDCConfigRefNotFound", "MCPOIDCConfig idp is not in namespace tools: create it, or remove the reference"}}},
		"says more": {why: "what is not known here is not enforced", change: oidc, reason: "OIDCConfigRefNotValid", says: `unknown field "audiences"`,
			objects: []client.Object{config("MCPOIDCConfig", "idp", map[string]any{"type": "inline", "audiences": []any{"x"}})},
			want: []seen{{"OIDCConfigRefValidated", "False", "OIDCConfigRefNotValid",
				`spec.oidcConfigRef: MCPOIDCConfig idp says what is not understood here, and would not be enforced: unknown field "audiences"`}}},
		"certificate": {why: "told, since no pod would start without", change: oidc, objects: []client.Object{withCA, bundle(map[string]string{"ca.crt": "x"})},
			want: []seen{{"OIDCConfigRefValidated", "True", "OIDCConfigRefValid", "MCPOIDCConfig idp has hash 490ed919bb0cbb96"},
				{"CABundleRefValidated", "True", "CABundleRefValid", "the certificates of authorities are there"}}},
		"no certificate": {why: "ToolHive's operator calls such a server Ready", change: oidc, objects: []client.Object{withCA}, reason: "CABundleRefNotFound", says: "ConfigMap ca",
			want: []seen{{"OIDCConfigRefValidated", "True", "OIDCConfigRefValid", "MCPOIDCConfig idp has hash 490ed919bb0cbb96"},
				{"CABundleRefValidated", "False", "CABundleRefNotFound", "ConfigMap ca, which has the certificate of an authority, is not in namespace tools: create it"}}},
		"no key of it": {why: "the same", change: oidc, objects: []client.Object{withCA, bundle(nil)}, reason: "CABundleRefInvalid", says: "no certificate under ca.crt",
			want: []seen{{"OIDCConfigRefValidated", "True", "OIDCConfigRefValid", "MCPOIDCConfig idp has hash 490ed919bb0cbb96"},
				{"CABundleRefValidated", "False", "CABundleRefInvalid", "ConfigMap ca has no certificate under ca.crt: add it"}}},
		"header": {why: "told, since the proxyrunner does not send it, and no reason not to run", change: func(s *server) { s.Spec.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} },
			objects: []client.Object{config("MCPExternalAuthConfig", "auth", map[string]any{"type": "headerInjection"})},
			want: []seen{{"ExternalAuthConfigValidated", "True", "ExternalAuthConfigValid", "MCPExternalAuthConfig auth has hash d73a4568da1ca474"},
				{"SpecEnforced", "False", "CredentialNotSent", "without effect on this proxy: spec.externalAuthConfigRef: MCPExternalAuthConfig auth of type headerInjection is not sent to the server, since the proxyrunner sends it to servers elsewhere only: give it to the server with spec.secrets, or remove the reference"}}},
		"invalid": {why: "their controller has looked at it, and nobody else could", change: oidc, reason: "OIDCConfigRefNotValid", says: "no such issuer",
			objects: []client.Object{withStatus(idp, 2, 2, map[string]any{"conditions": []any{map[string]any{"type": "Valid", "status": "False", "reason": "ConfigInvalid", "message": "no such issuer"}}})},
			want:    []seen{{"OIDCConfigRefValidated", "False", "OIDCConfigRefNotValid", "MCPOIDCConfig idp is not valid, as its status says: no such issuer"}}},
		"no policies": {why: "no condition of ToolHive tells of them", change: func(s *server) {
			s.Spec.AuthzConfig = text(`{"type":"configMap","configMap":{"name":"p"}}`)
		}, reason: "AuthzConfigMapNotFound", says: "ConfigMap p"},
		"limits": {why: "nobody knows the users", change: func(s *server) {
			s.Spec.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:1"}
			s.Spec.RateLimiting = text(`{"perUser":{"maxTokens":1,"refillPeriod":"1s"}}`)
		}, reason: "PerUserRequiresAuth", says: "spec.oidcConfigRef"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := described("Ready", metav1.ConditionTrue, c.change, func(s *server) { s.Status.Conditions = nil })
			world := worldOf(srv, nil, c.objects...)
			_, err := doTheirs(t.Context(), world, srv, "ResolveRefs")
			if reason, says := terminal(err); reason != c.reason || !strings.Contains(says, c.says) {
				t.Errorf("%s: %q: %v, want %q that says %q", c.why, reason, err, c.reason, c.says)
			}
			made, err := (&steps{Settings: theirs, client: world}).toolHive(t.Context(), srv)
			if err != nil {
				t.Fatal(err)
			}
			now := srv.DeepCopy()
			made.tell(now)
			if diff := cmp.Diff(c.want, seenOf(now)); diff != "" {
				t.Errorf("%s: conditions (-want +got):\n%s", c.why, diff)
			}
			writes := 0
			if _, err := doTheirs(t.Context(), countWrites(world, &writes), srv, "EnsureWorkload"); c.reason != "" && (err == nil || writes > 0) {
				t.Errorf("%s: EnsureWorkload: %v, and %d objects are made all the same", c.why, err, writes)
			}
		})
	}
}

// terminal is the reason of an error that is one, and its message.
func terminal(err error) (reason, says string) {
	var t *fsm.TerminalError
	switch {
	case errors.As(err, &t):
		return t.Reason, err.Error()
	case err != nil:
		return "not terminal", err.Error()
	}
	return "", ""
}

// A condition of ToolHive stays while it tells of what the spec has, and goes with it; with
// the other flavour nobody would take it away.
func TestWhoseConditionsStay(t *testing.T) {
	const kind = "OIDCConfigRefValidated"
	for name, c := range map[string]struct {
		proxy Flavour
		named bool
		want  bool
	}{"theirs, named": {ToolHive, true, true}, "theirs, named no more": {ToolHive, false, false}, "ours": {Phasegate, true, false}} {
		srv := described("Ready", metav1.ConditionTrue)
		if c.named {
			srv.Spec.OIDCConfigRef = text(`{"name":"idp"}`)
		}
		setCondition(srv, kind, &metav1.Condition{Status: metav1.ConditionTrue, Reason: "OIDCConfigRefValid"})
		Settings{Proxy: c.proxy}.decorate(shippedMachine(t), srv)
		if got := slices.ContainsFunc(srv.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind }); got != c.want {
			t.Errorf("%s: the condition stays = %v, want %v", name, got, c.want)
		}
	}
}

// Nothing of ToolHive's configurations is read, or asked for, with our own proxy.
func TestRightsOfFlavours(t *testing.T) {
	machine := shippedMachine(t)
	ours, all := NeedsOf(Phasegate, machine, rbac.Guess), NeedsOf(ToolHive, machine, rbac.Guess)
	var more []string
	for _, n := range all {
		if !slices.ContainsFunc(ours, func(o rbac.Need) bool { return o.String() == n.String() }) {
			more = append(more, n.Verb+" "+n.Resource)
		}
	}
	want := []string{"get pods", "watch pods"} // which show no more than list
	for _, kind := range []string{"mcpauthzconfigs", "mcpoidcconfigs", "mcptelemetryconfigs", "mcpwebhookconfigs"} {
		want = append(want, "get "+kind, "list "+kind, "watch "+kind)
	}
	slices.Sort(more)
	slices.Sort(want)
	if diff := cmp.Diff(want, more); diff != "" {
		t.Errorf("rights that only ToolHive's proxies need (-want +got):\n%s", diff)
	}
}
