package copier

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/phasegate/phasegate/resources"
)

// moment is what the API server had of a v1 kind at some time.
type moment struct {
	revision uint64 // of its storage: every later write of an object gives it a newer resourceVersion
	objects  int64
}

// v1List is all v1 objects of a kind.
type v1List struct {
	moment
	all []*v1Object // as the replica of the kind has them, if any
	// newest is the newest version of an object.
	newest uint64
}

// Snapshot notes where these kinds of v1 stand now, the lock's too, for ChangedSince. It needs an EqualityCache.
func (c *Copier) Snapshot(ctx context.Context, kinds []*resources.Kind) error {
	return eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		now, err := c.momentOf(ctx, kind)
		if err == nil {
			c.cache.note(kind, v1List{moment: now}, false)
		}
		return err
	})
}

// ChangedSince reads the metadata of these kinds of v1, the lock's too, and returns those in which something was
// written since the last Snapshot or ChangedSince: a version is newer than the storage was then, or there are more or
// fewer objects. Where neither is so, the list is the one that would have been seen then. The lists are kept
// for UseSnapshot. It needs an EqualityCache.
func (c *Copier) ChangedSince(ctx context.Context, kinds []*resources.Kind) (moving []*resources.Kind, err error) {
	var mu sync.Mutex
	err = eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		now, err := c.v1Now(ctx, kind)
		if err != nil {
			return err
		}
		before := c.cache.note(kind, now, true)
		if now.newest > before.revision || now.objects != before.objects {
			mu.Lock()
			defer mu.Unlock()
			moving = append(moving, kind)
		}
		return nil
	})
	return moving, err
}

// listV1 reads the metadata of a kind. One without a CRD has no objects and no revision.
func (c *Copier) listV1(ctx context.Context, kind *resources.Kind) (of v1List, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	err = c.pages(ctx, list, kind.V1CRDName(), metadataPage, kind.Selector(), func() error {
		if of.revision == 0 {
			of.revision = parseVersion(list.ResourceVersion) // later pages may be newer
		}
		return eachOf(list.Items, func(obj *metav1.PartialObjectMetadata) error {
			of.objects++
			of.newest = max(of.newest, parseVersion(obj.ResourceVersion))
			v1 := v1ObjectOf(obj)
			of.all = append(of.all, &v1)
			return nil
		})
	})
	return of, err
}

// momentOf asks for one object and lets the server say how many follow, and what its storage is at. With a
// selector the server does not say how many, and the objects are counted.
func (c *Copier) momentOf(ctx context.Context, kind *resources.Kind) (now moment, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(listKind(kind.V1GVK()))
	size := int64(1)
	if !kind.Selector().Empty() {
		size = metadataPage
	}
	err = c.pages(ctx, list, kind.V1CRDName(), size, kind.Selector(), func() error {
		if now.revision == 0 {
			now.revision = parseVersion(list.ResourceVersion)
		}
		now.objects += int64(len(list.Items))
		if left := list.GetRemainingItemCount(); left != nil && kind.Selector().Empty() {
			now.objects += *left
			list.SetContinue("")
		}
		return nil
	})
	return now, err
}

// note replaces what is known of where a v1 kind stands, and returns what was.
func (l *EqualityCache) note(kind *resources.Kind, now v1List, listed bool) moment {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.moments[kind.Name()]
	l.moments[kind.Name()] = now.moment
	delete(l.lists, kind.Name())
	if listed {
		l.lists[kind.Name()] = now.all
	}
	return before
}

// UseSnapshot lets Copy, RemapOwners and OwnedV1 rely on the lists that ChangedSince has made, where it has: nobody
// writes v1 since. Conflicts and Verify read v1 all the same, by the watches of Follow where it is followed.
func UseSnapshot() Option { return func(c *Copier) { c.snapshot = true } }

// Invalidate ends what a Copier with UseSnapshot relies on, for the kinds of these v1 objects: we are about to write them,
// and what is copied has to know their versions from then on. It may be called again.
func (c *Copier) Invalidate(objs []*Meta) {
	if c.cache == nil {
		return
	}
	written := map[string]bool{}
	for _, obj := range objs {
		written[obj.Kind] = true
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	for _, kind := range c.reg.Kinds() {
		if written[kind.V1GVK().Kind] {
			delete(c.cache.lists, kind.Name())
		}
	}
}

// withoutSnapshot is the Copier for which v1 may have changed.
func (c *Copier) withoutSnapshot() *Copier {
	other := *c
	other.snapshot = false
	return &other
}

// snapshotOf is what the last ChangedSince has listed of a kind.
func (c *Copier) snapshotOf(kind *resources.Kind) ([]*v1Object, bool) {
	if !c.snapshot || c.cache == nil {
		return nil, false
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	list, ok := c.cache.lists[kind.Name()]
	return list, ok
}

// OwnedV1 finds the v1 objects that refer to an owner in Calico, in plain sight or in hidden metadata,
// whether they are to be migrated or not. With UseSnapshot it asks for the kinds that had some.
func (c *Copier) OwnedV1(ctx context.Context) ([]*Meta, error) {
	kinds := c.reg.Kinds()
	if c.snapshot {
		kinds = c.maybeOwned(kinds)
	}
	return c.findV1(ctx, kinds, func(obj *Meta) bool { return resources.HasCalicoOwners(obj) })
}

// maybeOwned leaves out the kinds that were listed whole without an object that refers to an owner.
func (c *Copier) maybeOwned(kinds []*resources.Kind) (maybe []*resources.Kind) {
	for _, kind := range kinds {
		list, listed := c.snapshotOf(kind)
		owned := !listed || kind.Selector().String() != labels.Everything().String()
		for i := 0; i < len(list) && !owned; i++ {
			owned = list[i].attached
		}
		if owned {
			maybe = append(maybe, kind)
		}
	}
	return maybe
}
