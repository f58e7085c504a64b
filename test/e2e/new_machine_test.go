package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/builtin"
	"github.com/phasegate/phasegate/test/support/harness"
)

// docs/extend/new-machine.md and builtin-actions.md: kinds that the program has never heard of, driven by
// files alone. What they do not use is in TestFleetUpgrade and the tests of controllers/builtin.
func TestNewMachine(t *testing.T) {
	w := pristine(t)
	site := &site{}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	w.apply(t, "database-restore/crd.yaml")
	w.apply(t, "site-check/crd.yaml")
	w.alsoGrant(t, "database-restore/rbac.yaml", "site-check/rbac.yaml")
	w.openBookshop(t)
	t.Cleanup(func() {
		w.kubectl(t, "delete", "--wait=false", "namespace/bookshop", "crd/databaserestores.example.com", "crd/sitechecks.example.com")
	})
	phases := directory(t, "database-restore/database-restore.yaml", "site-check/site-check.yaml")
	args := []string{
		"--phases-dir", phases, "--allow-http-host", strings.TrimPrefix(server.URL, "http://"), "--allow-private-http", "127.0.0.0/8",
	}
	inTurn(t, "deleted in the middle", func(t *testing.T) {
		manager := w.manager(t, args...)
		w.apply(t, "database-restore/sample.yaml")
		w.awaitStopped(t)
		manager.Kill() // whatever it was about to do
		w.kubectl(t, "delete", "--wait=false", "-n", "bookshop", "databaserestore/monday")
		w.manager(t, args...)
		w.kubectl(t, "wait", "--for=delete", "--timeout=40s", "-n", "bookshop", "databaserestore/monday")
		if jobs := w.kubectl(t, "get", "jobs", "-n", "bookshop", "-o", "name"); jobs != "" {
			t.Errorf("the Job goes on with a database that is in use: %s", jobs)
		}
		w.assertOpen(t)
	})
	w.manager(t, args...)
	inTurn(t, "failed, then restored", func(t *testing.T) {
		w.apply(t, "database-restore/sample.yaml")
		w.awaitStopped(t)
		w.endPod(t, corev1.PodFailed)
		w.assertFailed(t)
		w.phasegate(t, "retry", "databaserestore/monday", "-n", "bookshop", "--file", phases, "--wait")
		w.endPod(t, corev1.PodSucceeded)
		w.assertRestored(t)
	})
	inTurn(t, "asked over HTTP", func(t *testing.T) {
		w.assertSiteChecked(t, server.URL, site)
	})
	w.kubectl(t, "delete", "--timeout=40s", "databaserestores,sitechecks", "--all", "-A")
	w.assertNoStates(t, "DatabaseRestore", "SiteCheck")
}

