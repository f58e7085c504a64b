package checkup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/check"
)

type (
	crd    = apiextensionsv1.CustomResourceDefinition
	schema = apiextensionsv1.JSONSchemaProps
)

// installed asks about CRDs in a cluster that has these.
func installed(t *testing.T, o Options, have ...*crd) []check.Finding {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&crd{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} })
	for _, d := range have {
		if len(d.Status.Conditions) == 0 {
			d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		}
		c.WithObjects(d)
	}
	wanted, err := o.crds()
	if err != nil {
		t.Fatal(err)
	}
	findings, err := check.CRDs(c.Build(), wanted, "apply it", o.Installing).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// the CRDs of the chart for a migration, after a change of each version's schema.
func chartCRDs(t *testing.T) (migrations, states *crd) {
	t.Helper()
	wanted, err := (&Options{Controllers: []string{DatastoreMigration}}).crds()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wanted {
		if w.CRD.Name == migrationv1.CRDName {
			migrations = w.CRD
		} else {
			states = w.CRD
		}
	}
	return migrations, states
}

// edit changes the properties of a field in every version.
func edit(d *crd, path []string, change func(map[string]schema)) *crd {
	var down func(s *schema, path []string)
	down = func(s *schema, path []string) {
		if len(path) == 0 {
			change(s.Properties)
			return
		}
		field := s.Properties[path[0]]
		down(&field, path[1:])
		s.Properties[path[0]] = field
	}
	for i := range d.Spec.Versions {
		down(d.Spec.Versions[i].Schema.OpenAPIV3Schema, path)
	}
	return d
}

func without(names ...string) func(map[string]schema) {
	return func(fields map[string]schema) {
		for _, name := range names {
			delete(fields, name)
		}
	}
}

// peers is what Calico installs, as far as it matters.
func peers(d *crd) *crd {
	return edit(d, []string{"status"}, without("machine", "lock", "copyAhead", "verified", "conflicts"))
}

const (
	statesAreOurs = theyAre + "is ours"
	itIsCalicos   = "CRD datastoremigrations.migration.projectcalico.org is not ours but Calico's, and stays as it is: its objects show phase, message and conditions; the rest is in their MachineStates, which kubectl phasegate status reads"
	itIs          = "CRD datastoremigrations.migration.projectcalico.org "
	theyAre       = "CRD " + v1alpha1.MachineStateCRD + " "
)

