// Package cluster tests the control plane as those who use it see it: through
// the launcher in bin/tools, which make tools builds, and through the API.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/phasegate/phasegate/test/cluster/internal/process"
	"github.com/phasegate/phasegate/test/cluster/internal/tools"
)

const bin = "../../bin/tools"

// launch runs the launcher and returns its exit code and all it says.
func launch(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var output bytes.Buffer
	command := exec.Command(filepath.Join(bin, "cluster"), args...)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); command.ProcessState == nil {
		t.Fatalf("%v; build the launcher with make tools", err)
	}
	return command.ProcessState.ExitCode(), output.String()
}

// must runs the launcher and returns what it says, which has to contain want.
func must(t *testing.T, want string, args ...string) string {
	t.Helper()
	code, output := launch(t, args...)
	if code != 0 || !strings.Contains(output, want) {
		t.Fatalf("cluster %s: exit code %d, want 0 and %q:\n%s", strings.Join(args, " "), code, want, output)
	}
	return output
}

// start brings a cluster up for the time of a test.
func start(t *testing.T, dir string) *rest.Config {
	t.Helper()
	t.Cleanup(func() { must(t, "", "down", "--dir", dir) })
	must(t, "ready in", "up", "--dir", dir, "--tools", bin, "--no-fsync")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// eventually waits until met holds, and names what did not happen.
func eventually(t *testing.T, what string, met func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) { return met(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestControlPlane(t *testing.T) {
	config := start(t, filepath.Join(t.TempDir(), "cluster"))
	client := kubernetes.NewForConfigOrDie(config)
	t.Run("a DaemonSet becomes ready and its pods go at once", func(t *testing.T) { daemonSet(t, client) })
	t.Run("the garbage collector deletes a dependent of another UID", func(t *testing.T) { garbage(t, client) })
	t.Run("MutatingAdmissionPolicy v1 is served", func(t *testing.T) { admission(t, client) })
	t.Run("server and nodes tell the version", func(t *testing.T) { versions(t, client) })
	t.Run("an aggregated API server is reached by an ExternalName", func(t *testing.T) { aggregated(t, config) })
}

// daemonSet needs the scheduler, the controller manager and fakenodes.
func daemonSet(t *testing.T, client kubernetes.Interface) {
	sets, labels := client.AppsV1().DaemonSets("default"), map[string]string{"app": "agent"}
	set := &apps.DaemonSet{
		ObjectMeta: meta.ObjectMeta{Name: "agent"},
		Spec: apps.DaemonSetSpec{
			Selector: &meta.LabelSelector{MatchLabels: labels},
			Template: core.PodTemplateSpec{
				ObjectMeta: meta.ObjectMeta{Labels: labels},
				Spec: core.PodSpec{
					InitContainers: []core.Container{{Name: "prepare", Image: "example.com/prepare"}},
					Containers:     []core.Container{{Name: "agent", Image: "example.com/agent"}},
				},
			},
		},
	}
	if _, err := sets.Create(t.Context(), set, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "3 ready pods", func(ctx context.Context) bool {
		got, err := sets.Get(ctx, "agent", meta.GetOptions{})
		return err == nil && got.Status.NumberReady == 3
	})
	if err := sets.Delete(t.Context(), "agent", meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no pod left", func(ctx context.Context) bool {
		got, err := client.CoreV1().Pods("default").List(ctx, meta.ListOptions{})
		return err == nil && len(got.Items) == 0
	})
}

func garbage(t *testing.T, client kubernetes.Interface) {
	maps := client.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "owner"}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reference := meta.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}
	stale := reference
	stale.UID = "11111111-1111-1111-1111-111111111111"
	for name, owner := range map[string]meta.OwnerReference{"kept": reference, "stale": stale} {
		dependent := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: name, OwnerReferences: []meta.OwnerReference{owner}}}
		if _, err := maps.Create(t.Context(), dependent, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the stale dependent is gone", func(ctx context.Context) bool {
		_, err := maps.Get(ctx, "stale", meta.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := maps.Get(t.Context(), "kept", meta.GetOptions{}); err != nil {
		t.Errorf("the dependent with the right UID: %v", err)
	}
}

// kube is the version of the servers: that of `make KUBE=`, or the pinned one.
var kube = cmp.Or(os.Getenv("KUBE"), tools.Version)

func versions(t *testing.T, client kubernetes.Interface) {
	if version, err := client.Discovery().ServerVersion(); err != nil || version.String() != kube {
		t.Errorf("got %v, %v, want %s", version, err, kube)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-0", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Status.NodeInfo.KubeletVersion; got != kube {
		t.Errorf("the kubelet of node-0 is %s, want %s", got, kube)
	}
}

func admission(t *testing.T, client kubernetes.Interface) {
	if minor := strings.Split(kube, ".")[1]; len(minor) == 2 && minor < "36" {
		t.Skipf("needs Kubernetes 1.36, and this is %s: MutatingAdmissionPolicy is off by default before", kube)
	}
	served, err := client.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range served.APIResources {
		if resource.Name == "mutatingadmissionpolicies" {
			return
		}
	}
	t.Errorf("not among %v", served.APIResources)
}

// aggregated registers a server of this test as README.md says.
func aggregated(t *testing.T, config *rest.Config) {
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if len(r.TLS.PeerCertificates) == 0 && r.Header.Get("X-Remote-User") == "" {
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1"}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "demo.example.com/v1", "resources": []}`))
	}))
	t.Cleanup(backend.Close)
	address, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	service := &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "demo"},
		Spec:       core.ServiceSpec{Type: core.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	registration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1",
		"kind":       "APIService",
		"metadata":   map[string]any{"name": "v1.demo.example.com"},
		"spec": map[string]any{
			"group": "demo.example.com", "version": "v1",
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": "default", "name": "demo", "port": port},
		},
	}}
	kind := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	if _, err := dynamic.NewForConfigOrDie(config).Resource(kind).Create(t.Context(), registration, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the aggregated API answers", func(ctx context.Context) bool {
		body, err := client.RESTClient().Get().AbsPath("/apis/demo.example.com/v1").DoRaw(ctx)
		return err == nil && strings.Contains(string(body), `"groupVersion": "demo.example.com/v1"`)
	})
}