// directory holds copies of examples, for --phases-dir.
func directory(t *testing.T, examples ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range examples {
		data, err := os.ReadFile(example(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openBookshop makes the application of database-restore/sample.yaml.
func (w *world) openBookshop(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=delete", "--timeout=40s", "namespace/bookshop") // of the test before
	w.kubectl(t, "create", "namespace", "bookshop")
	w.kubectl(t, "create", "deployment", "bookshop", "-n", "bookshop", "--image=bookshop", "--replicas=3")
	w.kubectl(t, "wait", "--for=condition=Available", "--timeout=40s", "-n", "bookshop", "deployment/bookshop")
}

// assertOpen checks that a restore has released everything.
func (w *world) assertOpen(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=condition=Available", "--timeout=40s", "-n", "bookshop", "deployment/bookshop")
	shop := w.inBookshop(t, "apps/v1", "Deployment", "bookshop")
	replicas, _, _ := unstructured.NestedInt64(shop.Object, "spec", "replicas")
	for _, mark := range []string{"example.com/stopped-by", builtin.AnnotationClaim} {
		if by, marked := shop.GetAnnotations()[mark]; marked || replicas != 3 {
			t.Errorf("%d replicas, %s is %q: it must be as it was", replicas, mark, by)
		}
	}
	if left := w.kubectl(t, "get", "configmap", "-n", "bookshop", "--ignore-not-found", "bookshop-maintenance"); left != "" {
		t.Errorf("the notice stays:\n%s", left)
	}
}

func (w *world) inBookshop(t *testing.T, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion(apiVersion)
	obj.SetKind(kind)
	if err := w.Client.Get(t.Context(), types.NamespacedName{Namespace: "bookshop", Name: name}, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// awaitStopped waits until a restore stands where the application is stopped and the Job runs.
func (w *world) awaitStopped(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the Job to be waited for", func() error {
		restore := w.inBookshop(t, "example.com/v1", "DatabaseRestore", "monday")
		message, _, _ := unstructured.NestedString(restore.Object, "status", "message")
		status := machineStatus(t, restore)
		held := status.HeldNames()
		return nilUnless(strings.Contains(message, "runs: 1 active") && cmp.Equal(held, []string{"claimed", "notice", "stopped", "restore"}), message)
	})
	shop := w.inBookshop(t, "apps/v1", "Deployment", "bookshop")
	if replicas, _, _ := unstructured.NestedInt64(shop.Object, "spec", "replicas"); replicas != 0 {
		t.Errorf("%d replicas: the application must not run during a restore", replicas)
	}
	w.inBookshop(t, "v1", "ConfigMap", "bookshop-maintenance")
}

// endPod is the kubelet once the container of the Job that runs has ended: a simulated node runs it for ever.
func (w *world) endPod(t *testing.T, phase corev1.PodPhase) {
	t.Helper()
	harness.Eventually(t, "the Pod of the Job to run", func() error {
		pods := &corev1.PodList{}
		if err := w.Client.List(t.Context(), pods, client.InNamespace("bookshop"), client.HasLabels{batchv1.JobNameLabel}); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			before := pod.DeepCopy()
			pod.Status.Phase = phase
			return w.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before))
		}
		return errors.New("there is none")
	})
}

// TestRestoresOfOneApplication is what docs/extend/new-machine.md promises of the application: it does not run while
// a Job does, and of two restores one waits.
func TestRestoresOfOneApplication(t *testing.T) {
	w := pristine(t)
	w.apply(t, "database-restore/crd.yaml")
	w.alsoGrant(t, "database-restore/rbac.yaml")
	w.openBookshop(t)
	t.Cleanup(func() {
		w.kubectl(t, "delete", "--wait=false", "namespace/bookshop", "crd/databaserestores.example.com")
	})
	inTurn(t, "the Job lasts too long", func(t *testing.T) {
		phases := directory(t, "database-restore/database-restore.yaml")
		replaceIn(t, filepath.Join(phases, "database-restore.yaml"), "after: 12h", "after: 20s")
		manager := w.manager(t, "--phases-dir", phases)
		w.apply(t, "database-restore/sample.yaml")
		w.awaitStopped(t)
		pod := w.podOfJob(t)
		w.kubectl(t, "patch", "-n", "bookshop", "pod", pod, "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/still-writes"]}}`)
		w.awaitRestore(t, "monday", "RollingBack", "Pod bookshop/"+pod)
		shop := w.inBookshop(t, "apps/v1", "Deployment", "bookshop")
		if replicas, _, _ := unstructured.NestedInt64(shop.Object, "spec", "replicas"); replicas != 0 {
			t.Errorf("%d replicas while the Pod of the Job is there", replicas)
		}
		w.kubectl(t, "patch", "-n", "bookshop", "pod", pod, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		w.awaitRestore(t, "monday", "Failed", "")
		w.assertOpen(t)
		if jobs := w.kubectl(t, "get", "jobs,pods", "-n", "bookshop", "-l", "phasegate.dev/run", "-o", "name"); jobs != "" {
			t.Errorf("left of the Job: %s", jobs)
		}
		w.kubectl(t, "delete", "--timeout=40s", "-n", "bookshop", "databaserestore/monday")
		manager.Kill()
	})
	w.manager(t, "--phases-dir", directory(t, "database-restore/database-restore.yaml"))
	inTurn(t, "two at once", func(t *testing.T) {
		sample, err := os.ReadFile(example(t, "database-restore/sample.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		both := filepath.Join(t.TempDir(), "both.yaml")
		if err := os.WriteFile(both, []byte(string(sample)+"---\n"+strings.Replace(string(sample), "name: monday", "name: tuesday", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		w.kubectl(t, "apply", "-f", both)
		holder, other := "monday", "tuesday"
		harness.Eventually(t, "one of them to run its Job", func() error {
			for _, name := range []string{"monday", "tuesday"} {
				phase, message := w.restoreSays(t, name)
				if phase == "Restoring" && strings.Contains(message, "runs: 1 active") {
					holder, other = name, map[string]string{"monday": "tuesday", "tuesday": "monday"}[name]
					return nil
				}
			}
			return errors.New("none does")
		})
		w.awaitRestore(t, other, "Pending", "Deployment bookshop/bookshop is claimed by DatabaseRestore bookshop/"+holder)
		if jobs := strings.Fields(w.kubectl(t, "get", "jobs", "-n", "bookshop", "-o", "name")); len(jobs) != 1 {
			t.Errorf("the Jobs %v run at the same time", jobs)
		}
		w.endPod(t, corev1.PodSucceeded)
		w.awaitRestore(t, holder, "Complete", "")
		w.awaitRestore(t, other, "Restoring", "runs: 1 active")
		w.endPod(t, corev1.PodSucceeded)
		w.awaitRestore(t, other, "Complete", "")
		w.assertOpen(t)
	})
	w.kubectl(t, "delete", "--timeout=40s", "databaserestores", "--all", "-A")
	w.assertNoStates(t, "DatabaseRestore")
}

// exampleIn installs the CRD and the rights of an example, and makes a namespace for it.
func (w *world) exampleIn(t *testing.T, namespace, name, crd string) {
	t.Helper()
	w.apply(t, name+"/crd.yaml")
	w.alsoGrant(t, name+"/rbac.yaml")
	w.kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { w.kubectl(t, "delete", "--wait=false", "namespace/"+namespace, "crd/"+crd) })
}

// asking are the arguments of a manager whose machines ask a server of the test.
func asking(phases string, server *httptest.Server) []string {
	return []string{"--phases-dir", phases, "--allow-http-host", strings.TrimPrefix(server.URL, "http://"), "--allow-private-http", "127.0.0.0/8"}
}

func replaceIn(t *testing.T, file, old, now string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(data), old) != 1 {
		t.Fatalf("%s has not one %q", file, old)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(data), old, now, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w *world) restoreSays(t *testing.T, name string) (phase, message string) {
	t.Helper()
	restore := w.inBookshop(t, "example.com/v1", "DatabaseRestore", name)
	phase, _, _ = unstructured.NestedString(restore.Object, "status", "phase")
	message, _, _ = unstructured.NestedString(restore.Object, "status", "message")
	return phase, message
}

func (w *world) awaitRestore(t *testing.T, name, phase, part string) {
	t.Helper()
	harness.Eventually(t, name+" to be "+phase+": "+part, func() error {
		now, message := w.restoreSays(t, name)
		return nilUnless(now == phase && strings.Contains(message, part), now+": "+message)
	})
}

// podOfJob is the name of the Pod that a Job runs.
func (w *world) podOfJob(t *testing.T) (name string) {
	t.Helper()
	harness.Eventually(t, "the Pod of the Job", func() error {
		name = w.kubectl(t, "get", "pods", "-n", "bookshop", "-l", "phasegate.dev/run", "-o", "jsonpath={.items[*].metadata.name}")
		return nilUnless(name != "", "none")
	})
	return name
}

// assertFailed checks that a failed restore holds nothing, and says why it failed.
func (w *world) assertFailed(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "--timeout=40s", "-n", "bookshop", "databaserestore/monday")
	w.assertOpen(t)
	restore := w.inBookshop(t, "example.com/v1", "DatabaseRestore", "monday")
	if diff := cmp.Diff([]string{"Pending", "Restoring", "RollingBack", "Failed"}, way(t, restore)); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if why := w.kubectl(t, "get", "-n", "bookshop", "databaserestore/monday", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].message}`); !strings.Contains(why, "Job bookshop/monday-") {
		t.Errorf("condition Stalled says %q: it must name the Job", why)
	}
}

