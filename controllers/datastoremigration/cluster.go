package datastoremigration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/patch"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/pager"
)

// cluster reads and writes what says where Calico's data is: the ClusterInformation of either side, the CRDs, the
// APIService of v3, and the migrations that there are.
type cluster struct {
	client    client.Client
	discovery discovery.DiscoveryInterface
	registry  *resources.Registry
}

// read reads an object; nil where the API server says that it has none of this name, which is more than that it does not
// serve the kind. The error says what was read.
func read[T client.Object](ctx context.Context, c client.Client, name types.NamespacedName, obj T, what string) (none T, err error) {
	err = c.Get(ctx, name, obj)
	if pager.IsAbsent(err, name.Name) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", what, err)
	}
	return obj, nil
}

// byName is of an object in no namespace.
func byName(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// remove deletes the object that was read, and no other one of its name. The error says what was deleted.
func remove(ctx context.Context, c client.Client, obj client.Object, what string) error {
	uid := obj.GetUID()
	if err := c.Delete(ctx, obj, client.Preconditions{UID: &uid}); err != nil && !pager.IsAbsent(err, obj.GetName()) {
		return fmt.Errorf("delete %s: %w", what, err)
	}
	return nil
}

// eachPage lists a kind into page, a page at a time: all of it, or it is an error.
func (c *cluster) eachPage(ctx context.Context, gvk schema.GroupVersionKind, page listOfKind, size int64, do func() error) error {
	page.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return pager.Each(ctx, c.client, page, do, client.Limit(size))
}

// listOfKind is a list that is told of which kind.
type listOfKind interface {
	client.ObjectList
	SetGroupVersionKind(gvk schema.GroupVersionKind)
}

// self is the name of the account that the client has.
func (c *cluster) self(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask the API server which account this is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// clusterInformationName is the singleton that holds Calico's lock.
const clusterInformationName = "default"

// clusterInformation reads the lock object of one side; nil when there is none, or no CRD of it.
func (c *cluster) clusterInformation(ctx context.Context, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	info, err := readLock(ctx, c.client, gvk)
	crd := c.registry.Lock().V3CRDName()
	if gvk.Group == resources.V1Group {
		crd = c.registry.Lock().V1CRDName()
	}
	return info, pager.UnlessAbsent(ctx, c.client, crd, err)
}

// v1Info is the lock object of v1.
func (c *cluster) v1Info(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.clusterInformation(ctx, c.registry.Lock().V1GVK())
}

// readLock does not take a kind that is not served for a lock that is not there.
func readLock(ctx context.Context, c client.Client, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(gvk)
	return read(ctx, c, byName(clusterInformationName), info, fmt.Sprintf("the lock, %s %s", gvk.GroupKind(), clusterInformationName))
}

// isReady is false only where datastoreReady says so: absent means open.
func isReady(info *unstructured.Unstructured) bool {
	ready, found, _ := unstructured.NestedBool(info.Object, "spec", "datastoreReady")
	return ready || !found
}

// closing follows the UID of a migration that has closed v1 for those who heed datastoreReady, and not yet for all others:
// the fence refuses nothing, because it asks for the UID alone.
const closing = "/closing"

func lockedBy(info *unstructured.Unstructured) types.UID { return holderOf(noteOf(info)) }

// isClosing tells that the fence does not refuse writes yet.
func isClosing(info *unstructured.Unstructured) bool { return noteOf(info) != lockedBy(info) }

func noteOf(info *unstructured.Unstructured) types.UID {
	return types.UID(info.GetAnnotations()[migrationv1.AnnotationLockedBy])
}

func holderOf(note types.UID) types.UID {
	return types.UID(strings.TrimSuffix(string(note), closing))
}

func createdBy(info *unstructured.Unstructured) types.UID {
	return types.UID(info.GetAnnotations()[migrationv1.AnnotationMigratedBy])
}

// setReady changes the lock and the note of its owner in one write, so that
// there is never a lock of which nobody knows whose it is.
func (c *cluster) setReady(ctx context.Context, info *unstructured.Unstructured, ready bool, owner types.UID) error {
	err := patch.MutateAndPatchSpec(ctx, c.client, info, func(u *unstructured.Unstructured) {
		spec, _, _ := unstructured.NestedMap(u.Object, "spec")
		if spec == nil {
			spec = map[string]any{}
		}
		spec["datastoreReady"] = ready
		u.Object["spec"] = spec
		annotations := labels.Merge(u.GetAnnotations(), labels.Set{migrationv1.AnnotationLockedBy: string(owner)})
		if owner == "" {
			delete(annotations, migrationv1.AnnotationLockedBy)
		}
		u.SetAnnotations(annotations)
	})
	if err != nil {
		return fmt.Errorf("set datastoreReady=%t on %s %s: %w", ready, info.GroupVersionKind().GroupKind(), info.GetName(), err)
	}
	return nil
}

// lock takes an existing lock object for a migration: the note says its UID, and whether it is still closing.
func (c *cluster) lock(ctx context.Context, info *unstructured.Unstructured, note types.UID) error {
	switch {
	case isReady(info) || lockedBy(info) == holderOf(note) && noteOf(info) != note:
		return c.setReady(ctx, info, false, note)
	case noteOf(info) == note:
		return nil
	}
	return fsm.Terminal("AlreadyLocked",
		"%s %s has datastoreReady=false, locked by %q, not by this migration: find out who locked it, set datastoreReady to true when it is safe, then retry",
		info.GroupVersionKind().GroupKind(), info.GetName(), lockedBy(info))
}

// v3InReach reads the lock of v3 where it is within reach: from its CRD, or through a side door.
func (c *cluster) v3InReach(ctx context.Context) (*unstructured.Unstructured, error) {
	svc, err := c.apiService(ctx)
	if err != nil {
		return nil, err
	}
	if isAggregated(svc) {
		return c.v3BehindDoor(ctx)
	}
	return c.clusterInformation(ctx, c.registry.Lock().V3GVK())
}

// v3BehindDoor reads the lock of v3 through the side door; nil also where that is closed, as its CRD says.
func (c *cluster) v3BehindDoor(ctx context.Context) (*unstructured.Unstructured, error) {
	crd, err := c.crd(ctx, c.registry.Lock().V3CRDName())
	if err != nil || crd == nil || !hasVersion(crd, migrationv1.SideDoorVersion) {
		return nil, err
	}
	return c.clusterInformation(ctx, c.registry.Through(migrationv1.SideDoorVersion).Lock().V3GVK())
}

func hasVersion(crd *apiextensionsv1.CustomResourceDefinition, name string) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name && v.Served })
}

