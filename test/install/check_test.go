package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/test/support/setup"
)

// check runs the checks of a controller as its account.
func (w *world) check(t *testing.T, controller, kubeconfig string) (string, error) {
	t.Helper()
	return w.run(t, kubeconfig, filepath.Join(w.root, "bin", "manager"), "check", "--controllers="+controller, "--calico-namespace="+setup.CalicoNamespace,
		"--leader-elect", "--leader-elect-namespace="+system, "--leader-elect-lease-name="+account(controller), "--metrics-bind-address=:8443", "-o", "json")
}

// mayNotAsk is how the API server says that an account cannot even ask what it may.
const mayNotAsk = `cannot create resource "selfsubjectaccessreviews" in API group "authorization.k8s.io"`

// missingIn are the rights that a report of the checks names. In which namespace they are needed is left out,
// since a role of the cluster does not say it.
func missingIn(report string) []string {
	var all struct{ Results check.Report }
	if err := json.NewDecoder(strings.NewReader(report)).Decode(&all); err != nil {
		return []string{"this is no report: " + err.Error()}
	}
	var missing []string
	for _, r := range all.Results {
		for _, f := range r.Findings {
			_, right, _ := strings.Cut(f.Message, "this account may not ")
			if named, _, is := strings.Cut(right, " (needed by "); is {
				named, _, _ = strings.Cut(named, " in namespace ")
				missing = append(missing, named)
			}
			if strings.Contains(f.Message, mayNotAsk) {
				missing = append(missing, "create selfsubjectaccessreviews.authorization.k8s.io")
			}
		}
	}
	return slices.Compact(missing) // several checks ask, and none of them may
}

// helmTest: the checks run as a pod with the account of a controller, and their result is that of helm.
func helmTest(t *testing.T, w *world) {
	w.helm(t, "test", release, "--timeout", "3m")
	taken := rbac.Need{Group: "apiregistration.k8s.io", Resource: "apiservices", Name: "v3.projectcalico.org", Verb: "patch"}
	restore := w.without(t, migrating, grantOf(w.role(t, account(migrating))), taken)
	said, err := w.try(t, filepath.Join("tools", "helm"), "test", release, "--timeout", "3m", "--namespace", system)
	restore()
	if err == nil {
		t.Errorf("helm test succeeds without the right to %s:\n%s", taken, said)
	}
	if log := w.logOf(t, account(migrating)+"-check"); !strings.Contains(log, taken.String()) {
		t.Errorf("the log of the test does not name the right to %s:\n%s", taken, log)
	}
}

// logOf is what the process of a pod of the release has said, of which the beginning of the name is known.
func (w *world) logOf(t *testing.T, pod string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.LogDir, system+"-"+pod+"*.log"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("logs of pods %s*: %v (%v)", pod, paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
