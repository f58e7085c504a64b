package copier

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/pager"
)

// Source reads what v1 holds. It writes nothing but barriers.
type Source struct {
	*api
	reg     *resources.Registry
	editor  *Editor
	watcher *Watcher
	// snapshot is nil where v1 may have changed since it was taken.
	snapshot *snapshots
}

// v1Object is what the metadata of a v1 object says.
type v1Object struct {
	key     client.ObjectKey
	id      rawUID // zero where it is no UUID
	version uint64
	content string                  // its CopiedVersion
	owners  []metav1.OwnerReference // in Calico, as v1 has them
	// attached: the object itself refers to one of them: no migration has taken them off.
	attached bool
	// unreadable: the owners are not known.
	unreadable bool
}

func v1ObjectOf(obj *Meta) *v1Object {
	owners, err := resources.CalicoOwners(obj)
	return &v1Object{
		key: client.ObjectKeyFromObject(obj), id: idOf(obj.UID), version: parseVersion(obj.ResourceVersion), content: resources.CopiedVersion(obj), owners: owners,
		attached: err != nil || resources.HasCalicoOwners(obj), unreadable: err != nil,
	}
}

func (o *v1Object) revision() uint64 { return o.version }

// moment is what the API server had of a v1 kind at some time.
type moment struct {
	revision uint64 // of its storage: every later write of an object gives it a newer resourceVersion
	objects  int64
}

// v1List is the metadata of all v1 objects of a kind.
type v1List struct {
	moment
	all    []*v1Object // shared with the replica of the kind, if any
	newest uint64      // the newest version of an object
}

// EachV1 streams the v1 objects of a kind that are migrated. A kind whose CRD is absent has none.
func (s *Source) EachV1(ctx context.Context, kind *resources.Kind, do func(*unstructured.Unstructured) error) error {
	return s.eachObject(ctx, inV1(kind), do)
}

