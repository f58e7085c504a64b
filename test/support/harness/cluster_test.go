package harness_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/test/support/harness"
)

// small is the least cluster: these tests are about how it starts and ends.
var small = harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}}

func TestClusterServesAndStops(t *testing.T) {
	c, err := harness.Start(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	var namespaces corev1.NamespaceList
	if err := c.Client.List(t.Context(), &namespaces); err != nil {
		t.Errorf("list namespaces: %v", err)
	}
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	if err := c.Client.List(t.Context(), &namespaces); err == nil {
		t.Error("the API server answers after Stop")
	}
	if _, err := os.Stat(c.LogDir); !os.IsNotExist(err) {
		t.Errorf("logs after Stop: %v, want that they do not exist", err)
	}
}

func TestMissingToolsAreNamedWithTheRemedy(t *testing.T) {
	_, err := harness.Start(t.Context(), harness.Options{Own: true, Tools: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "run `make tools`") {
		t.Errorf("error = %v, want the remedy in it", err)
	}
}

func TestBadOptionIsToldInTheLaunchersWords(t *testing.T) {
	_, err := harness.Start(t.Context(), harness.Options{Own: true, Without: []string{"etcd"}})
	if err == nil || !strings.Contains(err.Error(), `cannot leave out "etcd"`) {
		t.Errorf("error = %v, want what the launcher said", err)
	}
}

func TestGivenClusterIsUsedAndLeftAlone(t *testing.T) {
	given := harness.ForTest(t, small)
	t.Setenv("KUBECONFIG", given.Kubeconfig)
	c, err := harness.Start(t.Context(), harness.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.Host != given.Config.Host {
		t.Errorf("connected to %s, want %s", c.Config.Host, given.Config.Host)
	}
	if err := c.Stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if err := given.Client.List(t.Context(), &corev1.NamespaceList{}); err != nil {
		t.Errorf("the given cluster does not answer any more: %v", err)
	}
}

// childMode makes this test binary a program that starts a cluster and a process,
// says where, and then waits to be killed.
const childMode = "PHASEGATE_HARNESS_TEST_CHILD"

func TestNothingOutlivesAKilledProgram(t *testing.T) {
	if os.Getenv(childMode) != "" {
		childMain(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlivesAKilledProgram$")
	cmd.Env = append(os.Environ(), childMode+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	logs, rest := "", ""
	for lines := bufio.NewScanner(out); logs == "" && lines.Scan(); {
		logs, _ = strings.CutPrefix(lines.Text(), childMode+" ")
		if logs == lines.Text() {
			rest, logs = rest+logs+"\n", ""
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if logs == "" {
		t.Fatalf("the child started nothing, it said:\n%s", rest)
	}
	base := filepath.Dir(logs)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	harness.Eventually(t, "everything that was started to end", func() error {
		return noProcessMentions(base)
	})
}

func childMain(t *testing.T) {
	c, err := harness.Start(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := harness.StartProcess(harness.Program{
		Name: "sleeper", Path: "/bin/sleep", Args: []string{"600"}, LogDir: c.LogDir,
		// How noProcessMentions finds it.
		Env: []string{"WHERE=" + c.LogDir},
	}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(childMode, c.LogDir)
	select {}
}

// What a cluster is asked is in its audit log, which tests of rights read.
func TestAuditLog(t *testing.T) {
	o := small
	o.Audit = true
	c := harness.ForTest(t, o)
	var namespaces corev1.NamespaceList
	if err := c.Client.List(t.Context(), &namespaces); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the request in the audit log", func() error {
		log, err := os.ReadFile(c.AuditLog)
		if err != nil {
			return err
		}
		if !strings.Contains(string(log), `"requestURI":"/api/v1/namespaces"`) {
			return fmt.Errorf("%d bytes, none of which is it", len(log))
		}
		return nil
	})
}
