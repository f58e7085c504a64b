package mcpserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/backend"
	"github.com/phasegate/phasegate/test/support/harness"
)

// may asks the API server what an account of the server's namespace may do there: "patch apps/statefulsets fetch".
func (w *world) may(account, what string) bool {
	w.Helper()
	words := append(strings.Fields(what), "")
	group, resource, found := strings.Cut(words[1], "/")
	if !found {
		group, resource = "", group
	}
	resource, sub, _ := strings.Cut(resource, ":")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + w.srv.Namespace + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.srv.Namespace, Verb: words[0], Group: group, Resource: resource, Subresource: sub, Name: words[2]},
	}}
	if err := w.client.Create(w.Context(), review); err != nil {
		w.Fatal(err)
	}
	return review.Status.Allowed
}

// await waits until the API server's authorizer has seen what it was told.
func (w *world) await(account, what string, want bool) {
	w.Helper()
	harness.Eventually(w, fmt.Sprintf("that %s may %s is %v", account, what, want), func() error {
		if w.may(account, what) != want {
			return errors.New("not yet")
		}
		return nil
	})
}

// foreignObjects is what somebody else has with names that a server needs.
func foreignObjects() map[string]client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}
	labels := map[string]string{"a": "b"}
	service := corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}
	return map[string]client.Object{
		"patch apps/statefulsets fetch": &appsv1.StatefulSet{ObjectMeta: meta("fetch"), Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}}},
		"patch services mcp-fetch":          &corev1.Service{ObjectMeta: meta("mcp-fetch"), Spec: service},
		"patch services mcp-fetch-headless": &corev1.Service{ObjectMeta: meta("mcp-fetch-headless"), Spec: service},
		"create pods:attach fetch-0":        &corev1.Pod{ObjectMeta: meta("fetch-0"), Spec: pod},
	}
}

// Whoever may create MCPServers gets no rights on what is another's and has a name that a server needs; with either proxy.
func TestNoRightsOnWhatIsOthers(t *testing.T) {
	for _, proxy := range Flavours {
		for what, theirs := range foreignObjects() {
			t.Run(string(proxy)+" "+what, func(t *testing.T) {
				spec := httpServer
				if strings.Contains(what, "attach") {
					spec.Transport = v1beta1.TransportStdio
				}
				w := newWorld(t, spec)
				s := &steps{Settings: Settings{Proxy: proxy, ProxyImage: "example.org/proxy:1"}, client: w.client}
				ensure := func() error {
					_, err := doWith(t.Context(), s, w.srv, "EnsureWorkload")
					return err
				}
				account := v1beta1.ProxyRBACName("fetch")
				theirs.SetNamespace(w.srv.Namespace)
				ofPods := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.srv.Namespace, Name: "default"}}
				if err := errors.Join(w.client.Create(t.Context(), ofPods), w.client.Create(t.Context(), theirs)); err != nil {
					t.Fatal(err)
				}
				taken := func() {
					t.Helper()
					err := ensure()
					if reason, says := terminal(err); reason != "NameTaken" || !strings.Contains(says, theirs.GetName()+" belongs to no owner") {
						t.Errorf("error = %v, want a terminal one that names it", err)
					}
					if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.srv.Namespace, Name: account}, &rbacv1.RoleBinding{}); !apierrs.IsNotFound(err) {
						t.Errorf("the proxy's account has rights: %v", err)
					}
					w.await(account, what, false)
				}
				w.writes = 0
				taken()
				if w.writes > 0 {
					t.Errorf("%d writes before it was asked whose the names are: rights that are taken back were there", w.writes)
				}

				// Once it is gone, the proxy may make its own; the API server needs a moment to notice.
				if err := w.client.Delete(t.Context(), theirs, client.GracePeriodSeconds(0)); err != nil {
					t.Fatal(err)
				}
				if err := ensure(); err != nil {
					t.Fatal(err)
				}
				w.await(account, what, true)

				// It comes while there are rights, before the proxy has made its own.
				theirs.SetResourceVersion("")
				theirs.SetUID("")
				if err := w.client.Create(t.Context(), theirs); err != nil {
					t.Fatal(err)
				}
				taken()
			})
		}
	}
}