func TestCRDs(t *testing.T) {
	info := func(text string) check.Finding { return check.Finding{Level: check.Info, Message: text} }
	failure := func(text string) check.Finding {
		return check.Finding{Level: check.Failure, Message: text, Remedy: "apply it"}
	}
	theirs := func(text string) check.Finding {
		return check.Finding{Level: check.Failure, Message: itIs + text, Remedy: "apply ours over Calico's, which keeps the objects and serves what theirs does: kubectl apply --server-side --force-conflicts -f charts/phasegate/files/crds/migration.projectcalico.org_datastoremigrations.yaml, or helm upgrade with crds.install=always and --take-ownership; or install a newer Calico"}
	}
	narrow := func(fields map[string]schema) {
		held, few := fields["held"], int64(63)
		item := *held.Items.Schema
		item.MaxLength = &few
		held.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
		fields["held"] = held
	}
	for name, c := range map[string]struct {
		why        string
		installing bool
		have       func(migrations, states *crd) []*crd
		want       []check.Finding
	}{
		"Ours": {why: "as the chart installs them", have: func(m, s *crd) []*crd { return []*crd{m, s} },
			want: []check.Finding{info(itIs + "is ours: its objects show status.machine"), info(statesAreOurs)}},
		"Peers": {why: "nothing of it is taken away, and nothing in it is needed", have: func(m, s *crd) []*crd { return []*crd{peers(m), s} },
			want: []check.Finding{info(itIsCalicos), info(statesAreOurs)}},
		"NoStates": {why: "without them nothing can be held", have: func(m, _ *crd) []*crd { return []*crd{peers(m)} },
			want: []check.Finding{info(itIsCalicos), failure(theyAre + "is not installed")}},
		"StatesPruned": {why: "what is held would be lost in the first write", have: func(m, s *crd) []*crd { return []*crd{m, edit(s, []string{"status"}, without("held"))} },
			want: []check.Finding{info(itIs + "is ours: its objects show status.machine"), failure(theyAre + "does not keep status.held in version v1alpha1")}},
		"StatesNarrow": {why: "the API server would refuse what is held", have: func(m, s *crd) []*crd { return []*crd{m, edit(s, []string{"status"}, narrow)} },
			want: []check.Finding{info(itIs + "is ours: its objects show status.machine"), failure(theyAre + "allows less in status.held[] than this release writes in version v1alpha1")}},
		"StatesWithSubresource": {why: "the finalizer and what is held change in one request", have: func(m, s *crd) []*crd {
			s.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
			return []*crd{m, s}
		}, want: []check.Finding{info(itIs + "is ours: its objects show status.machine"), failure(theyAre + "has status as a subresource: true, and not false, in version v1alpha1")}},
		"OursNarrow": {why: "an older one of ours refuses a status that a peer's would prune", have: func(m, s *crd) []*crd { return []*crd{edit(m, []string{"status", "machine"}, narrow), s} },
			want: []check.Finding{failure(itIs + "allows less in status.machine.held[] than this release writes in version v1"), info(statesAreOurs)}},
		"OursOlder": {why: "it works, but does not show everything", have: func(m, s *crd) []*crd { return []*crd{edit(m, []string{"status"}, without("verified")), s} },
			want: []check.Finding{{Level: check.Warning, Message: itIs + "is ours, of an older release: its objects do not show status.verified", Remedy: "apply it"}, info(statesAreOurs)}},
		"NoPhase": {why: "a peer's that shows nothing cannot be worked with", have: func(m, s *crd) []*crd { return []*crd{edit(peers(m), []string{"status"}, without("phase")), s} },
			want: []check.Finding{theirs("does not keep status.phase in version v1"), info(statesAreOurs)}},
		"PeersNotServed": {why: "Calico 3.32.0 has v1beta1 only, and crds.install=auto leaves it as it is", have: func(m, s *crd) []*crd { m = peers(m); m.Spec.Versions[0].Served = false; return []*crd{m, s} },
			want: []check.Finding{theirs("does not serve version v1"), info(statesAreOurs)}},
		"KeepsAll": {why: "a schema that preserves what it does not know keeps it", have: func(m, s *crd) []*crd {
			yes := true
			for i := range m.Spec.Versions {
				m.Spec.Versions[i].Schema.OpenAPIV3Schema = &schema{XPreserveUnknownFields: &yes}
			}
			return []*crd{m, s}
		}, want: []check.Finding{info(itIsCalicos), info(statesAreOurs)}},
		"NotServed": {why: "the manager speaks v1", have: func(m, s *crd) []*crd { m.Spec.Versions[0].Served = false; return []*crd{m, s} },
			want: []check.Finding{failure(itIs + "does not serve version v1"), info(statesAreOurs)}},
		"Scope": {why: "another one of the same name", have: func(m, s *crd) []*crd { m.Spec.Scope = apiextensionsv1.NamespaceScoped; return []*crd{m, s} },
			want: []check.Finding{failure(itIs + "has scope Namespaced instead of Cluster"), info(statesAreOurs)}},
		"NotEstablished": {why: "another CRD has its names", have: func(m, s *crd) []*crd {
			m.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse}}
			return []*crd{m, s}
		}, want: []check.Finding{failure(itIs + "is not Established: see its conditions with kubectl describe crd"), info(statesAreOurs)}},
		"Before": {why: "what is missing is what the chart is for; what is there is said", installing: true, have: func(m, _ *crd) []*crd { return []*crd{peers(m)} },
			want: []check.Finding{info(itIsCalicos), info(theyAre + "is not installed yet: the chart brings it")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := installed(t, Options{Controllers: []string{DatastoreMigration}, Installing: c.installing}, c.have(chartCRDs(t))...)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// The peers' own CRDs are not in this repository: the environment says where they are.
func TestRealPeers(t *testing.T) {
	for name, c := range map[string]struct{ env, file, controller, peer string }{
		"Calico":   {"CALICO_CRDS", "migration/migration.projectcalico.org_datastoremigrations.yaml", DatastoreMigration, "Calico"},
		"ToolHive": {"TOOLHIVE_CRDS", "toolhive.stacklok.dev_mcpservers.yaml", MCPServer, "ToolHive"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := os.Getenv(c.env)
			if dir == "" {
				t.Skip(c.env + " is not set")
			}
			data, err := os.ReadFile(filepath.Join(dir, c.file))
			if err != nil {
				t.Fatal(err)
			}
			d := &crd{}
			if err := yaml.Unmarshal(data, d); err != nil {
				t.Fatal(err)
			}
			_, states := chartCRDs(t)
			for _, f := range installed(t, Options{Controllers: []string{c.controller}}, d, states) {
				if f.Level != check.Info {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}
