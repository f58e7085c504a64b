package fakeapiserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/fakeapiserver"
	"github.com/phasegate/phasegate/test/support/fakeapiserver/v1form"
)

// both returns clients for one kind on either side, in a namespace if one is given.
func both(t *testing.T, kindName, namespace string) (kind *resources.Kind, v1, v3 dynamic.ResourceInterface) {
	t.Helper()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kind, found := resources.Default().Kind(kindName)
	if !found {
		t.Fatalf("no kind %s", kindName)
	}
	if namespace == "" {
		return kind, client.Resource(kind.V1GVR()), client.Resource(kind.V3GVR())
	}
	return kind, client.Resource(kind.V1GVR()).Namespace(namespace), client.Resource(kind.V3GVR()).Namespace(namespace)
}

func listAll(ctx context.Context, t *testing.T, r dynamic.ResourceInterface, opts metav1.ListOptions) (objs []unstructured.Unstructured, pages int) {
	t.Helper()
	for {
		list, err := r.List(ctx, opts)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		objs, pages = append(objs, list.Items...), pages+1
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return objs, pages
		}
	}
}

// Runs first: the stand-in is not registered yet, and v3 is served from the CRDs.
func TestFixtureIsValidInV3(t *testing.T) {
	ctx := t.Context()
	checked := 0
	for _, kind := range resources.Default().All() {
		_, v1, _ := both(t, kind.Name(), "")
		objs, _ := listAll(ctx, t, v1, metav1.ListOptions{Limit: 200})
		if len(objs) == 0 {
			t.Errorf("no v1 %s: the fixture did not arrive", kind.Name())
		}
		for i := range objs {
			converted, err := resources.Convert(kind, &objs[i], nil)
			if err != nil {
				t.Errorf("convert: %v", err)
				continue
			}
			_, _, v3 := both(t, kind.Name(), objs[i].GetNamespace())
			if _, err := v3.Create(ctx, converted.Object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("%s %s is refused in v3: %v", kind.Name(), objs[i].GetName(), err)
			}
			checked++
		}
	}
	t.Logf("%d objects are valid in v3", checked)
}

func TestStandIn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	started := time.Now()
	stop, err := fakeapiserver.Start(ctx, cfg, resources.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("available %s after the start", time.Since(started).Round(time.Millisecond))
	defer func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	t.Run("discovery", testDiscovery)
	t.Run("list", testList)
	t.Run("selectors", testSelectors)
	t.Run("names", testNames)
	t.Run("write", testWrite)
	t.Run("status", testStatus)
	t.Run("patch", testPatch)
	t.Run("owners", testOwners)
	t.Run("watch", testWatch)
	t.Run("learnt", testLearnt)
	t.Run("refusals", testRefusals)
}

func testDiscovery(t *testing.T) {
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := disco.ServerResourcesForGroupVersion("projectcalico.org/v3")
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]bool{}, map[string]bool{}
	for _, r := range list.APIResources {
		got[r.Name+" "+r.Kind] = r.Namespaced
	}
	for _, k := range resources.Default().All() {
		want[k.V3Plural()+" "+k.Name()] = k.Namespaced()
		if k.HasStatus(nil) {
			want[k.V3Plural()+"/status "+k.Name()] = k.Namespaced()
		}
	}
	want["profiles Profile"] = false
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func testList(t *testing.T) {
	for _, kind := range resources.Default().All() {
		_, v1, v3 := both(t, kind.Name(), "")
		stored, _ := listAll(t.Context(), t, v1, metav1.ListOptions{})
		shown, pages := listAll(t.Context(), t, v3, metav1.ListOptions{Limit: 50})
		if want := (len(stored) + 49) / 50; pages != want {
			t.Errorf("%s: %d pages of 50 for %d objects, want %d", kind.Name(), pages, len(stored), want)
		}
		var want []any
		for i := range stored {
			view, err := v1form.ToV3(kind, &stored[i])
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, view.Object)
		}
		var got []any
		for i := range shown {
			got = append(got, shown[i].Object)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-stored +shown):\n%s", kind.Name(), diff)
		}
	}
}