// The account of a proxy may change the proxy's server; no other server gets it, however it asks.
func TestTheAccountOfAProxyIsNotBorrowed(t *testing.T) {
	const victim = "victim-proxy-runner"
	for name, c := range map[string]struct {
		why     string
		change  func(*v1beta1.MCPServerSpec)
		refused bool
	}{
		"serviceAccount":            {"it says so", func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = new(victim) }, true},
		"its own proxy's":           {"a server could be changed from within", func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = new("fetch-proxy-runner") }, true},
		"podTemplateSpec":           {"it is the base only", template(`{"spec":{"serviceAccountName":"` + victim + `"}}`), false},
		"podTemplateSpec, by alias": {"the older name of the field", template(`{"spec":{"serviceAccount":"` + victim + `"}}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			spec := httpServer
			c.change(&spec)
			w := newWorld(t, spec)
			_, err := do(t.Context(), w.client, w.srv, "EnsureWorkload")
			if reason, _ := terminal(err); (reason == "InvalidSpec") != c.refused {
				t.Fatalf("error = %v, want that it is refused: %v: %s", err, c.refused, c.why)
			}
			if c.refused {
				if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.srv.Namespace, Name: "fetch"}, &appsv1.Deployment{}); !apierrs.IsNotFound(err) {
					t.Errorf("a Deployment was made (%v)", err)
				}
				return
			}
			patch, err := podPatch(w.srv)
			if err != nil {
				t.Fatal(err)
			}
			run := runConfig(w.srv)
			if _, err := backend.Deploy(t.Context(), w.client, backend.Config{Namespace: w.srv.Namespace, Run: run, Image: "i", PodPatch: []byte(patch)}); err != nil {
				t.Fatal(err)
			}
			pod := get(w, &appsv1.StatefulSet{}, "fetch").Spec.Template.Spec
			if pod.ServiceAccountName != "fetch-sa" || pod.DeprecatedServiceAccount != "fetch-sa" {
				t.Errorf("the server runs as %s (%s), want fetch-sa: %s", pod.ServiceAccountName, pod.DeprecatedServiceAccount, c.why)
			}
		})
	}
}

func template(text string) func(*v1beta1.MCPServerSpec) {
	return func(s *v1beta1.MCPServerSpec) { s.PodTemplateSpec = &runtime.RawExtension{Raw: []byte(text)} }
}

// What the accounts of a server may not do, whatever its spec says.
func TestRightsOfTheAccounts(t *testing.T) {
	spec := httpServer
	spec.Transport = v1beta1.TransportStdio
	w := newWorld(t, spec)
	w.ensure()
	proxy := v1beta1.ProxyRBACName("fetch")
	for _, can := range []string{"patch apps/statefulsets fetch", "create apps/statefulsets", "create services", "patch services mcp-fetch", "create pods:attach fetch-0", "list pods"} {
		w.await(proxy, can, true)
	}
	for _, cannot := range []string{
		"patch apps/statefulsets other", "delete apps/statefulsets fetch", "patch services mcp-other", "patch services fetch", "create pods:attach other-0",
		"get secrets", "get secrets fetch", "list secrets", "get configmaps", "create pods", "create pods:exec fetch-0", "delete pods fetch-0",
		"get apps/deployments fetch", "create apps/deployments", "create serviceaccounts:token fetch-sa", "impersonate serviceaccounts",
		"create rbac.authorization.k8s.io/rolebindings", "patch rbac.authorization.k8s.io/roles " + proxy, "get toolhive.stacklok.dev/mcpservers fetch",
	} {
		if w.may(proxy, cannot) {
			t.Errorf("the proxy may %s", cannot)
		}
	}
	for _, cannot := range []string{"get pods", "list pods", "get secrets", "get configmaps", "get apps/statefulsets fetch", "patch apps/statefulsets fetch", "create services"} {
		if w.may(v1beta1.BackendServiceAccountName("fetch"), cannot) {
			t.Errorf("the server may %s", cannot)
		}
	}
}
