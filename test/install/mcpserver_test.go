package install

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/support/harness"
)

// mcpServer: a server comes, is restarted, and goes.
func mcpServer(t *testing.T, w *world) {
	wait := func(args ...string) {
		w.kubectl(t, append([]string{"wait", "-n", "tools", "--timeout=3m"}, args...)...)
	}
	w.kubectl(t, "apply", "-f", "testdata/mcpserver.yaml")
	wait("mcpserver", "fetch", "search", "--for=condition=Ready")
	w.handedOn[serving] = w.rightsOfProxies(t)
	for _, restart := range []struct{ strategy, token string }{
		{v1beta1.StrategyRolling, "2026-05-01T10:00:00Z"}, {v1beta1.StrategyImmediate, "2026-05-02T10:00:00Z"},
	} {
		release := func() {}
		if restart.strategy == v1beta1.StrategyImmediate {
			release = holdRollout(t, w, restart.token)
		}
		w.kubectl(t, "annotate", "-n", "tools", "mcpserver", "fetch", "search", "--overwrite",
			v1beta1.AnnotationRestartedAt+"="+restart.token, v1beta1.AnnotationRestartStrategy+"="+restart.strategy)
		release()
		wait("mcpserver", "fetch", "search", "--for=jsonpath={.metadata.annotations."+jsonPathKey(v1beta1.AnnotationLastProcessedRestart)+"}="+restart.token)
		wait("mcpserver", "fetch", "search", "--for=jsonpath={.status.machine.phase}=Ready")
	}
	w.kubectl(t, "delete", "-n", "tools", "mcpserver", "--all", "--timeout=3m")
}

// holdRollout keeps the pod that a StatefulSet replaces first from going, so that an immediate restart finds the
// others to delete however slow it is. Release waits until it has deleted them.
func holdRollout(t *testing.T, w *world, token string) (release func()) {
	t.Helper()
	w.kubectl(t, "patch", "-n", "tools", "pod", "search-11", "--type=merge", `-p={"metadata":{"finalizers":["example.com/slow"]}}`)
	return func() {
		t.Helper()
		harness.Eventually(t, "an immediate restart to replace search-0", func() error {
			pod := &corev1.Pod{}
			if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "tools", Name: "search-0"}, pod); err != nil {
				return err
			}
			if got := pod.Annotations[v1beta1.AnnotationRestartedAt]; got != token {
				return fmt.Errorf("it bears %q", got)
			}
			return nil
		})
		w.kubectl(t, "patch", "-n", "tools", "pod", "search-11", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	}
}

// jsonPathKey is a key with dots, as a JSONPath has it.
func jsonPathKey(key string) string {
	return strings.ReplaceAll(key, ".", `\.`)
}

// rightsOfProxies are what the manager has handed on. The API server lets nobody grant what he has not, so
// that the manager needs them, though it never uses them.
func (w *world) rightsOfProxies(t *testing.T) []rbac.Need {
	t.Helper()
	roles := &rbacv1.RoleList{}
	if err := w.Client.List(t.Context(), roles, client.InNamespace("tools")); err != nil {
		t.Fatal(err)
	}
	var all []rbac.Need
	for _, role := range roles.Items {
		all = append(all, rbac.Flatten("Role "+role.Name, role.Rules...)...)
	}
	return all
}
