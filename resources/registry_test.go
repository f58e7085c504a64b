package resources

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDefaultRegistry(t *testing.T) {
	reg := Default()
	var got []string
	for _, k := range reg.Kinds() {
		got = append(got, k.V1CRDName()+" -> "+k.V3CRDName())
	}
	same := func(plural string) string {
		return plural + ".crd.projectcalico.org -> " + plural + ".projectcalico.org"
	}
	want := []string{
		same("tiers"), same("felixconfigurations"), same("bgpconfigurations"), same("kubecontrollersconfigurations"),
		same("ippools"), same("ipreservations"), same("bgppeers"), same("bgpfilters"), same("globalnetworkpolicies"),
		same("networkpolicies"), same("stagedglobalnetworkpolicies"), same("stagednetworkpolicies"),
		same("stagedkubernetesnetworkpolicies"), same("hostendpoints"), same("globalnetworksets"), same("networksets"),
		"ipamconfigs.crd.projectcalico.org -> ipamconfigurations.projectcalico.org",
		same("blockaffinities"), same("ipamblocks"), same("ipamhandles"), same("caliconodestatuses"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if got := reg.Lock().Name(); got != "ClusterInformation" {
		t.Errorf("lock is %s, want ClusterInformation", got)
	}
	if got := len(reg.All()); got != 22 {
		t.Errorf("%d kinds in all, want 22", got)
	}
}

func TestThroughChangesRequestsOnly(t *testing.T) {
	reg := Default()
	door := reg.Through("v3door")
	if got, want := len(door.Kinds()), len(reg.Kinds()); got != want {
		t.Fatalf("%d kinds, want %d", got, want)
	}
	for i, kind := range door.All() {
		of := reg.All()[i]
		if kind.Name() != of.Name() || kind.V3CRDName() != of.V3CRDName() || kind.V1GVK() != of.V1GVK() {
			t.Errorf("%s became %s, %s, %s", of.Name(), kind.Name(), kind.V3CRDName(), kind.V1GVK())
		}
		want := of.V3GVK()
		want.Version = "v3door"
		if kind.V3GVK() != want || kind.V3GVR() != (schema.GroupVersionResource{Group: V3Group, Version: "v3door", Resource: of.V3Plural()}) {
			t.Errorf("%s is requested as %s, %s", of.Name(), kind.V3GVK(), kind.V3GVR())
		}
		if of.V3GVK().Version != V3Version {
			t.Errorf("the registry itself requests %s", of.V3GVK())
		}
		if found, _ := door.Kind(of.Name()); found != kind {
			t.Errorf("%s is not found by its name", of.Name())
		}
	}
}

const registryHead = "apiVersion: phasegate.dev/v1alpha1\nkind: KindRegistry\nmetadata: {name: test}\nspec:\n  kinds:\n"
const lockEntry = "  - {kind: Lock, plural: locks, scope: Cluster, lock: true}\n"

func TestLoadRegistryOrdersByDependency(t *testing.T) {
	reg, err := LoadRegistry("k.yaml", []byte(registryHead+lockEntry+
		"  - {kind: B, plural: bs, scope: Namespaced, after: [A], list: {pageSize: 7, selector: 'a=b'}}\n"+
		"  - {kind: A, plural: as, scope: Cluster}\n"))
	must(t, err)
	var got []string
	for _, k := range reg.Kinds() {
		got = append(got, k.Name())
	}
	if diff := cmp.Diff([]string{"A", "B"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	b, _ := reg.Kind("B")
	if b.PageSize() != 7 || b.Selector().String() != "a=b" || !b.Namespaced() {
		t.Errorf("B has page size %d, selector %s, namespaced %v", b.PageSize(), b.Selector(), b.Namespaced())
	}
	a, _ := reg.Kind("A")
	if a.PageSize() != defaultPageSize {
		t.Errorf("A has page size %d, want the default", a.PageSize())
	}
}

func TestLoadRegistryRefuses(t *testing.T) {
	const good = "  - {kind: A, plural: as, scope: Cluster}\n"
	for name, tc := range map[string]struct {
		data string
		want []string
		why  string
	}{
		"unknown field": {
			registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, colour: red}\n",
			[]string{"k.yaml: ", "colour"},
			"a misspelt field would silently do nothing",
		},
		"not a registry":   {"apiVersion: v1\nkind: List\n", []string{`"List"`, "KindRegistry"}, "another file was given"},
		"no YAML":          {"\t{", []string{"k.yaml: "}, "the file is named even when nothing can be read"},
		"unknown scope":    {registryHead + lockEntry + "  - {kind: A, plural: as, scope: World}\n", []string{"(A): scope:", "World"}, "there are two scopes"},
		"duplicate kind":   {registryHead + lockEntry + good + "  - {kind: A, plural: bs, scope: Cluster}\n", []string{"spec.kinds[2] (A): kind:", "spec.kinds[1]"}, "the kind is the key"},
		"duplicate plural": {registryHead + lockEntry + good + "  - {kind: B, plural: as, scope: Cluster}\n", []string{"spec.kinds[2] (B): plural:", "spec.kinds[1]"}, "one CRD cannot be two kinds"},
		"duplicate v1 plural": {
			registryHead + lockEntry + good + "  - {kind: B, plural: bs, scope: Cluster, v1: {kind: B, plural: as}}\n",
			[]string{"(B): v1.plural:"},
			"its objects would be copied twice",
		},
		"bad kind":              {registryHead + lockEntry + "  - {kind: a, plural: as, scope: Cluster}\n", []string{"kind:", "must match"}, "a kind starts with a capital"},
		"unknown after":         {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, after: [Z]}\n", []string{"(A): after:", `"Z"`}, "the kind would wait for ever"},
		"cyclic after":          {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, after: [B]}\n  - {kind: B, plural: bs, scope: Cluster, after: [A]}\n", []string{"A -> B -> A"}, "both would wait for ever"},
		"after itself":          {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, after: [A]}\n", []string{"A -> A"}, "it would wait for ever"},
		"unknown converter":     {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, converters: [magic]}\n", []string{"(A): converters:", `"magic"`, "policyName"}, "the error names those that exist"},
		"unknown admission":     {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, compare: {admissionDefaults: [magic]}}\n", []string{"compare.admissionDefaults", "tierLabel"}, "the error names those that exist"},
		"bad path":              {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, compare: {absentIsZero: [spec..a]}}\n", []string{"compare.absentIsZero", "spec..a"}, "a path that matches nothing does nothing"},
		"bad selector":          {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, list: {selector: '!!'}}\n", []string{"list.selector"}, "every list would fail"},
		"negative page size":    {registryHead + lockEntry + "  - {kind: A, plural: as, scope: Cluster, list: {pageSize: -1}}\n", []string{"list.pageSize"}, "every list would fail"},
		"no lock":               {registryHead + good, []string{"0 entries say lock: true"}, "nothing could be locked"},
		"two locks":             {registryHead + lockEntry + "  - {kind: M, plural: ms, scope: Cluster, lock: true}\n", []string{"2 entries"}, "there is one datastore lock"},
		"several at once":       {registryHead + lockEntry + "  - {kind: A, plural: as, scope: X, after: [Z]}\n", []string{"scope:", "after:"}, "one run shows all mistakes"},
		"entry of a wrong type": {registryHead + lockEntry + "  - {kind: A, plural: [as], scope: Cluster}\n", []string{"k.yaml: ", "kinds.plural"}, "the field is named; lint says where it is"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadRegistry("k.yaml", []byte(tc.data))
			if err == nil {
				t.Fatalf("accepted; %s", tc.why)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v; %s", want, err, tc.why)
				}
			}
		})
	}
}
