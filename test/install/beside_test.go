package install

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/test/support/harness"
)

// besideToolHive: with toolhiveGuard, ToolHive's operator writes no MCPServer and nothing that one owns, and all else.
func (w *world) besideToolHive(t *testing.T) {
	t.Helper()
	const operator, other = "--as=system:serviceaccount:toolhive-system:toolhive-operator", "--as=system:serviceaccount:toolhive-system:another"
	w.kubectl(t, "create", "clusterrole", "toolhive", "--verb=*", "--resource=mcpservers.toolhive.stacklok.dev,mcpservers.toolhive.stacklok.dev/status,services,configmaps,serviceaccounts,deployments.apps")
	w.kubectl(t, "create", "clusterrolebinding", "toolhive", "--clusterrole=toolhive", "--serviceaccount=toolhive-system:toolhive-operator", "--serviceaccount=toolhive-system:another")
	w.create(t, "{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: weather, namespace: default}, spec: {image: 'example.org/weather:1'}}")
	server := &unstructured.Unstructured{}
	server.SetAPIVersion("toolhive.stacklok.dev/v1beta1")
	server.SetKind("MCPServer")
	if err := w.Client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "weather"}, server); err != nil {
		t.Fatal(err)
	}
	w.ownedBy(t, "weather", metav1.OwnerReference{APIVersion: "toolhive.stacklok.dev/v1alpha1", Kind: "MCPServer", Name: "weather", UID: server.GetUID(), Controller: new(true)})
	w.ownedBy(t, "remote", metav1.OwnerReference{APIVersion: "toolhive.stacklok.dev/v1beta1", Kind: "MCPRemoteProxy", Name: "remote", UID: "1", Controller: new(true)})

	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	another := file("server.yaml", "{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, metadata: {name: another, namespace: default}, spec: {image: x}}")
	owned := file("owned.yaml", fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: mcp-weather-proxy, namespace: default, ownerReferences: [{apiVersion: toolhive.stacklok.dev/v1beta1, kind: MCPServer, name: weather, uid: %s}]}, spec: {ports: [{port: 80}]}}", server.GetUID()))
	label := func(kind, name string) []string { return []string{"label", kind, name, "a=b"} }
	const policy = "ValidatingAdmissionPolicy 'phasegate-toolhive-guard'"
	harness.Eventually(t, "the policy to be loaded", func() error {
		return refused(policy)(w.kubectlSays(t, append(label("mcpserver", "weather"), operator, "--dry-run=server")...))
	})
	for name, c := range map[string]struct {
		why  string
		args []string
		ok   bool
	}{
		"annotation":           {why: "the references' controllers write hashes", args: []string{"annotate", "mcpserver", "weather", "a=b"}},
		"finalizer":            {why: "nobody would remove it", args: []string{"patch", "mcpserver", "weather", "--type=merge", "-p", `{"metadata":{"finalizers":["x.y/z"]}}`}},
		"status":               {why: "phase and conditions are the manager's", args: []string{"patch", "mcpserver", "weather", "--subresource=status", "--type=merge", "-p", `{"status":{"message":"x"}}`}},
		"deletion":             {why: "it has no reason for one", args: []string{"delete", "mcpserver", "weather"}},
		"creation":             {why: "the same", args: []string{"create", "-f", another}},
		"a workload":           {why: "each would revert what the other writes", args: label("deployment", "weather")},
		"its deletion":         {why: "it is made again, and pods are replaced", args: []string{"delete", "deployment", "weather"}},
		"taking it over":       {why: "the owner was a server", args: []string{"patch", "deployment", "weather", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`}},
		"giving it to one":     {why: "the owner is to be a server", args: []string{"create", "-f", owned}},
		"another's workload":   {why: "its other kinds go on", args: label("deployment", "remote"), ok: true},
		"its deletion, too":    {why: "the same", args: []string{"delete", "deployment", "remote"}, ok: true},
		"of nobody":            {why: "the same", args: []string{"create", "configmap", "of-nobody"}, ok: true},
		"by another account":   {why: "the guard is about one", args: append(label("mcpserver", "weather"), other), ok: true},
		"its work, by another": {why: "the same", args: append(label("deployment", "weather"), other), ok: true},
	} {
		t.Run("beside ToolHive, "+name, func(t *testing.T) {
			args := append([]string{operator, "-n", "default", "--dry-run=server"}, c.args...)
			said, err := w.kubectlSays(t, args...)
			switch {
			case c.ok && err != nil:
				t.Errorf("refused: %s: %s", c.why, said)
			case !c.ok:
				if err := refused(policy)(said, err); err != nil {
					t.Errorf("%s: %v", c.why, err)
				}
			}
		})
	}
	w.kubectl(t, "delete", "mcpserver", "weather", "-n", "default")
}

func (w *world) ownedBy(t *testing.T, name string, owner metav1.OwnerReference) {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}}}
	if err := w.Client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}
