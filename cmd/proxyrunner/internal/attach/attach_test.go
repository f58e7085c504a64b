package attach_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/attach"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/container"
	"github.com/phasegate/phasegate/test/support/mcp/kubelet"
)

const server, node = "fetch", "node-of-fetch"

// pod makes a pod that runs and is ready, as the StatefulSet's controller and a
// kubelet would.
func pod(t *testing.T, c client.Client, name string) {
	t.Helper()
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{"app": server},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet", Name: server, UID: types.UID("0"), Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "mcp", Image: "example.org/echo:1", Stdin: true}}},
	}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// ask sends one request over a stream, and returns the answer.
func ask(s io.ReadWriter) (string, error) {
	request := map[string]any{"jsonrpc": "2.0", "id": 7, "method": "ping"}
	line, err := json.Marshal(request)
	if err != nil {
		return "", err
	}
	if _, err := s.Write(append(line, '\n')); err != nil {
		return "", err
	}
	return bufio.NewReader(s).ReadString('\n')
}

func TestAttach(t *testing.T) {
	cluster := harness.ForTest(t, harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	if err := client.IgnoreAlreadyExists(cluster.Client.Create(t.Context(), account)); err != nil {
		t.Fatal(err)
	}
	running := container.Run(t, container.Echo(t))
	kubelet.Serve(t, cluster.Client, node, map[string]*container.Container{"default/fetch-0/mcp": running})
	open := attach.Opener(cluster.Config, "default", server)

	if _, err := open(t.Context()); err == nil || !strings.Contains(err.Error(), "no pod yet") {
		t.Errorf("without a pod: %v, want an error that says so", err)
	}
	pod(t, cluster.Client, "fetch-0")
	t.Run("the stream ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("a stream without an end")
		}
	})
	t.Run("the stream ends with the process", func(t *testing.T) { ended(t, open, running) })
	t.Run("an attach that is refused", func(t *testing.T) { refused(t, open, cluster.Client) })
}

// ended kills the process: its stream ends, and a stream of the next one is to be had.
func ended(t *testing.T, open func(context.Context) (io.ReadWriteCloser, error), running *container.Container) {
	s, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ask(s); err != nil || !strings.Contains(got, `"id":7`) {
		t.Errorf("answered %q, %v", got, err)
	}
	running.Kill()
	if _, err := s.Read(make([]byte, 1)); err == nil {
		t.Error("a stream without an end")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "an answer of the process that follows", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		s, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }() // it has answered, or not
		_, err = ask(s)
		return err
	})
	if running.Starts() != 2 {
		t.Errorf("%d processes, want 2", running.Starts())
	}
}

// refused attaches to a pod that seems to run, and whose kubelet knows nothing of it.
func refused(t *testing.T, open func(context.Context) (io.ReadWriteCloser, error), c client.Client) {
	pod(t, c, "fetch-00") // sorts behind fetch-0
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fetch-0"}}
	if err := c.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s, err := open(t.Context())
	if err == nil { // the API server has not reached the kubelet yet
		_, err = s.Read(make([]byte, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "pod default/fetch-00: ") || !strings.Contains(err.Error(), "no container") {
		t.Errorf("answered %v, want an error that names the pod, and why", err)
	}
}
