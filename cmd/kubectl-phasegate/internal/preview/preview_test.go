package preview_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/preview"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration"
	"github.com/phasegate/phasegate/fsm/fsmtest"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// policy is a conflict of an object with another name in v1, and with a quote in it.
func policy(t *testing.T) (copier.Conflict, datastoremigration.Both) {
	t.Helper()
	return copier.Conflict{Kind: "NetworkPolicy", Namespace: "shop", Name: "web", Cause: copier.CauseUnmanaged,
			Fields: []resources.FieldDiff{{Path: "spec.selector", Want: `"app == 'web'"`, Have: `"all()"`}}},
		datastoremigration.Both{
			V1: object(t, "metadata: {name: default.web, namespace: shop}"),
			Want: object(t, `{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: web, namespace: shop, uid: a, labels: {a: b}},
			  spec: {selector: "app == 'web'", order: 10}}`),
			Have: object(t, `{apiVersion: projectcalico.org/v3precopy, kind: NetworkPolicy, metadata: {name: web, namespace: shop, uid: b, resourceVersion: "5"},
			  spec: {selector: "all() || x == 'y'", order: 10}}`)}
}

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		why    string
		site   preview.Site
		gone   bool
		v1, v3 string
	}{
		"through the side door": {why: "v3 is hidden behind Calico's API server, which writes v1",
			site: preview.Site{Version: migrationv1.SideDoorVersion, Migration: "to-v3"},
			v1:   "kubectl delete networkpolicies.v3precopy.projectcalico.org web -n shop",
			v3:   `kubectl patch networkpolicies.v3.projectcalico.org web -n shop --type merge -p '{"metadata":{"labels":{"a":null}},"spec":{"selector":"all() || x == '\''y'\''"}}'`},
		"v3 is served": {why: "both sides can be written, v1 in its own form and by its own name",
			site: preview.Site{Version: "v3", Migration: "to-v3"},
			v1:   "kubectl delete networkpolicies.v3.projectcalico.org web -n shop",
			v3:   "kubectl edit networkpolicies.crd.projectcalico.org default.web -n shop"},
		"locked": {why: "nobody can write v1",
			site: preview.Site{Version: "v3", Migration: "to-v3", Locked: true},
			v1:   "kubectl delete networkpolicies.v3.projectcalico.org web -n shop",
			v3:   "kubectl phasegate abort to-v3 --wait"},
		"one side went": {why: "nothing is known that could be written", gone: true,
			site: preview.Site{Version: migrationv1.SideDoorVersion, Migration: "to-v3"},
			v1:   "kubectl delete networkpolicies.v3precopy.projectcalico.org web -n shop",
			v3:   "kubectl phasegate conflicts to-v3"},
	} {
		t.Run(name, func(t *testing.T) {
			conflict, both := policy(t)
			if c.gone {
				both.Have = nil
			}
			c.site.Registry = resources.Default()
			got, err := c.site.Resolve(conflict, both, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{c.v1, c.v3}, []string{got.KeepV1.Command, got.KeepV3.Command}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestTexts(t *testing.T) {
	conflict, both := policy(t)
	site := preview.Site{Registry: resources.Default(), Version: migrationv1.SideDoorVersion, Migration: "to-v3"}
	resolved, err := site.Resolve(conflict, both, true)
	if err != nil {
		t.Fatal(err)
	}
	edited := resolved
	edited.Cause, edited.Diff = copier.CauseEdited, ""
	some := preview.Conflicts{Migration: "to-v3", Conflicts: []preview.Conflict{resolved, edited}}
	plan := func(change func(*preview.Plan)) *preview.Plan {
		p := &preview.Plan{Migration: "to-v3"}
		p.Copies(copier.Plan{Total: 12, Kinds: []copier.KindProgress{
			{Kind: "Tier", Counts: copier.Counts{Total: 3, Planned: 3}}, {Kind: "IPPool"}, {Kind: "GlobalNetworkSet", Counts: copier.Counts{Total: 9, Planned: 9}}}})
		if err := p.Checked(nil); err != nil {
			t.Fatal(err)
		}
		change(p)
		p.Expect(nil, answers(p), 0)
		return p
	}
	only := slices.Repeat([]resources.Problem{{Kind: "NetworkSet", Namespace: "shop", Name: "old", Reason: resources.ReasonOnlyInV3,
		Message: "is in v3 only, and in force as soon as v3 is open: no migration has made it", Remedy: "delete it, unless v3 is to have it: kubectl delete it"}}, 7)
	for name, write := range map[string]func(*strings.Builder) error{
		"conflicts": func(b *strings.Builder) error { return some.Text(b) },
		"none":      func(b *strings.Builder) error { return (&preview.Conflicts{}).Text(b) },
		"unseen": func(b *strings.Builder) error {
			return (&preview.Conflicts{Unseen: "the aggregated API server serves v3"}).Text(b)
		},
		"plan-fit": func(b *strings.Builder) error {
			return plan(func(p *preview.Plan) {
				p.Filled = []copier.Filled{{Kind: "GlobalNetworkPolicy", Field: "spec.types", Value: `["Ingress","Egress"]`, Objects: 3},
					{Kind: "IPPool", Field: "spec.blockSize", Value: "26", Objects: 1, By: copier.ByAdmission}}
			}).Text(b, true)
		},
		"plan-unfit": func(b *strings.Builder) error {
			return plan(func(p *preview.Plan) {
				p.Kinds[2].Copied, p.Kinds[2].Rejected = 8, 1
				p.Rejected = []resources.Problem{{Kind: "GlobalNetworkSet", Name: "bad", Reason: resources.ReasonInvalid, Message: `spec.nets[0]: Invalid value: "x": must be a CIDR`, Remedy: "correct the v1 object"}}
				p.Conflicts, p.Unasked = some, "the aggregated API server serves v3"
				p.Skips([]copier.Skipped{{Kind: "Tier", Name: "old", Why: copier.SkippedTerminating}}, 0)
				p.Compared(copier.Comparison{Equal: []copier.Skipped{{Kind: "GlobalNetworkSet", Name: "equal", Why: copier.SkippedEqual}}, OnlyInV3: only})
				p.Dependents, p.DependentsUnseen = []string{"ConfigMap a/a", "ConfigMap a/b", "ConfigMap a/c", "ConfigMap a/d", "ConfigMap a/e", "ConfigMap a/f"}, []string{"secrets"}
				p.Blockers, p.Warnings = []string{"lock: the datastore is locked: find out who did it"}, []string{"copy-ahead: v1 will stay locked: grant it"}
			}).Text(b, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			fsmtest.Golden(t, "testdata/"+name+".txt", b.String())
		})
	}
}

// answers are those of a cluster where nothing is copied ahead, if the plan says so.
func answers(p *preview.Plan) []check.Answer {
	a := check.Answer{Check: check.Check{ID: datastoremigration.CopyAheadCheck}}
	if len(p.Warnings) > 0 {
		a.Findings = []check.Finding{{Level: check.Warning}}
	}
	return []check.Answer{a}
}

func TestExpect(t *testing.T) {
	measured := &migrationv1.CopyAhead{State: migrationv1.CopyAheadOpen, ExpectedLockSeconds: 4, Message: "expected: much"}
	for name, c := range map[string]struct {
		why   string
		ahead *migrationv1.CopyAhead
		want  preview.Lock
	}{
		"before":   {"nobody has copied yet", nil, preview.Lock{Seconds: 2, Basis: "1.5s for the cut-over, 0.0s to compare 1000 objects, 0 withheld owners to add at 500 a second"}},
		"measured": {"the migration knows better", measured, preview.Lock{Seconds: 4, Basis: "measured by the migration, expected: much"}},
		"refused": {"the copy comes on top, and nobody has measured it", &migrationv1.CopyAhead{State: migrationv1.CopyAheadRefused},
			preview.Lock{Seconds: 2, AtLeast: true, Basis: "1.5s for the cut-over, 0.0s to compare 1000 objects, 0 withheld owners to add at 500 a second; all 1000 objects are copied under the lock, too"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := preview.Plan{Objects: 1000}
			p.Expect(c.ahead, nil, 0)
			if diff := cmp.Diff(c.want, p.Lock); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// A check without an answer is no plan; whoever calls it decides what to do about it.
func TestChecked(t *testing.T) {
	broken := errors.New("no answer")
	p := preview.Plan{}
	err := p.Checked([]check.Answer{{Check: check.Check{ID: "lock"}, Err: broken}, {Check: check.Check{ID: "fence"}, Findings: []check.Finding{{Level: check.Failure, Message: "no"}}}})
	if !errors.Is(err, broken) || len(p.Blockers) != 1 || p.Warnings == nil {
		t.Errorf("error %v, blockers %v, warnings %v", err, p.Blockers, p.Warnings)
	}
}