// assertRestored follows a restore that was tried twice to its end, and deletes it.
func (w *world) assertRestored(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=40s", "-n", "bookshop", "databaserestore/monday")
	w.assertOpen(t)
	restore := w.inBookshop(t, "example.com/v1", "DatabaseRestore", "monday")
	if diff := cmp.Diff([]string{"Pending", "Restoring", "Resuming", "Complete"}, way(t, restore)[4:]); diff != "" {
		t.Errorf("the way it came (-want +got):\n%s", diff)
	}
	if got := w.kubectl(t, "get", "-n", "bookshop", "databaserestore/monday", "-o", `jsonpath={.status.conditions[?(@.type=="Restored")].message}`); got != "Restored from s3://backups/bookshop/monday" {
		t.Errorf("condition Restored says %q", got)
	}
	harness.Eventually(t, "Event DatabaseRestored", func() error {
		got := w.kubectl(t, "get", "events", "-n", "bookshop", "--field-selector=reason=DatabaseRestored", "-o", "jsonpath={.items[*].message}")
		return nilUnless(strings.Contains(got, "Deployment bookshop is available again"), got)
	})
	w.kubectl(t, "delete", "--timeout=40s", "-n", "bookshop", "databaserestore/monday")
	w.assertOpen(t)
}

// way lists the phases that an object has gone through.
func way(t *testing.T, obj *unstructured.Unstructured) []string {
	t.Helper()
	var phases []string
	for _, h := range machineStatus(t, obj).History {
		phases = append(phases, h.To)
	}
	return phases
}

