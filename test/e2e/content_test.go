package e2e

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/support/crds"
)

// content maps every object of v3 except the lock to what a user of v3 cares about. Read while the
// aggregated API server answers, it is what users saw before; that is what they must see afterwards.
func (w *world) content(t *testing.T) map[string]any {
	t.Helper()
	w.warm(t)
	all := map[string]any{}
	for _, kind := range w.Registry.Kinds() {
		for _, obj := range w.list(t, kind.V3GVK()) {
			if _, twice := all[key(obj)]; twice {
				t.Errorf("%s is listed twice", key(obj))
			}
			all[key(obj)] = essence(obj)
		}
	}
	return all
}

// warm asks for all kinds of v3 at once. After a CRD has changed, the API server begins to serve it at the
// first request, which waits for a second: one after the other they would take 21.
func (w *world) warm(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, kind := range w.Registry.Kinds() {
		all.Go(func() {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind.V3GVK())
			_ = w.Client.List(t.Context(), list, client.Limit(1)) // who needs the kind will be told what is wrong
		})
	}
	all.Wait()
}

// essence leaves out what the server manages, the status and our own notes. An owner keeps its name; its
// uid is another one in v3, and one that was written by kubectl shows its old group before.
func essence(obj *unstructured.Unstructured) map[string]any {
	obj = admitted(obj)
	annotations := obj.GetAnnotations()
	delete(annotations, migrationv1.AnnotationMigratedBy)
	delete(annotations, resources.CopiedVersionAnnotation)
	delete(annotations, migrationv1.AnnotationBarrier)
	owners := map[string]any{}
	for _, ref := range obj.GetOwnerReferences() {
		owners[strings.Replace(ref.APIVersion, resources.V1Group+"/"+resources.V1Version, v3, 1)+" "+ref.Kind+" "+ref.Name] = true
	}
	out := map[string]any{
		"apiVersion": obj.GetAPIVersion(), "labels": anyMap(obj.GetLabels()), "annotations": anyMap(annotations),
		"finalizers": anySlice(obj.GetFinalizers()), "owners": owners,
	}
	for field, value := range obj.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, field) {
			out[field] = value
		}
	}
	return out
}

// admitted has what v1 leaves to others and every copy says: what Calico's programs make of it, and the label that
// its API server or its admission policies set.
func admitted(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	spec, _ := obj.Object["spec"].(map[string]any)
	if obj.GetKind() == "IPAMConfiguration" && spec["autoAllocateBlocks"] == nil {
		spec["autoAllocateBlocks"] = false
	}
	if !strings.HasSuffix(obj.GetKind(), "NetworkPolicy") {
		return obj
	}
	field, none := "types", []any{"Ingress", "Egress"}
	if obj.GetKind() == "StagedKubernetesNetworkPolicy" {
		field, none = "policyTypes", []any{"Ingress"}
	} else {
		labels := obj.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[tierLabel] = spec["tier"].(string)
		obj.SetLabels(labels)
	}
	if spec["preDNAT"] == true {
		none = []any{"Ingress"}
	}
	if list, _ := spec[field].([]any); len(list) == 0 && spec["stagedAction"] != "Delete" {
		spec[field] = none
	}
	return obj
}

const tierLabel = "projectcalico.org/tier"

// assertAdmitted looks for what essence overlooks, in a cluster without Calico's mutating policies.
func (w *world) assertAdmitted(t *testing.T) {
	t.Helper()
	policies := 0
	for _, kind := range w.Registry.Kinds() {
		for _, obj := range w.list(t, kind.V3GVK()) {
			if want := admitted(obj); !cmp.Equal(want.Object, obj.Object) {
				t.Errorf("a copy lacks what Calico fills in (-want +got):\n%s", cmp.Diff(want.Object, obj.Object))
			}
			if strings.HasSuffix(obj.GetKind(), "NetworkPolicy") {
				policies++
			}
		}
	}
	if policies == 0 {
		t.Error("there is no policy to look at")
	}
}

func anyMap(in map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		out[k] = v
	}
	return out
}

func anySlice(in []string) []any {
	out := []any{}
	for _, v := range in {
		out = append(out, v)
	}
	return out
}

// assertSameContent checks that nothing was lost. The schemas and policies of the real CRDs add values
// (defaults, types, tier labels); under generated ones nothing may be added either.
func assertSameContent(t *testing.T, before, after map[string]any) {
	t.Helper()
	var diffs []string
	lost("", before, after, &diffs)
	if os.Getenv(crds.EnvDir) == "" {
		var added []string
		lost("", after, before, &added)
		for _, a := range added {
			diffs = append(diffs, "the other way round: "+a)
		}
	}
	for _, d := range slices.Compact(diffs[:min(len(diffs), 20)]) {
		t.Error(d)
	}
}

// lost notes every path at which have lacks what want has.
func lost(path string, want, have any, diffs *[]string) {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			*diffs = append(*diffs, fmt.Sprintf("%s: a mapping is gone", path))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			got, found := have[k]
			if !found {
				*diffs = append(*diffs, fmt.Sprintf("%s.%s is gone, it was %v", path, k, want[k]))
				continue
			}
			lost(path+"."+k, want[k], got, diffs)
		}
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			*diffs = append(*diffs, fmt.Sprintf("%s is %v, it was %v", path, have, want))
			return
		}
		for i := range want {
			lost(path+"["+strconv.Itoa(i)+"]", want[i], have[i], diffs)
		}
	default:
		if !reflect.DeepEqual(want, have) {
			*diffs = append(*diffs, fmt.Sprintf("%s is %v, it was %v", path, have, want))
		}
	}
}
