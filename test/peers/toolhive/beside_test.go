package toolhive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// operatorAccount is the service account of ToolHive's operator, in namespace default.
const operatorAccount = "toolhive-operator"

// TestOperatorBeside runs ToolHive's operator and our manager on one namespace with the chart's toolhiveGuard: MCPServers
// are the manager's, and what aggregates them, an MCPGroup and a VirtualMCPServer, is the operator's, which reads what the
// manager shows. Nobody waits for the other: servers come and go.
func TestOperatorBeside(t *testing.T) {
	needs(t, envOperator, envCRDs)
	w := newPlane(t)
	t.Cleanup(w.show)
	if err := w.Grant(t.Context(), operatorAccount, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}); err != nil {
		t.Fatal(err)
	}
	w.guard()
	operator := w.startOperatorAs(w.KubeconfigOf(operatorAccount))
	w.startManager("toolhive")
	go w.playProxies(t.Context())
	w.configure("MCPGroup", "tools", map[string]any{})
	w.configure("MCPToolConfig", "few", map[string]any{"toolsFilter": []any{"echo"}})
	for _, name := range []string{"one", "two"} {
		w.configure("MCPServer", name, map[string]any{
			"image": image, "transport": v1beta1.TransportStreamableHTTP, "groupRef": map[string]any{"name": "tools"}, "toolConfigRef": map[string]any{"name": "few"},
		})
	}
	w.configure("VirtualMCPServer", "all", map[string]any{
		"groupRef": map[string]any{"name": "tools"}, "incomingAuth": map[string]any{"type": "anonymous"}, "outgoingAuth": map[string]any{"source": "inline"},
	})
	w.awaitGroup(operator, "one", "two")

	w.awaitCalm()
	for key, obj := range w.ownObjects() {
		if slices.ContainsFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "thv-operator" }) {
			t.Errorf("ToolHive's operator has written %s", key)
		}
	}
	said, err := os.ReadFile(operator.Log)
	if err != nil {
		t.Fatal(err)
	}
	if refusals := bytes.Count(said, []byte("is Phasegate's")); refusals == 0 {
		t.Error("ToolHive's operator was refused nothing: the guard was not asked")
	} else {
		t.Logf("ToolHive's operator was refused %d times", refusals)
	}

	if err := w.Client.Delete(t.Context(), &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	w.awaitGroup(operator, "one")
}

// guard applies that of the chart, as `helm install` with toolhiveGuard does, and waits until the API server heeds it.
func (w *world) guard() {
	w.Helper()
	root, err := harness.Root()
	if err != nil {
		w.Fatal(err)
	}
	helm, err := harness.Binary(filepath.Join("tools", "helm"))
	if err != nil {
		w.Fatal(err)
	}
	text, err := exec.CommandContext(w.Context(), helm, "template", "phasegate", filepath.Join(root, "charts", "phasegate"),
		"--set=toolhiveGuard.enabled=true,toolhiveGuard.serviceAccount.namespace=default,toolhiveGuard.serviceAccount.name="+operatorAccount,
		"--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", "--show-only=templates/toolhiveguard.yaml").Output()
	if err != nil {
		w.Fatalf("helm template: %v", err)
	}
	for _, obj := range decode(w.T, bytes.NewReader(text)) {
		if err := w.Client.Create(w.Context(), obj); err != nil {
			w.Fatal(err)
		}
	}
	config := rest.CopyConfig(w.Config)
	config.Impersonate.UserName = "system:serviceaccount:default:" + operatorAccount
	theirs, err := client.New(config, client.Options{Scheme: w.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	harness.Eventually(w, "the guard to be loaded", func() error {
		srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "probe"}, Spec: v1beta1.MCPServerSpec{Image: image}}
		if err := theirs.Create(w.Context(), srv, client.DryRunAll); !apierrs.IsForbidden(err) {
			return fmt.Errorf("a server made by ToolHive's operator: %w", err)
		}
		return nil
	})
}

// awaitGroup waits until these are the servers of the group, all Ready with a URL, which the VirtualMCPServer is given.
func (w *world) awaitGroup(operator *harness.Process, want ...string) {
	w.Helper()
	harness.Eventually(w, "a group of "+strings.Join(want, " and "), func() error {
		if err := errors.Join(operator.Alive(), w.manager.Alive()); err != nil {
			return err
		}
		group := &unstructured.Unstructured{}
		group.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MCPGroup"))
		config := &corev1.ConfigMap{}
		if err := errors.Join(w.Client.Get(w.Context(), w.key("tools"), group), w.Client.Get(w.Context(), w.key("all-vmcp-config"), config)); err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(group.Object, "status", "phase")
		names, _, _ := unstructured.NestedStringSlice(group.Object, "status", "servers")
		if slices.Sort(names); phase != "Ready" || !slices.Equal(names, want) {
			return fmt.Errorf("the group is %q and has %q", phase, names)
		}
		list := &v1beta1.MCPServerList{}
		if err := w.Client.List(w.Context(), list, client.InNamespace(w.ns)); err != nil {
			return err
		}
		if len(list.Items) != len(want) {
			return fmt.Errorf("there are %d servers", len(list.Items))
		}
		for _, srv := range list.Items {
			if srv.Status.Phase != "Ready" || srv.Status.URL == "" {
				return fmt.Errorf("server %s is %q at %q: %s", srv.Name, srv.Status.Phase, srv.Status.URL, srv.Status.Message)
			}
			if given := fmt.Sprint(config.Data); !strings.Contains(given, srv.Status.URL) {
				return fmt.Errorf("the VirtualMCPServer is not given %s: %s", srv.Status.URL, given)
			}
		}
		return nil
	})
}

// awaitCalm waits until nobody has written a server, or what one owns, for some time.
func (w *world) awaitCalm() {
	w.Helper()
	before, since := map[string]*unstructured.Unstructured{}, time.Now()
	harness.Eventually(w, "servers at rest, and what they own, to be left alone", func() error {
		now := w.ownObjects()
		if diff := cmp.Diff(before, now); diff != "" {
			before, since = now, time.Now()
			return fmt.Errorf("written (-before +after):\n%s", diff)
		}
		if time.Since(since) < calm {
			return errors.New("not left alone for long enough")
		}
		return nil
	})
}

// ownObjects are the servers and what they own.
func (w *world) ownObjects() map[string]*unstructured.Unstructured {
	w.Helper()
	all, err := w.objects()
	if err != nil {
		w.Fatal(err)
	}
	maps.DeleteFunc(all, func(_ string, obj *unstructured.Unstructured) bool {
		return obj.GetKind() != "MCPServer" && !slices.ContainsFunc(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "MCPServer" })
	})
	return all
}