func testSelectors(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		opts metav1.ListOptions
		want int
		why  string
	}{
		"hidden label":       {"HostEndpoint", metav1.ListOptions{LabelSelector: "environment=production"}, 12, "v1 cannot see the label"},
		"no such label":      {"HostEndpoint", metav1.ListOptions{LabelSelector: "environment=test"}, 0, "the selector must not be dropped"},
		"visible label":      {"BlockAffinity", metav1.ListOptions{LabelSelector: "projectcalico.org/ip-version=6"}, 1, "IPAM selects by it"},
		"name":               {"Tier", metav1.ListOptions{FieldSelector: "metadata.name=security"}, 1, "kubectl watches one object like this"},
		"name without match": {"Tier", metav1.ListOptions{FieldSelector: "metadata.name=nobody"}, 0, "the selector must not be dropped"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, v3 := both(t, tc.kind, "")
			if got, _ := listAll(t.Context(), t, v3, tc.opts); len(got) != tc.want {
				t.Errorf("%d objects, want %d: %s", len(got), tc.want, tc.why)
			}
		})
	}
}

// Every policy is found under its v3 name, however v1 stores it.
func testNames(t *testing.T) {
	renamed := 0
	_, _, all := both(t, "NetworkPolicy", "")
	shown, _ := listAll(t.Context(), t, all, metav1.ListOptions{})
	for i := range shown {
		_, v1, v3 := both(t, "NetworkPolicy", shown[i].GetNamespace())
		got, err := v3.Get(t.Context(), shown[i].GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("get %s: %v", shown[i].GetName(), err)
			continue
		}
		if got.GetUID() != shown[i].GetUID() {
			t.Errorf("get %s gives another object", shown[i].GetName())
		}
		if _, err := v1.Get(t.Context(), shown[i].GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
			renamed++
		}
	}
	if renamed == 0 {
		t.Error("no policy has another name in v1: the test proves nothing")
	}
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func testWrite(t *testing.T) {
	ctx := t.Context()
	kind, v1, v3 := both(t, "BlockAffinity", "")
	want := object("BlockAffinity", "node-9-10-99-0-0-26", map[string]any{
		"cidr": "10.99.0.0/26", "node": "node-9", "state": "pending", "deleted": true,
	})
	want.SetLabels(map[string]string{"projectcalico.org/ip-version": "4", "mine": "yes"})
	want.SetFinalizers([]string{"example.com/kept"})
	created, err := v3.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := v1.Get(ctx, want.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"projectcalico.org/ip-version": "4"}, stored.GetLabels()); diff != "" {
		t.Errorf("labels visible in v1 (-want +got):\n%s", diff)
	}
	if deleted, _, _ := unstructured.NestedFieldNoCopy(stored.Object, "spec", "deleted"); deleted != "true" {
		t.Errorf("spec.deleted is %#v in v1, want the string true", deleted)
	}
	if uid, _ := resources.ReverseUID(stored.GetUID()); uid != created.GetUID() {
		t.Errorf("uid %s does not belong to the stored %s", created.GetUID(), stored.GetUID())
	}

	stale := created.DeepCopy()
	if err := unstructured.SetNestedField(created.Object, "confirmed", "spec", "state"); err != nil {
		t.Fatal(err)
	}
	updated, err := v3.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.SetResourceVersion(updated.GetResourceVersion())
	if diff := cmp.Diff(created.Object, updated.Object); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	if _, err := v3.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of a stale object: %v, want a conflict", err)
	}

	other := types.UID("0e5e3214-5bda-429e-8d53-2f1b77363286")
	for _, tc := range []struct {
		uid  types.UID
		want func(error) bool
	}{{other, apierrors.IsConflict}, {updated.GetUID(), func(err error) bool { return err == nil }}, {updated.GetUID(), apierrors.IsNotFound}} {
		err := v3.Delete(ctx, want.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &tc.uid}})
		if !tc.want(err) {
			t.Errorf("delete %s with uid %s: %v", kind.Name(), tc.uid, err)
		}
	}
}

