package datastoremigration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/resources"
)

func TestIsReady(t *testing.T) {
	cases := map[string]struct {
		why  string
		spec map[string]any
		want bool
	}{
		"true":       {why: "open", spec: map[string]any{"datastoreReady": true}, want: true},
		"false":      {why: "locked", spec: map[string]any{"datastoreReady": false}},
		"absent":     {why: "Calico takes absent for open", spec: map[string]any{}, want: true},
		"no spec":    {why: "Calico takes absent for open", want: true},
		"null":       {why: "null is not a lock that anybody has set", spec: map[string]any{"datastoreReady": nil}, want: true},
		"not a bool": {why: "only a plain false locks", spec: map[string]any{"datastoreReady": "false"}, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			info := &unstructured.Unstructured{Object: map[string]any{}}
			if c.spec != nil {
				info.Object["spec"] = c.spec
			}
			if got := isReady(info); got != c.want {
				t.Errorf("got %t: %s", got, c.why)
			}
		})
	}
}

// Through the annotation and back: every field that a person or a tool may have set.
func TestSavedAPIServiceComesBackWhole(t *testing.T) {
	port, yes := int32(8443), true
	original := apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:   apiServiceName,
			Labels: map[string]string{"app": "calico", "empty": ""}, Annotations: map[string]string{"note": "a \"quoted\" <line>\n€"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "operator.tigera.io/v1", Kind: "APIServer", Name: "default", UID: "u", Controller: &yes, BlockOwnerDeletion: &yes}},
			Finalizers:      []string{"a.b/c"},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Service: &apiregistrationv1.ServiceReference{Namespace: "calico-apiserver", Name: "calico-api", Port: &port},
			Group:   "projectcalico.org", Version: "v3",
			CABundle: []byte{0, 1, 2, 0xff, '\n'}, GroupPriorityMinimum: 1500, VersionPriority: 200,
		},
	}
	insecure := *original.DeepCopy()
	insecure.Spec.CABundle, insecure.Spec.InsecureSkipTLSVerify, insecure.Spec.Service.Port = nil, true, nil
	bare := apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName}, Spec: apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: "n", Name: "s"}, Group: "projectcalico.org", Version: "v3"}}

	for name, want := range map[string]apiregistrationv1.APIService{"all fields": original, "insecure": insecure, "bare": bare} {
		t.Run(name, func(t *testing.T) {
			served := want.DeepCopy()
			served.UID, served.ResourceVersion, served.CreationTimestamp = "server", "12", metav1.NewTime(since)
			served.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator"}}
			served.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available}}
			text, err := saveAPIService(served)
			must(t, err)
			saved := &apiregistrationv1.APIService{}
			must(t, json.Unmarshal([]byte(text), saved))
			created := apiregistrationv1.APIService{}
			copyOnto(&created, saved)
			if diff := cmp.Diff(want, created); diff != "" {
				t.Errorf("made anew: not what was saved, or with what only the server may set (-want +got):\n%s", diff)
			}
			disabled := apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName, UID: "disabled", ResourceVersion: "20",
				Labels: map[string]string{automanagedLabel: "true"}}}
			copyOnto(&disabled, saved)
			wantDisabled := *want.DeepCopy()
			wantDisabled.UID, wantDisabled.ResourceVersion = "disabled", "20"
			if diff := cmp.Diff(wantDisabled, disabled); diff != "" {
				t.Errorf("put back in place: our label must go, the identity stay (-want +got):\n%s", diff)
			}
			again, err := saveAPIService(&created)
			if err != nil || again != text {
				t.Errorf("saved again (%v):\n%s\nwant\n%s", err, again, text)
			}
		})
	}
}