// eachToCopy is EachV1, with the oldest object first where the order matters: it keeps all of them then. By a snapshot
// no kind is listed that has no objects.
func (s *Source) eachToCopy(ctx context.Context, kind *resources.Kind, do func(*unstructured.Unstructured) error) error {
	if list, taken := s.snapshot.of(kind); taken && len(list) == 0 {
		return nil
	}
	if !kind.InOrder() {
		return s.EachV1(ctx, kind, do)
	}
	var all []*unstructured.Unstructured
	err := s.EachV1(ctx, kind, func(v1 *unstructured.Unstructured) error {
		all = append(all, v1)
		return nil
	})
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(resources.Created(a).Compare(resources.Created(b).Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	for i := 0; i < len(all) && err == nil; i++ {
		err = do(all[i])
	}
	return err
}

// eachMetaToCopy streams the metadata of the v1 objects of a kind that are migrated.
func (s *Source) eachMetaToCopy(ctx context.Context, kind *resources.Kind, do func(*v1Object) error) error {
	all, known := s.snapshot.of(kind)
	if !known && s.watcher.kinds.of(kind) != nil {
		now, err := s.now(ctx, kind)
		if err != nil {
			return err
		}
		all, known = now.all, true
	}
	if !known {
		return s.eachMeta(ctx, inV1(kind), func(obj *Meta) error { return do(v1ObjectOf(obj)) })
	}
	for _, v1 := range all {
		if err := do(v1); err != nil {
			return err
		}
	}
	return nil
}

// read reads one v1 object. It returns nil for one that is gone.
func (s *Source) read(ctx context.Context, kind *resources.Kind, key client.ObjectKey) (*unstructured.Unstructured, error) {
	list := &contentList{}
	if err := s.listOne(ctx, list, kind.V1GVK(), key); err != nil {
		return nil, pager.UnlessAbsent(ctx, patient{s.api}, kind.V1CRDName(), fmt.Errorf("read %s %s: %w", kind.V1GVK().GroupKind(), key, err))
	}
	for i := range list.Items {
		if obj := &list.Items[i]; kind.Selector().Matches(labels.Set(obj.GetLabels())) {
			return obj, nil
		}
	}
	return nil, nil
}

// now is the metadata of all that v1 holds of a kind now. A kind without a CRD has no objects and no revision.
func (s *Source) now(ctx context.Context, kind *resources.Kind) (of v1List, err error) {
	if watched := s.watcher.kinds.of(kind); watched != nil && watched.v1.pass(ctx) {
		return listOf(watched.v1), nil
	}
	err = s.eachMetaPage(ctx, inV1(kind), func(page *metav1.PartialObjectMetadataList) error {
		if of.revision == 0 {
			of.revision = parseVersion(page.ResourceVersion) // later pages may be newer
		}
		return eachOf(page.Items, func(obj *Meta) error {
			of.objects++
			of.newest = max(of.newest, parseVersion(obj.ResourceVersion))
			of.all = append(of.all, v1ObjectOf(obj))
			return nil
		})
	})
	return of, err
}

// recount ends the watch of a kind that has shown another number of objects than there are: it has lost an event, and
// would show that number for ever. Where v1 is written at this very time, the kind is listed in vain.
func (s *Source) recount(ctx context.Context, kind *resources.Kind, shown int64) error {
	watched := s.watcher.kinds.of(kind)
	if watched == nil {
		return nil
	}
	now, err := s.moment(ctx, kind)
	if err == nil && now.objects != shown {
		watched.v1.fail()
	}
	return err
}

// moment asks for one object and lets the server say how many follow, and what its storage is at. With a
// selector the server does not say how many, and the objects are counted.
func (s *Source) moment(ctx context.Context, kind *resources.Kind) (now moment, err error) {
	one := inV1(kind)
	if one.selector.Empty() {
		one.metaPage = 1
	}
	err = s.eachMetaPage(ctx, one, func(page *metav1.PartialObjectMetadataList) error {
		if now.revision == 0 {
			now.revision = parseVersion(page.ResourceVersion)
		}
		now.objects += int64(len(page.Items))
		if left := page.GetRemainingItemCount(); left != nil && one.selector.Empty() {
			now.objects += *left
			page.SetContinue("")
		}
		return nil
	})
	return now, err
}

// Revision is where the storage of v1 stands: what is written later has a newer resourceVersion. It is 0 where v1 has
// no CRDs.
func (s *Source) Revision(ctx context.Context) (uint64, error) {
	for _, kind := range s.reg.Kinds() {
		if now, err := s.moment(ctx, kind); err != nil || now.revision > 0 {
			return now.revision, err
		}
	}
	return 0, nil
}

// totals is how many objects each kind has. It asks about all kinds at once: the answers are small.
func (s *Source) totals(ctx context.Context, kinds []*resources.Kind) ([]int64, error) {
	totals := make([]int64, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	for i, kind := range kinds {
		g.Go(func() error {
			if list, taken := s.snapshot.of(kind); taken {
				totals[i] = int64(len(list))
				return nil
			}
			now, err := s.moment(ctx, kind)
			totals[i] = now.objects
			return err
		})
	}
	return totals, g.Wait()
}

// Objects is how many objects of all kinds there are to migrate. It asks, and lists only the kinds that have a
// selector.
func (s *Source) Objects(ctx context.Context) (all int64, err error) {
	totals, err := s.totals(ctx, s.reg.Kinds())
	for _, n := range totals {
		all += n
	}
	return all, err
}

// MayWatch is false for a kind that is listed whole in any case.
func MayWatch(kind *resources.Kind) bool { return !kind.InOrder() && kind.Selector().Empty() }

// LargeKinds are the kinds of which v1 has so many objects, or more, and that may be watched.
func (s *Source) LargeKinds(ctx context.Context, many int64) (large []*resources.Kind, err error) {
	if s.watcher.watches == nil {
		return nil, nil
	}
	kinds := s.reg.Kinds()
	objects, err := s.totals(ctx, kinds)
	for i, kind := range kinds {
		if MayWatch(kind) && objects[i] >= max(many, 1) {
			large = append(large, kind)
		}
	}
	return large, err
}

// FindV1 is Find over the v1 objects of all kinds, whether they are to be migrated or not. A kind without
// a CRD has none.
func (s *Source) FindV1(ctx context.Context, match func(*Meta) bool) ([]*Meta, error) {
	return s.editor.findV1(ctx, s.reg.Kinds(), match)
}

// OwnedV1 finds the v1 objects that refer to an owner in Calico, in plain sight or in hidden metadata,
// whether they are to be migrated or not. With UseSnapshot it asks for the kinds that had some.
func (s *Source) OwnedV1(ctx context.Context) ([]*Meta, error) {
	kinds := slices.DeleteFunc(s.reg.Kinds(), func(kind *resources.Kind) bool {
		list, taken := s.snapshot.of(kind)
		return taken && kind.Selector().Empty() && !slices.ContainsFunc(list, func(v1 *v1Object) bool { return v1.attached })
	})
	return s.editor.findV1(ctx, kinds, func(obj *Meta) bool { return resources.HasCalicoOwners(obj) })
}
