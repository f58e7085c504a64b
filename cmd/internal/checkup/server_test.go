package checkup

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
	"github.com/phasegate/phasegate/test/support/harness"
)

// shared is an API server without controllers and without any CRD, at first.
var shared = harness.Shared{Start: func() (*harness.Cluster, error) {
	return harness.Start(context.Background(), harness.Options{Own: true, Without: []string{"fakenodes", "scheduler", "controller-manager"}})
}}

func TestMain(m *testing.M) { shared.Main(m) }

// accountOf is an account with rules, and no others.
func accountOf(t *testing.T, name string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	cluster := shared.Cluster(t)
	if err := cluster.Grant(t.Context(), name, rules); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func chartRules(t *testing.T, roles ...string) []rbacv1.PolicyRule {
	t.Helper()
	rules, err := harness.ChartRules(roles...)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// ask is a report in short: what is not all right, and how bad it is.
func ask(t *testing.T, o Options) (levels map[string]check.Level, report check.Report) {
	t.Helper()
	var err error
	if o.Files.Registry == nil {
		if o.Files, err = Load("", ""); err != nil {
			t.Fatal(err)
		}
	}
	o.CalicoNamespace = "calico-system"
	if report, err = Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	levels = map[string]check.Level{}
	for _, r := range report {
		if r.Level != check.Info {
			levels[r.Group+"/"+r.ID] = r.Level
		}
	}
	return levels, report
}

// One cluster, as it comes to be fit: the parts build on each other.
func TestCheckUp(t *testing.T) {
	cluster := shared.Cluster(t)
	same := func(t *testing.T, why string, want, got map[string]check.Level) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", why, diff)
		}
	}
	const policies = "datastoremigration/admission-policies"

	t.Run("before", func(t *testing.T) {
		got, _ := ask(t, Options{Config: cluster.Config, Controllers: Controllers, Installing: true})
		same(t, "an administrator may install, but Calico's CRDs are not there yet",
			map[string]check.Level{"datastoremigration/v3-crds": check.Failure, policies: check.Failure}, got)
		got, _ = ask(t, Options{Config: accountOf(t, "nobody", nil), Controllers: []string{MCPServer}, Installing: true})
		same(t, "nobody may install, nor grant what he does not have",
			map[string]check.Level{"cluster/crds-installed": check.Failure, "installation/rights": check.Failure, "mcpserver/rights": check.Failure}, got)
	})

	t.Run("forgotten", func(t *testing.T) {
		got, report := ask(t, Options{Config: cluster.Config, Controllers: Controllers})
		same(t, "without our CRDs nothing runs",
			map[string]check.Level{"cluster/crds-installed": check.Failure, "datastoremigration/v3-crds": check.Failure, policies: check.Failure}, got)
		if text := textOf(report); !strings.Contains(text, "CRD datastoremigrations.migration.projectcalico.org is not installed: helm upgrade with crds.install=auto") {
			t.Errorf("the report does not say what to do:\n%s", text)
		}
	})

	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := crds.ReadDir(filepath.Join(root, "charts", "phasegate", "files", "crds"))
	if err != nil {
		t.Fatal(err)
	}
	calicos := crds.Generate(resources.Default())
	calicos.CRDs = append(calicos.CRDs, ours...)
	if err := crds.Install(t.Context(), cluster.Config, calicos); err != nil {
		t.Fatal(err)
	}

	t.Run("fit", func(t *testing.T) {
		for controller, c := range map[string]struct {
			roles []string // the right to clean up is in another one
			want  map[string]check.Level
		}{
			// There is no ClusterInformation here that could be locked, and no API server of Calico before v3.
			DatastoreMigration: {[]string{DatastoreMigration, DatastoreMigration + "-dependents", DatastoreMigration + "-copyahead"},
				map[string]check.Level{"datastoremigration/cleanup-rights": check.Warning, "datastoremigration/copies-in-sight": check.Warning, "datastoremigration/fence": check.Warning}},
			MCPServer: {roles: []string{MCPServer}, want: map[string]check.Level{}},
			Custom:    {roles: []string{Custom}, want: map[string]check.Level{}},
		} {
			want := c.want
			cfg := accountOf(t, controller, chartRules(t, c.roles...))
			harness.Eventually(t, "the chart's rules to suffice for "+controller, func() error { // the authorizer learns of roles by a watch
				got, report := ask(t, Options{Config: cfg, Controllers: []string{controller}})
				if !cmp.Equal(want, got) {
					return fmt.Errorf("want %v, got\n%s", want, textOf(report))
				}
				return nil
			})
		}
	})
	t.Run("machine files", func(t *testing.T) {
		files, err := Load(t.TempDir()+"/none", "none.yaml")
		if err != nil {
			t.Fatal(err)
		}
		got, report := ask(t, Options{Config: cluster.Config, Controllers: []string{MCPServer}, Files: files})
		same(t, "the other checks are about what is compiled in", map[string]check.Level{"cluster/machine-files": check.Failure}, got)
		if text := textOf(report); strings.Count(text, "no such file") != 2 {
			t.Errorf("the report does not tell of both files:\n%s", text)
		}
	})
}

func textOf(report check.Report) string {
	var out strings.Builder
	_ = report.Write(&out, check.Table)
	return out.String()
}

// Watches of the runner and the gate select by name, which is enough for a rule that
// names the object; without the name, the same account is refused.
func TestNamedListAndWatch(t *testing.T) {
	rule := rbac.Rule("list watch", "apps", "daemonsets", "calico-node")
	cfg := accountOf(t, "watcher", []rbacv1.PolicyRule{rule})
	daemonSets := kubernetes.NewForConfigOrDie(cfg).AppsV1().DaemonSets("calico-system")
	tries := map[string]func(metav1.ListOptions) error{
		"list": func(o metav1.ListOptions) error { _, err := daemonSets.List(t.Context(), o); return err },
		"watch": func(o metav1.ListOptions) error {
			w, err := daemonSets.Watch(t.Context(), o)
			if err == nil {
				w.Stop()
			}
			return err
		},
	}
	for verb, try := range tries {
		harness.Eventually(t, verb+" by name", func() error { // the authorizer learns of roles by a watch
			return try(metav1.ListOptions{FieldSelector: "metadata.name=calico-node"})
		})
		if err := try(metav1.ListOptions{}); !apierrs.IsForbidden(err) {
			t.Errorf("%s of all: got %v, want it forbidden", verb, err)
		}
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := rbac.Flatten("", rule, rbac.Rule("list", "apps", "daemonsets"), rbac.Rule("get", "apps", "daemonsets", "calico-node"))
	missing, err := rbac.Missing(t.Context(), c, all)
	if diff := cmp.Diff(all[2:], missing); err != nil || diff != "" {
		t.Errorf("what is missing: %v (-want +got):\n%s", err, diff)
	}
}