func TestUnusableCRD(t *testing.T) {
	kind, ok := resources.Default().Kind("NetworkPolicy")
	if !ok {
		t.Fatal("the registry has no NetworkPolicy")
	}
	cases := map[string]struct {
		why    string
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   string
	}{
		"usable": {why: "Calico's own", change: func(*apiextensionsv1.CustomResourceDefinition) {}},
		"being deleted": {why: "its objects go with it", want: "is being deleted: wait, then apply it again",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.DeletionTimestamp = at(0) }},
		"other scope": {why: "every copy would be refused", want: "has scope Cluster instead of Namespaced",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = apiextensionsv1.ClusterScoped }},
		"other version": {why: "v3 would not be served", want: "does not serve and store v3",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Name = "v4" }},
		"not served": {why: "v3 would not be served", want: "does not serve and store v3",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Served = false }},
		"not stored": {why: "another version's schema would prune what we write", want: "does not serve and store v3",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Storage = false }},
		"not established": {why: "a name may be taken by another CRD", want: "is not Established: see its conditions with kubectl describe crd",
			change: func(c *apiextensionsv1.CustomResourceDefinition) {
				c.Status.Conditions[0].Status = apiextensionsv1.ConditionFalse
			}},
		"no status": {why: "the server has not looked at it", want: "is not Established: see its conditions with kubectl describe crd",
			change: func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{Scope: apiextensionsv1.NamespaceScoped,
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v3", Served: true, Storage: true}}},
				Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
					{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}},
			}
			c.change(crd)
			if got := unusable(crd, kind); got != c.want {
				t.Errorf("got %q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}

func TestGoesBefore(t *testing.T) {
	type side struct {
		age        time.Duration
		uid        types.UID
		phase      string
		held       []string
		finalizers []string
	}
	fin := []string{"x"}
	cases := map[string]struct {
		why       string
		other, dm side
		want      bool
	}{
		"older, both new":       {why: "first come, first served", other: side{age: 2, uid: "b"}, dm: side{age: 1, uid: "a"}, want: true},
		"younger, both new":     {why: "first come, first served", other: side{age: 1, uid: "a"}, dm: side{age: 2, uid: "b"}},
		"twins, lower UID":      {why: "one and only one of two of the same second goes first", other: side{uid: "a"}, dm: side{uid: "b"}, want: true},
		"twins, higher UID":     {why: "one and only one of two of the same second goes first", other: side{uid: "b"}, dm: side{uid: "a"}},
		"younger, has begun":    {why: "who has its finalizer has passed this very check", other: side{age: 1, phase: "Pending", finalizers: fin}, dm: side{age: 2}, want: true},
		"younger, in its check": {why: "it has not passed yet, and will see us", other: side{age: 1, phase: "Pending"}, dm: side{age: 2}},
		"older, rejected":       {why: "it will never do anything", other: side{age: 2, phase: "Rejected"}, dm: side{age: 1}},
		"older, failed":         {why: "it has released everything", other: side{age: 2, phase: "Failed", finalizers: fin}, dm: side{age: 1}},
		"failed, but holding":   {why: "the ledger counts more than the phase", other: side{age: 1, phase: "Failed", held: []string{"v1Lock"}}, dm: side{age: 2}, want: true},
		"younger, complete":     {why: "its clean-up would delete what we read from", other: side{age: 1, phase: "Complete", finalizers: fin, held: []string{"v1Lock"}}, dm: side{age: 2}, want: true},
	}
	build := func(s side) *migration {
		dm := &migration{ObjectMeta: metav1.ObjectMeta{UID: s.uid, Finalizers: s.finalizers, CreationTimestamp: metav1.NewTime(since.Add(-s.age * time.Hour))}}
		dm.Status.Machine.Phase, dm.Status.Machine.Held = s.phase, v1alpha1.Held(s.held...)
		return dm
	}
	machines := files(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for file, m := range machines {
				if got := goesBefore(m, as(file, build(c.other)), as(file, build(c.dm))); got != c.want {
					t.Errorf("%s file: got %t: %s", file, got, c.why)
				}
			}
		})
	}
}

func TestTooLittleMemory(t *testing.T) {
	cases := map[string]struct {
		why            string
		objects, limit int64
		says           []string // empty: it is enough
	}{
		"the chart's limit, 100,000 objects": {why: "a large cluster needs no setting", objects: 100_000, limit: 512 << 20},
		"the chart's limit, 300,000 objects": {why: "it would be killed under the lock", objects: 300_000, limit: 512 << 20,
			says: []string{"300000 objects need some 567 MiB", "it may use 512 MiB", "limits.memory=568Mi"}},
		"no objects": {why: "the program itself needs some", limit: 64 << 20, says: []string{"need some 128 MiB"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found := tooLittleMemory(c.objects, c.limit)
			if (len(found) == 0) != (len(c.says) == 0) {
				t.Fatalf("got %v: %s", found, c.why)
			}
			for _, part := range c.says {
				if text := found[0].Message + ": " + found[0].Remedy; !strings.Contains(text, part) {
					t.Errorf("it does not say %q: %s", part, text)
				}
			}
		})
	}
}
