package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/test/peers/calico"
	"github.com/phasegate/phasegate/test/support/fakeapiserver/v1form"
	"github.com/phasegate/phasegate/test/support/fixture"
	"github.com/phasegate/phasegate/test/support/setup"
)

// What docs/operate/real-programs.md says of these variables.
const (
	allocationsEnv = "REAL_ALLOCATIONS"
	reportEnv      = "REAL_REPORT"
)

// allocationsShort is how many addresses the plugin gives where nothing else is asked for.
const allocationsShort = 36

// cniAccount is who the CNI plugin is.
const cniAccount = "calico-cni"

// realCluster is a cluster on which Calico's own API server serves v3, with objects that were created through it.
type realCluster struct {
	*world
	release calico.Release
	server  *calico.Server
	plugin  calico.Plugin
}

// realCalico skips the test where a program is not there. The API server is always asked for.
func realCalico(t *testing.T, programs ...calico.Program) *realCluster {
	t.Helper()
	return realCalicoWithout(t, func(*unstructured.Unstructured) bool { return false }, programs...)
}

// realCalicoWithout leaves some objects away.
func realCalicoWithout(t *testing.T, left func(*unstructured.Unstructured) bool, programs ...calico.Program) *realCluster {
	t.Helper()
	r := &realCluster{release: calico.ForTest(t, append(programs, calico.APIServer)...)}
	r.world = own(t, setup.Options{Objects: []*unstructured.Unstructured{}, Aggregated: func(ctx context.Context, s *setup.Setup) (end func() error, err error) {
		if r.server, err = r.release.StartAPIServer(ctx, s.Cluster); err != nil {
			return nil, err
		}
		return r.server.End, nil
	}})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what Calico's API server said:\n%s", r.server.Tail(25))
		}
	})
	r.do(t, r.Grant(t.Context(), cniAccount, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}))
	r.plugin = calico.Plugin{Release: r.release, Kubeconfig: r.KubeconfigOf(cniAccount), Dir: t.TempDir()}
	r.createAll(t, slices.DeleteFunc(wanted(t, r.Registry), left))
	return r
}

// createAll applies objects of every kind that the API server serves, as a GitOps tool does, and writes what has a status.
func (r *realCluster) createAll(t *testing.T, all []*unstructured.Unstructured) {
	t.Helper()
	counts, refused := map[string]int{}, []string{}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a), rank(b)) })
	for _, obj := range all {
		r.ensureNamespace(t, obj.GetNamespace())
		r.nameOwners(t, obj)
		status := obj.Object["status"]
		delete(obj.Object, "status")
		err := r.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj.DeepCopy()), client.FieldOwner(gitOps), client.ForceOwnership)
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", calico.Key(obj), err))
			continue
		}
		counts[obj.GetKind()]++
		if status != nil {
			r.writeStatus(t, obj, status)
		}
	}
	t.Logf("created through Calico's API server: %v", counts)
	for _, why := range refused {
		t.Errorf("refused by Calico's API server: %.300s", why)
	}
	for _, kind := range r.Registry.Kinds() {
		if counts[kind.Name()] == 0 && r.served(t, kind) && kind.Name() != "BlockAffinity" { // the plugin makes those
			t.Errorf("there is no %s", kind.Name())
		}
	}
}

// rank puts first what others name.
func rank(obj *unstructured.Unstructured) int {
	if at := slices.Index([]string{"Tier", "BGPFilter"}, obj.GetKind()); at >= 0 {
		return at
	}
	return 2
}

func (r *realCluster) ensureNamespace(t *testing.T, name string) {
	t.Helper()
	if name == "" {
		return
	}
	if err := r.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrs.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// nameOwners gives owners the UID and the API version that the API server reports.
func (r *realCluster) nameOwners(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	owners := obj.GetOwnerReferences()
	for i, ref := range owners {
		owner := r.get(t, v3, ref.Kind, ref.Name)
		owners[i].APIVersion, owners[i].UID = owner.GetAPIVersion(), owner.GetUID()
	}
	if len(owners) > 0 {
		obj.SetOwnerReferences(owners)
	}
}

func (r *realCluster) writeStatus(t *testing.T, obj *unstructured.Unstructured, status any) {
	t.Helper()
	live := obj.DeepCopy()
	r.do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), live))
	live.Object["status"] = status
	r.do(t, r.Client.Status().Update(t.Context(), live))
}

// served tells whether v3 has a kind at this moment.
func (r *realCluster) served(t *testing.T, kind *resources.Kind) bool {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.V3GVK())
	err := r.Client.List(t.Context(), list, client.Limit(1))
	if err != nil && !apierrs.IsNotFound(err) && !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	return err == nil
}

