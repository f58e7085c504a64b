package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/podrunner"
	"github.com/phasegate/phasegate/test/support/setup"
)

const (
	// release and system are the names that users give.
	release = "phasegate"
	system  = "phasegate-system"
)

// Controllers of the chart, which are also the values of --controllers.
const (
	migrating = "datastoremigration"
	serving   = "mcpserver"
)

// world is the cluster, and the words in which the story is told. Each of them ends
// the test when it fails.
type world struct {
	*setup.Setup
	pods *podrunner.Runner
	root string
	// handedOn are rights of controllers that others use: see rightsOfProxies.
	handedOn map[string][]rbac.Need
	// taken are the rights that were taken away for a while, of any controller.
	taken []rbac.Need
	// excused are the times at which what is refused is nobody's fault: helm uninstalled, or a right to everything
	// was taken away.
	excused []span
	// deprived are the times at which a right was taken away, which managers that run may complain of.
	deprived []span
	// tokens are those of accounts that scrape metrics.
	tokens map[string]string
	// helmHome is where helm keeps what it keeps.
	helmHome string
}

func newWorld(t *testing.T, o setup.Options) *world {
	t.Helper()
	w := &world{Setup: setup.ForTest(t, o), helmHome: t.TempDir(), handedOn: map[string][]rbac.Need{}, tokens: map[string]string{}}
	var err error
	if w.root, err = harness.Root(); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for container, name := range map[string]string{"manager": "manager", "check": "manager", v1beta1.ProxyContainer: "proxyrunner"} {
		if programs[container], err = harness.Binary(name); err != nil {
			t.Fatal(err)
		}
	}
	if w.pods, err = podrunner.Start(podrunner.Options{Cluster: w.Cluster, Programs: programs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pods.Stop)
	return w
}

// lastWords is how much is shown of a log, in bytes: there are a dozen, and what failed has to be seen among them.
const lastWords = 400

// showLogs says how the logs end, if the test has failed.
func (w *world) showLogs(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, path := range w.logs(t) {
		text, err := os.ReadFile(path)
		t.Logf("the end of %s (%v):\n%s", filepath.Base(path), err, text[max(0, len(text)-lastWords):])
	}
}

// logs are those of all processes of pods.
func (w *world) logs(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(w.LogDir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(path string) bool { return path == w.AuditLog || filepath.Base(path) == "down.log" })
}

// helm runs the real one as an administrator, in the namespace of the release.
func (w *world) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.try(t, filepath.Join("tools", "helm"), append(args, "--namespace", system)...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// kubectl runs the real one as an administrator.
func (w *world) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.try(t, filepath.Join("tools", "kubectl"), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a program of bin as an administrator, and answers what it said.
func (w *world) try(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	return w.run(t, w.Kubeconfig, filepath.Join(w.root, "bin", program), args...)
}

// run runs a program, and answers what it said: its output, then its complaints.
func (w *world) run(t *testing.T, kubeconfig, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience) // also when the test cleans up
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+w.helmHome, "HELM_CONFIG_HOME="+w.helmHome, "HELM_DATA_HOME="+w.helmHome)
	out, complaints := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, complaints
	err := cmd.Run()
	return out.String() + complaints.String(), err
}

// podsOf are the pods of a controller that are not on their way out.
func (w *world) podsOf(t *testing.T, controller string) []types.NamespacedName {
	t.Helper()
	list := &corev1.PodList{}
	err := w.Client.List(t.Context(), list, client.InNamespace(system), client.MatchingLabels{
		"app.kubernetes.io/instance": release, "app.kubernetes.io/component": controller,
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []types.NamespacedName
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			names = append(names, client.ObjectKeyFromObject(&pod))
		}
	}
	return names
}

// awaitReady waits until so many pods of a controller run, and say themselves that they are ready.
func (w *world) awaitReady(t *testing.T, controller string, want int) []types.NamespacedName {
	t.Helper()
	var pods []types.NamespacedName
	harness.Eventually(t, fmt.Sprintf("%d ready pods of %s", want, controller), func() error {
		if pods = w.podsOf(t, controller); len(pods) != want {
			return fmt.Errorf("there are %v", pods)
		}
		var errs []error
		for _, pod := range pods {
			errs = append(errs, w.pods.Ready(t.Context(), pod))
		}
		return errors.Join(errs...)
	})
	return pods
}

// process is that of a pod of which there is one.
func (w *world) process(t *testing.T, controller string) *harness.Process {
	t.Helper()
	p, err := w.pods.Process(w.awaitReady(t, controller, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// span is from when to when.
type span struct{ from, to time.Time }

// uninstall takes the release away. Its roles go before its programs end: what those are refused meanwhile is
// nobody's fault.
func (w *world) uninstall(t *testing.T) (said string) {
	t.Helper()
	from := time.Now()
	said = w.helm(t, "uninstall", release, "--wait", "--timeout", "3m")
	harness.Eventually(t, "the programs of the release to be gone", func() error {
		left := &corev1.PodList{}
		if err := w.Client.List(t.Context(), left, client.InNamespace(system)); err != nil {
			return err
		}
		running := slices.IndexFunc(left.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		if running < 0 {
			return nil // those of helm test have ended, and stay
		}
		return fmt.Errorf("%s is there", left.Items[running].Name)
	})
	w.excused = append(w.excused, span{from, time.Now().Add(time.Second)}) // a process may end after its pod
	return said
}

// isExcused tells whether what was refused then is nobody's fault.
func (w *world) isExcused(at time.Time) bool { return within(w.excused, at) }

func within(spans []span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return !at.Before(s.from) && !at.After(s.to) })
}

// complaint is a line of a log that says that a right is missing.
var complaint = regexp.MustCompile(`(?i:forbidden|unauthorized)`)

// saidAt is when a line of a log was written; the zero time if it does not say.
func saidAt(line string) time.Time {
	entry := struct{ TS, Time time.Time }{}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.TS.IsZero() {
		return entry.Time
	}
	return entry.TS
}

// ending is what a process says that was told to end. The token is worth nothing from the moment on in which the pod
// is gone, which here is before its process is.
const ending, noToken = `"msg":"Stopping and waiting for `, `"error":"Unauthorized"`

// assertNoComplaints looks at all that the processes have said.
func (w *world) assertNoComplaints(t *testing.T) {
	t.Helper()
	for _, path := range w.logs(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ends := false
		for line := range strings.Lines(string(text)) {
			ends = ends || strings.Contains(line, ending)
			at := saidAt(line)
			if complaint.MatchString(line) && !w.isExcused(at) && !within(w.deprived, at) && (!ends || !strings.Contains(line, noToken)) {
				t.Errorf("%s complains, first of all: %s", filepath.Base(path), line)
				break
			}
		}
	}
}