const apiServiceName = "v3.projectcalico.org"

// apiService reads the APIService of v3; nil when there is none.
func (c *cluster) apiService(ctx context.Context) (*apiregistrationv1.APIService, error) {
	return read(ctx, c.client, byName(apiServiceName), &apiregistrationv1.APIService{}, "APIService "+apiServiceName)
}

func isAggregated(svc *apiregistrationv1.APIService) bool {
	return svc != nil && svc.Spec.Service != nil
}

// crd is nil where there is none.
func (c *cluster) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return read(ctx, c.client, byName(name), &apiextensionsv1.CustomResourceDefinition{}, "CRD "+name)
}

// kindCRD is a CRD of a kind of the registry.
type kindCRD struct {
	kind *resources.Kind
	*apiextensionsv1.CustomResourceDefinition
}

// crds are those of one side that there are, the lock's last.
func (c *cluster) crds(ctx context.Context, name func(*resources.Kind) string) (all []kindCRD, err error) {
	for _, kind := range c.registry.All() {
		crd, err := c.crd(ctx, name(kind))
		if err != nil {
			return nil, err
		}
		if crd != nil {
			all = append(all, kindCRD{kind, crd})
		}
	}
	return all, nil
}

// migrations are all that there are, as their states say; none where their CRD is not installed yet.
func (c *cluster) migrations(ctx context.Context) ([]migration, error) {
	list := &migrationv1.DatastoreMigrationList{}
	if err := pager.UnlessAbsent(ctx, c.client, migrationv1.CRDName, pager.Whole(ctx, c.client, list)); err != nil {
		return nil, err
	}
	states, err := machinestate.List(ctx, c.client, MachineName)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if _, err := states.Over(&list.Items[i], list.Items[i].UID); err != nil {
			return nil, err
		}
	}
	return list.Items, nil
}

// datastore is what the locks of both sides say.
type datastore struct {
	// v1 and v3 are the ClusterInformation of either side; nil where there is none. v3's is nil, too, while v3 is
	// answered by a server, which would show v1's.
	v1, v3 *unstructured.Unstructured
}

func (c *cluster) datastore(ctx context.Context) (d datastore, err error) {
	svc, err := c.apiService(ctx)
	if err != nil {
		return d, err
	}
	if d.v1, err = c.v1Info(ctx); err != nil || isAggregated(svc) {
		return d, err
	}
	d.v3, err = c.clusterInformation(ctx, c.registry.Lock().V3GVK())
	return d, err
}

// v3InUse: v3 is served from its CRDs, and open.
func (d datastore) v3InUse() bool { return d.v3 != nil && isReady(d.v3) }