// wanted are objects in v3's form of all kinds that people write, owners first: those of the fixture, as the API server
// would show them.
func wanted(t *testing.T, reg *resources.Registry) (all []*unstructured.Unstructured) {
	t.Helper()
	made := []string{"IPAMBlock", "IPAMHandle", "BlockAffinity", "ClusterInformation"} // by the programs themselves
	for _, kind := range reg.All() {
		for _, v1 := range fixture.Demo(1, objects) {
			if v1.GetKind() != kind.V1Kind() || slices.Contains(made, kind.Name()) {
				continue
			}
			v1.SetUID("0e5e3214-5bda-429e-8d53-2f1b77363286")
			conv, err := resources.Convert(kind, v1, nil)
			if err != nil {
				t.Fatal(err)
			}
			obj := conv.Object
			if conv.Status != nil {
				obj.Object["status"] = conv.Status
			}
			obj.SetOwnerReferences(conv.Owners)
			all = append(all, settled(obj))
		}
	}
	return all
}

// settled is an object that the API server takes: it is stricter than the schema of v1. With it the plugin gives addresses,
// and kube-controllers opens no port.
func settled(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj = obj.DeepCopy()
	spec, ok := obj.Object["spec"].(map[string]any)
	switch {
	case !ok:
	case obj.GetKind() == "IPAMConfiguration":
		spec["autoAllocateBlocks"], spec["strictAffinity"] = true, false
	case obj.GetKind() == "KubeControllersConfiguration":
		spec["prometheusMetricsPort"] = int64(0)
	case obj.GetKind() == "BGPConfiguration" && obj.GetName() != "default":
		delete(spec, "asNumber")
	case spec["stagedAction"] == "Delete":
		obj.Object["spec"] = map[string]any{"stagedAction": "Delete", "tier": spec["tier"]}
	}
	return obj
}

// seen are all objects of v3 that a client gets now. Of kinds that v3 does not have now, they are those that Calico's
// programs get: the v1 objects, read as these do.
func (r *realCluster) seen(t *testing.T) calico.Objects {
	t.Helper()
	r.warm(t)
	all := calico.Objects{}
	for _, kind := range r.Registry.All() {
		if r.served(t, kind) {
			for _, obj := range r.list(t, kind.V3GVK()) {
				all[calico.Key(obj)] = obj
			}
			continue
		}
		for _, v1 := range r.list(t, kind.V1GVK()) {
			obj, err := v1form.ToV3(kind, v1)
			r.do(t, err)
			all[calico.Key(obj)] = obj
		}
	}
	return all
}

// allocations is how many addresses are asked for.
func allocations(t *testing.T) int {
	t.Helper()
	text := os.Getenv(allocationsEnv)
	if text == "" {
		return allocationsShort
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", allocationsEnv, err)
	}
	return n
}

// allocate asks for n addresses on all nodes, and releases every fourth.
func (r *realCluster) allocate(t *testing.T, prefix string, n int) (held map[string]string) {
	t.Helper()
	held = map[string]string{}
	for i := range n {
		pod := calico.Pod{Name: fmt.Sprintf("%s-%03d", prefix, i), Node: fmt.Sprintf("node-%d", i%3)}
		address, err := r.plugin.Add(t.Context(), pod, "")
		r.do(t, err)
		if held[pod.Name] = address; i%4 == 3 {
			r.do(t, r.plugin.Del(t.Context(), pod, ""))
			delete(held, pod.Name)
		}
	}
	return held
}

// assigned are the addresses of the plugin's pods by pod, as blocks and handles have them, in a group. An address that a
// pod has twice is there twice.
func (r *realCluster) assigned(t *testing.T, kind *resources.Kind, version string) map[string][]string {
	t.Helper()
	gvk := kind.V3GVK()
	if version == v1 {
		gvk = kind.V1GVK()
	}
	found := map[string][]string{}
	for _, block := range r.list(t, gvk) {
		cidr, _, _ := unstructured.NestedString(block.Object, "spec", "cidr")
		slots, _, _ := unstructured.NestedSlice(block.Object, "spec", "allocations")
		attributes, _, _ := unstructured.NestedSlice(block.Object, "spec", "attributes")
		for at, slot := range slots {
			index, taken := slot.(int64)
			if !taken {
				continue
			}
			attribute := attributes[index].(map[string]any)
			owner, _, _ := unstructured.NestedString(attribute, "secondary", "pod")
			if _, cooling := attribute["releasedAt"]; !cooling && owner != "" {
				found[owner] = append(found[owner], nth(t, cidr, at))
			}
		}
	}
	return found
}

// report writes lines where the report is asked for, and to the log.
func report(t *testing.T, name string, lines []string) {
	t.Helper()
	text := strings.Join(lines, "\n") + "\n"
	t.Logf("%s\n%s", name, text)
	dir := os.Getenv(reportEnv)
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}

// sortedKeys are the names in a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// switchOver does what docs/operate/migrate.md says at Converged, and waits for Complete.
func (r *realCluster) switchOver(t *testing.T, name string) {
	t.Helper()
	r.do(t, fixture.SwitchComponents(t.Context(), r.Client, setup.CalicoNamespace))
	r.await(t, name, "Complete")
}

// nth is an address of a block.
func nth(t *testing.T, cidr string, at int) string {
	t.Helper()
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		t.Fatal(err)
	}
	address := prefix.Addr()
	for range at {
		address = address.Next()
	}
	return address.String()
}

func ownedBy(tier string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v3, Kind: "Tier", Name: tier}}
}
