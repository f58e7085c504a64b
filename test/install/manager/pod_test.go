package manager

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/phasegate/phasegate/test/support/harness"
)

// A refused machine file is told on the manager's Pod, in the words of the newest
// finding, where `kubectl describe pod` looks for it: among the Events with its UID.
func TestRefusedFileIsToldOnThePod(t *testing.T) {
	c := shared.Cluster(t)
	pod := &corev1.Pod{}
	pod.GenerateName, pod.Namespace = "manager-", "default"
	pod.Spec.ServiceAccountName, pod.Spec.Containers = account, []corev1.Container{{Name: "manager", Image: "manager"}}
	if err := c.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir, kubeconfig := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	if err := c.WriteKubeconfig(t.Context(), kubeconfig, types.NamespacedName{Namespace: "default", Name: account}, bound); err != nil {
		t.Fatal(err)
	}
	m := start(t, kubeconfig, []string{"POD_NAME=" + pod.Name, "POD_NAMESPACE=" + pod.Namespace}, "--phases-dir", dir)
	m.awaitProbe(t, "/readyz?verbose", 200, `\[\+\]machines ok: datastore-migration, mcpserver in force`)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range []string{"colour: red", "shape: round"} {
		if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(mistake), 0o600); err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`Warning +MachineRefused .*mine\.yaml:1:1: PG000: .*"` + mistake[:5])
		harness.Eventually(t, "kubectl describe pod to tell of "+mistake, func() error {
			said, err := exec.Command(filepath.Join(root, "bin", "tools", "kubectl"), "--kubeconfig", kubeconfig, "describe", "pod", pod.Name).CombinedOutput()
			if err != nil || !want.Match(said) {
				return fmt.Errorf("%w, it says:\n%s", err, said)
			}
			return nil
		})
	}
	m.awaitProbe(t, "/readyz?verbose", 200, `\[\+\]machines ok: datastore-migration, mcpserver in force; refused: .*mine\.yaml:1:1`)
}