// Two clusters start at once, live side by side, and end without a trace.
func TestLifecycle(t *testing.T) {
	root := t.TempDir()
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	var both sync.WaitGroup
	codes := make([]int, 2)
	outputs := make([]string, 2)
	for i, dir := range []string{one, two} {
		t.Cleanup(func() { must(t, "", "down", "--dir", dir) })
		both.Go(func() { codes[i], outputs[i] = launch(t, "up", "--dir", dir, "--tools", bin, "--no-fsync") })
	}
	both.Wait()
	for i := range codes {
		if codes[i] != 0 {
			t.Fatalf("exit code %d:\n%s", codes[i], outputs[i])
		}
	}
	must(t, "already running", "up", "--dir", one, "--tools", bin)

	must(t, "started program", "run", "--dir", one, "--name", "program", "--", "/bin/sleep", "600")
	must(t, "restarted program", "run", "--dir", one, "--name", "program", "--", "/bin/sleep", "600")
	if code, output := launch(t, "run", "--dir", one, "--name", "broken", "--", "/bin/bash", "-c", "echo no such flag; exit 1"); code != 1 || !strings.Contains(output, "no such flag") {
		t.Errorf("exit code %d, want 1 and the log:\n%s", code, output)
	}

	pid, err := os.ReadFile(filepath.Join(one, "pids", "etcd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("kill", "-KILL", strings.TrimSpace(string(pid))).Run(); err != nil {
		t.Fatal(err)
	}
	// kill only sends the signal: on busy cores up comes before the end.
	eventually(t, "etcd has died", func(context.Context) bool { return process.Home(one).Running("etcd") == 0 })
	must(t, "a cluster died", "up", "--dir", one, "--tools", bin, "--no-fsync")

	must(t, "ended", "down", "--dir", one)
	must(t, "already running", "up", "--dir", two, "--tools", bin)
	must(t, "ended", "down", "--dir", two)
	must(t, "no cluster", "down", "--dir", two)
	if left := processesOf(t, root); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
	if _, err := os.Stat(one); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", one, err)
	}
}

// A server that ends while the cluster comes up is named, with its log, and
// nothing is left running.
func TestFailedStart(t *testing.T) {
	root := t.TempDir()
	broken, dir := filepath.Join(root, "tools"), filepath.Join(root, "cluster")
	if err := os.Mkdir(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		script := "#!/bin/sh\nexec sleep 600\n"
		if name == "kube-apiserver" {
			script = "#!/bin/sh\necho cannot do that\nexit 3\n"
		}
		if err := os.WriteFile(filepath.Join(broken, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { must(t, "", "down", "--dir", dir) })
	code, output := launch(t, "up", "--dir", dir, "--tools", broken, "--skip-missing")
	if code != 1 || !strings.Contains(output, "kube-apiserver ended") || !strings.Contains(output, "cannot do that") {
		t.Errorf("exit code %d, want 1, the server's name and its log:\n%s", code, output)
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

func TestExitCodes(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	tests := map[string]struct {
		args []string
		want int
		why  string
	}{
		"no command":      {want: 2, why: "nothing was asked"},
		"unknown command": {args: []string{"sideways"}, want: 2, why: "asked wrongly"},
		"no directory":    {args: []string{"up"}, want: 2, why: "there is no safe default"},
		"unknown server":  {args: []string{"up", "--dir", missing, "--without=kubelet"}, want: 2, why: "asked wrongly"},
		"foreign up":      {args: []string{"up", "--dir", foreign}, want: 1, why: "the files are somebody's"},
		"foreign down":    {args: []string{"down", "--dir", foreign}, want: 1, why: "the files are somebody's"},
		"no version":      {args: []string{"tools", "--kubernetes", "1.30"}, want: 2, why: "there is no such release"},
		"run on nothing":  {args: []string{"run", "--dir", missing, "--name", "a", "--", "true"}, want: 1, why: "there is no cluster"},
		"help":            {args: []string{"help"}, want: 0, why: "asked and answered"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if code, output := launch(t, tc.args...); code != tc.want {
				t.Errorf("exit code %d, want %d, %s:\n%s", code, tc.want, tc.why, output)
			}
		})
	}
}

// processesOf lists the command lines of processes that belong to a directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		environ, _ := os.ReadFile(file) // it may have ended, or be a stranger's
		if strings.Contains(string(environ), "PHASEGATE_CLUSTER="+dir) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			found = append(found, string(line))
		}
	}
	return found
}