// migratedBy is the UID of the migration that has moved the cluster to v3: v1 is closed in its name, and v3 is
// in use and was made by it. It is empty where that is not so, or cannot be told.
func (d datastore) migratedBy() types.UID {
	if d.v1 == nil || isReady(d.v1) || !d.v3InUse() || createdBy(d.v3) != lockedBy(d.v1) {
		return ""
	}
	return lockedBy(d.v1)
}

// earlier stands for the migration that has made v3's lock, and is gone: what bears its UID was left to this one. Nil
// where there is none. It can be told until RemoveMigrationAnnotations ends.
func (c *cluster) earlier(ctx context.Context, dm *migration) (*migration, error) {
	v3, err := c.v3InReach(ctx)
	if err != nil || v3 == nil || createdBy(v3) == "" || createdBy(v3) == dm.UID {
		return nil, err
	}
	all, err := c.migrations(ctx)
	if err != nil || slices.ContainsFunc(all, func(other migration) bool { return other.UID == createdBy(v3) }) {
		return nil, err
	}
	return &migration{ObjectMeta: metav1.ObjectMeta{Name: dm.Name, UID: createdBy(v3)}}, nil
}

// withEarlier does something in the name of the earlier migration, if there is one, and then of this one.
func (c *cluster) withEarlier(ctx context.Context, dm *migration, do func(context.Context, *migration) error) error {
	earlier, err := c.earlier(ctx, dm)
	if err != nil {
		return err
	}
	if earlier != nil {
		if err := do(ctx, earlier); err != nil {
			return err
		}
	}
	return do(ctx, dm)
}

// answersFromV1 tells whether v3 shows v1's own objects, as the aggregated server
// does. The lock object is asked for, because every cluster has it.
func (c *cluster) answersFromV1(ctx context.Context, asked client.Client) (bool, error) {
	v1, err := readLock(ctx, asked, c.registry.Lock().V1GVK())
	if err != nil || v1 == nil {
		return false, err
	}
	v3, err := readLock(ctx, asked, c.registry.Lock().V3GVK())
	if err != nil || v3 == nil {
		return false, err
	}
	of, err := resources.ParseUID(v1.GetUID())
	if err != nil {
		return false, err
	}
	shown, err := resources.ParseUID(v3.GetUID())
	return resources.IsMirror(of, shown), err
}

// isEnforced tells that nobody can write v1, and nobody is only asked not to.
func isEnforced(dm *migration) bool {
	return dm.Status.Lock != nil && dm.Status.Lock.Mode == migrationv1.LockEnforced
}

// discover answers what a group serves: the versions of each resource, the best first.
func (c *cluster) discover(group string) (map[string][]metav1.APIResource, error) {
	groups, err := c.discovery.ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("ask which API groups are served: %w", err)
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if i < 0 {
		return nil, nil
	}
	served := map[string][]metav1.APIResource{}
	for _, version := range groups.Groups[i].Versions {
		list, err := c.discovery.ServerResourcesForGroupVersion(version.GroupVersion)
		if apierrs.IsNotFound(err) {
			continue // its last CRD went a moment ago
		}
		if err != nil {
			return nil, fmt.Errorf("ask what %s serves: %w", version.GroupVersion, err)
		}
		for _, r := range list.APIResources {
			r.Group, r.Version = group, version.Version
			served[r.Name] = append(served[r.Name], r)
		}
	}
	return served, nil
}

// foreignV1 are the resources of the v1 group that no entry of the registry covers,
// by plural. An API server that does not tell of a kind whose CRD is there does not know all of them yet.
func (c *cluster) foreignV1(ctx context.Context) (map[string]schema.GroupVersionKind, error) {
	served, err := c.discover(resources.V1Group)
	if err != nil {
		return nil, err
	}
	for _, kind := range c.registry.All() {
		if _, told := served[kind.V1Plural()]; told {
			continue
		}
		if crd, err := c.crd(ctx, kind.V1CRDName()); err != nil || crd != nil {
			return nil, cmp.Or(err, fmt.Errorf("the API server does not tell of %s, though its CRD is there: it has just started; or see the conditions of the CRD", kind.V1CRDName()))
		}
	}
	known := namesOf(c.registry.All(), (*resources.Kind).V1Plural)
	foreign := map[string]schema.GroupVersionKind{}
	for plural, versions := range served {
		if best := versions[0]; !slices.Contains(known, plural) && slices.Contains(best.Verbs, "list") { // subresources cannot be listed
			foreign[plural] = schema.GroupVersionKind{Group: best.Group, Version: best.Version, Kind: best.Kind}
		}
	}
	return foreign, nil
}