func testStatus(t *testing.T) {
	ctx := t.Context()
	_, _, v3 := both(t, "CalicoNodeStatus", "")
	patch := []byte(`{"status":{"lastUpdated":"2026-07-01T00:00:00Z"},"spec":{"node":"ignored"}}`)
	if _, err := v3.Patch(ctx, "status-node-0", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	got, err := v3.Get(ctx, "status-node-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	updated, _, _ := unstructured.NestedString(got.Object, "status", "lastUpdated")
	node, _, _ := unstructured.NestedString(got.Object, "spec", "node")
	if diff := cmp.Diff([]string{"2026-07-01T00:00:00Z", "node-0"}, []string{updated, node}); diff != "" {
		t.Errorf("lastUpdated and node (-want +got):\n%s", diff)
	}
}

func testPatch(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    types.PatchType
		patch   string
		wantErr func(error) bool
		want    map[string]string
		why     string
	}{
		"merge": {types.MergePatchType, `{"metadata":{"labels":{"team":"a"}}}`, nil, map[string]string{"team": "a"}, "the label is hidden in v1"},
		"json":  {types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"team":"b"}}]`, nil, map[string]string{"team": "b"}, "replaces the map"},
		"stale": {types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`, apierrors.IsConflict, nil, "an optimistic lock holds through the stand-in"},
		"apply": {types.ApplyPatchType, `{}`, apierrors.IsUnsupportedMediaType, nil, "not offered"},
		"junk":  {types.MergePatchType, `[`, apierrors.IsBadRequest, nil, "the caller's fault"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, v3 := both(t, "Tier", "")
			tier := object("Tier", "patched-"+name, map[string]any{"defaultAction": "Pass", "order": int64(7)})
			if _, err := v3.Create(t.Context(), tier, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			opts := metav1.PatchOptions{}
			if tc.kind == types.ApplyPatchType {
				opts.FieldManager = "test"
			}
			got, err := v3.Patch(t.Context(), tier.GetName(), tc.kind, []byte(tc.patch), opts)
			if tc.wantErr != nil {
				if !tc.wantErr(err) {
					t.Errorf("error %v: %s", err, tc.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.GetLabels()); diff != "" {
				t.Errorf("labels, %s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// v3 shows the uid of the owner's v3 view; v1 stores the raw one.
func testOwners(t *testing.T) {
	_, _, tiers := both(t, "Tier", "")
	tier, err := tiers.Get(t.Context(), "security", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, policies := both(t, "GlobalNetworkPolicy", "")
	policy, err := policies.Get(t.Context(), "security.owned-07", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: "projectcalico.org/v3", Kind: "Tier", Name: "security", UID: tier.GetUID()}}
	if diff := cmp.Diff(want, policy.GetOwnerReferences()); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

func testWatch(t *testing.T) {
	ctx := t.Context()
	_, v1, v3 := both(t, "IPReservation", "")
	list, err := v3.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := v3.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	// Written on the v1 side, seen on the v3 side.
	raw := object("IPReservation", "watched", map[string]any{"reservedCIDRs": []any{"10.9.0.0/24"}})
	raw.SetAPIVersion("crd.projectcalico.org/v1")
	if _, err := v1.Create(ctx, raw, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v1.Patch(ctx, "watched", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := v1.Delete(ctx, "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for event := range w.ResultChan() {
		obj := event.Object.(*unstructured.Unstructured)
		got = append(got, fmt.Sprintf("%s %s %s", event.Type, obj.GetAPIVersion(), obj.GetName()))
		if event.Type == watch.Deleted {
			break
		}
	}
	want := []string{
		"ADDED projectcalico.org/v3 watched", "MODIFIED projectcalico.org/v3 watched", "DELETED projectcalico.org/v3 watched",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func testRefusals(t *testing.T) {
	_, _, info := both(t, "ClusterInformation", "")
	if _, err := info.Create(t.Context(), object("ClusterInformation", "other", map[string]any{}), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create ClusterInformation: %v, want it to be forbidden", err)
	}
	_, _, tiers := both(t, "Tier", "")
	_, err := tiers.Create(t.Context(), object("Tier", "security", map[string]any{"order": int64(1), "defaultAction": "Pass"}), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("create a Tier that exists: %v, want AlreadyExists", err)
	}
	_, err = tiers.Get(t.Context(), "nobody", metav1.GetOptions{})
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		t.Fatalf("get what is not there: %v, want a Status", err)
	}
	if diff := cmp.Diff(&metav1.StatusDetails{Name: "nobody", Group: "projectcalico.org", Kind: "tiers"}, status.ErrStatus.Details); diff != "" || !apierrors.IsNotFound(err) {
		t.Errorf("get what is not there: %v (-want +got):\n%s", err, diff)
	}
}
