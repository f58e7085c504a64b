package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/test/support/harness"
)

var httpTransports = []string{"streamable-http", "sse"}

func TestManySessionsAtOnce(t *testing.T) {
	const sessions, calls = 200, 5
	for _, transport := range httpTransports {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, shared.Cluster(t), transport)
			w.startEcho()
			w.startProxy()
			w.await("healthy")
			began := time.Now()
			// All are open before the first one calls.
			open := make(chan struct{})
			connected, group := errgroup.Group{}, errgroup.Group{}
			for n := range sessions {
				session := make(chan *mcp.ClientSession, 1)
				connected.Go(func() error {
					s, err := w.connect(w.address)
					session <- s
					return err
				})
				group.Go(func() error {
					s := <-session
					if s == nil {
						return nil // connected tells
					}
					defer func() { _ = s.Close() }() // what is said before is tested
					<-open
					for call := range calls {
						if err := say(t.Context(), s, fmt.Sprintf("%d/%d", n, call)); err != nil {
							return fmt.Errorf("session %d, call %d: %w", n, call, err)
						}
					}
					return nil
				})
			}
			err := connected.Wait()
			close(open)
			if err != nil {
				t.Error(err)
			}
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("%d sessions, %d calls: %s", sessions, sessions*calls, time.Since(began).Round(time.Millisecond))
		})
	}
}

func TestKilledServerIsToldAndComesBack(t *testing.T) {
	for _, transport := range httpTransports {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t, shared.Cluster(t), transport)
			w.startEcho()
			w.startProxy()
			w.await("healthy")
			before := w.client()
			if err := say(t.Context(), before, "hello"); err != nil {
				t.Fatal(err)
			}
			w.echo.Kill()
			if err := say(t.Context(), before, "hello"); err == nil {
				t.Error("a call to a server that was killed did not fail")
			} else {
				t.Logf("the SDK says: %v", err)
			}
			code, body := post(t, w.address+"/mcp", `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
			want := fmt.Sprintf(`{"error":{"code":-32000,"message":"the MCP server at 127.0.0.1:%d is away (dial tcp 127.0.0.1:%[1]d: connect: connection refused): try again"},"id":7,"jsonrpc":"2.0"}`, w.config.TargetPort)
			if code != http.StatusBadGateway || body != want {
				t.Errorf("a call is answered %d %s\nwant 502 %s", code, body, want)
			}
			w.await("degraded")

			w.startEcho()
			harness.Eventually(t, "calls to work again", func() error {
				session, err := w.connect(w.address)
				if err != nil {
					return err
				}
				defer func() { _ = session.Close() }() // what is said before is tested
				return say(t.Context(), session, "hello again")
			})
			w.await("healthy")
		})
	}
}

func post(t *testing.T, address, body string) (code int, answer string) {
	t.Helper()
	r, err := http.Post(address, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// The proxy may do nothing where it is: it says so, and does not end.
func TestWhatIsAwaitedIsTold(t *testing.T) {
	w := newWorld(t, shared.Cluster(t), "streamable-http")
	t.Setenv("POD_NAMESPACE", "nowhere")
	w.startProxy()
	const reason = `apply it: apply StatefulSet nowhere/echo: namespaces "nowhere" not found`
	harness.Eventually(t, "the reason", func() error {
		h, err := w.health()
		if err != nil {
			return err
		}
		if h.Code != http.StatusOK || h.Status != "degraded" || h.MCP.Error != reason {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	code, body := post(t, w.address+"/mcp", `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	var answer struct{ Error struct{ Message string } }
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if want := "the MCP server is not there yet: " + reason; code != http.StatusServiceUnavailable || answer.Error.Message != want {
		t.Errorf("answered %d %q, want 503 %q", code, answer.Error.Message, want)
	}
	if err := w.proxy.Stop(grace); err != nil {
		t.Errorf("told to end: %v, want exit code 0", err)
	}
}

// The image and the arguments of the server are those of the command line, and SIGTERM ends the proxy.
func TestCommandLineAndEnd(t *testing.T) {
	cluster := shared.Cluster(t)
	w := newWorld(t, cluster, "streamable-http")
	w.config.CmdArgs = []string{"of", "the", "file"}
	w.startEcho()
	w.startProxy()
	w.await("healthy")
	var set appsv1.StatefulSet
	if err := cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "echo"}, &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	got := [][]string{{pod.Hostname, pod.Containers[0].Image}, pod.Containers[0].Args}
	if diff := cmp.Diff([][]string{{"echo", "example.org/echo:1"}, {"--verbose", "x"}}, got); diff != "" {
		t.Errorf("the server (-want +got):\n%s", diff)
	}
	if err := say(t.Context(), w.client(), "hello"); err != nil { // a session with an open stream
		t.Fatal(err)
	}
	began := time.Now()
	if err := w.proxy.Stop(grace); err != nil {
		t.Errorf("told to end: %v, want exit code 0", err)
	}
	t.Logf("ended after %s", time.Since(began).Round(time.Millisecond))
}

func TestMistakesAreErrors(t *testing.T) {
	for name, test := range map[string]struct {
		why, file string
		args      []string
		want      string
	}{
		"no image": {"what to run is an argument", "", []string{"run"}, "proxyrunner: run: no IMAGE: proxyrunner run [flags] IMAGE [-- ARG...]\n"},
		"no file": {"it is mounted under another path", "", []string{"run", "x"},
			"proxyrunner: no run configuration: looked for /etc/runconfig/runconfig.json, /etc/toolhive/runconfig.json, ./runconfig.json: mount the ConfigMap NAME-runconfig of the MCPServer at /etc/runconfig\n"},
		"broken file": {"it is never half used", "{", []string{"run", "x"}, "proxyrunner: ./runconfig.json: line 1: not JSON: unexpected end of JSON input\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program(t, "proxyrunner"), test.args...)
			cmd.Dir = t.TempDir()
			if test.file != "" {
				writeFile(t, cmd.Dir+"/runconfig.json", test.file)
			}
			var said bytes.Buffer
			cmd.Stderr = &said
			err := cmd.Run()
			if diff := cmp.Diff(test.want, said.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d (%v), want 1", code, err)
			}
		})
	}
}

// A right that is missing is named, and once it is granted nobody has to restart
// anything.
func TestMissingRightIsNamed(t *testing.T) {
	const account = "proxy-with-few-rights"
	cluster := shared.Cluster(t)
	can := func(verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: verbs},
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: verbs},
		}
	}
	if err := cluster.Grant(t.Context(), account, can("get")); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, cluster, "streamable-http")
	t.Setenv("KUBECONFIG", cluster.KubeconfigOf(account))
	w.startEcho()
	w.startProxy()
	harness.Eventually(t, "the missing right", func() error {
		h, err := w.health()
		if err == nil && !strings.Contains(h.MCP.Error, `cannot patch resource "statefulsets" in API group "apps"`) {
			err = fmt.Errorf("%+v", h)
		}
		return err
	})
	if err := cluster.Grant(t.Context(), account, can("get", "create", "patch")); err != nil {
		t.Fatal(err)
	}
	w.await("healthy")
}