func machineStatus(t *testing.T, obj *unstructured.Unstructured) v1alpha1.MachineStatus {
	t.Helper()
	var shown struct {
		Status struct{ Machine v1alpha1.MachineStatus }
	}
	if err := json.Unmarshal([]byte(asJSON(t, obj.Object)), &shown); err != nil {
		t.Fatal(err)
	}
	return shown.Status.Machine
}

// site answers 503 until it is up.
type site struct{ up atomic.Bool }

func (s *site) ServeHTTP(answer http.ResponseWriter, _ *http.Request) {
	if !s.up.Load() {
		answer.WriteHeader(http.StatusServiceUnavailable)
	}
}

// assertSiteChecked asks a host that is not allowed, then one that is down, then up.
func (w *world) assertSiteChecked(t *testing.T, url string, site *site) {
	says := func(part string) {
		t.Helper()
		harness.Eventually(t, "the check to say "+part, func() error {
			check := w.get(t, "example.com/v1", "SiteCheck", "homepage")
			message, _, _ := unstructured.NestedString(check.Object, "status", "message")
			return nilUnless(strings.Contains(message, part), message)
		})
	}
	w.apply(t, "site-check/sample.yaml")
	says("start the manager with --allow-http-host=www.example.com:80")
	w.kubectl(t, "patch", "sitecheck/homepage", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"url":%q}}`, url+"/health"))
	says(url + "/health answers 503")
	site.up.Store(true)
	w.kubectl(t, "wait", "--for=condition=Ready", "--timeout=40s", "sitecheck/homepage")
	w.kubectl(t, "delete", "--timeout=40s", "sitecheck/homepage")
}

// nilUnless is an error with what was seen.
func nilUnless(met bool, seen string) error {
	if met {
		return nil
	}
	return fmt.Errorf("seen at %s: %s", time.Now().Format(time.TimeOnly), seen)
}
