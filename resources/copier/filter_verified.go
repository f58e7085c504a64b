package copier

import (
	"context"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// pairs is a look at one kind on both sides.
type pairs struct {
	kind   *resources.Kind
	schema *resources.Schema
	// live is v3. What a v1 object was found for is taken from it.
	live *index
	// known was proved by earlier looks, proved by this one.
	known, proved *proofs
}

// v1Object is what the metadata of a v1 object tells.
type v1Object struct {
	key     client.ObjectKey
	uid     types.UID
	version string
	content string                  // its ContentVersion
	owners  []metav1.OwnerReference // in Calico, as v1 has them
	// attached tells that the object itself refers to one of them: no migration has taken them off.
	attached bool
	// unreadable tells that the owners are not known.
	unreadable bool
}

// visitor says what becomes of the v1 objects of a kind. Each is given to one of the three; they are called
// from one goroutine.
type visitor struct {
	// proved is for a v1 object of which it is proved that v3 holds the same, as key.
	proved func(v1 v1Object, key client.ObjectKey, live entry, p proof) error
	// single is for one of a few others, which are to be read one by one; see readV1.
	single func(key client.ObjectKey) error
	// whole is for an object that was read already.
	whole func(v1 *unstructured.Unstructured) error
	// onlyPairs tells that nothing is to be given where v3 has no object.
	onlyPairs bool
	// seen tells that v3 may be taken as it was seen last.
	seen bool
}

func (c *Copier) newPairs(ctx context.Context, kind *resources.Kind) (*pairs, error) {
	schema, err := c.schema(ctx, kind)
	if err != nil {
		return nil, err
	}
	return &pairs{kind: kind, schema: schema, known: c.cache.of(kind, schema), proved: newProofs(schema)}, nil
}

// visit lists v3 into live, and then v1. Of what is proved it reads the metadata only. Without content live
// has no digests, whatever is read.
func (c *Copier) visit(ctx context.Context, of *pairs, content bool, v visitor) (err error) {
	whole := len(of.known.by) == 0 || of.kind.InOrder()
	if of.live, err = c.list(ctx, of, content && whole, v.seen); err != nil || v.onlyPairs && of.live.total == 0 {
		return err
	}
	of.proved.v3 = of.live.total
	if whole {
		return c.inOrder(ctx, of.kind, v.whole)
	}
	open, err := c.filterVerified(ctx, of, v)
	if err != nil {
		return err
	}
	if isFew(len(open), len(of.proved.by)) {
		return eachOf(open, func(key *client.ObjectKey) error { return v.single(*key) })
	}
	if content {
		if err := c.fill(ctx, of); err != nil {
			return err
		}
	}
	return c.eachUnproved(ctx, of, v.whole)
}

// eachUnproved streams the v1 objects that a sift has not handed over.
func (c *Copier) eachUnproved(ctx context.Context, of *pairs, do func(*unstructured.Unstructured) error) error {
	return c.EachV1(ctx, of.kind, func(v1 *unstructured.Unstructured) error {
		if id, err := resources.ParseUID(v1.GetUID()); err == nil {
			if _, done := of.proved.of(id); done {
				return nil
			}
		}
		return do(v1)
	})
}

// isFew tells whether some objects of a kind are read faster one by one than in a list of all.
func isFew(some, others int) bool { return some <= 100 || some*10 <= some+others }

// lastSeen is what v3 was when it was looked at last, for UseSnapshot: nobody but us has written it since, and a
// Verify finds what has happened all the same. It is nil where v3 has to be listed.
func (c *Copier) lastSeen(of *pairs, content bool) *index {
	v1, frozen := c.snapshotOf(of.kind)
	switch f := c.watched(of.kind); {
	case !frozen:
		return nil
	case len(v1) == 0 && of.known.v3 == 0 && len(of.known.by) == 0:
		return newIndex(0)
	case !content && f != nil && f.v3.follows():
		return indexOf(f.v3)
	}
	return nil
}

func (c *Copier) list(ctx context.Context, of *pairs, content, seen bool) (*index, error) {
	if seen {
		if last := c.lastSeen(of, content); last != nil {
			return last, nil
		}
	}
	if content {
		return c.indexContent(ctx, of.kind, of.schema)
	}
	return c.indexMetadata(ctx, of.kind)
}

// filterVerified hands over what is proved, and returns the names of the other v1 objects.
func (c *Copier) filterVerified(ctx context.Context, of *pairs, v visitor) (open []client.ObjectKey, err error) {
	names := of.live.names()
	err = c.eachV1Object(ctx, of.kind, func(v1 v1Object) error {
		id, _ := resources.ParseUID(v1.uid)
		p, known := of.known.of(id)
		key := names[p.v3]
		live := of.live.at(key)
		if !known || v1.unreadable || !p.holds(v1.version, live) {
			open = append(open, v1.key)
			return nil
		}
		of.live.take(key)
		of.proved.add(id, p)
		return v.proved(v1, key, live, p)
	})
	return open, err
}

// eachV1Object streams the metadata of the v1 objects of a kind that are migrated.
func (c *Copier) eachV1Object(ctx context.Context, kind *resources.Kind, do func(v1Object) error) error {
	all, known := c.snapshotOf(kind)
	if !known && c.watched(kind) != nil {
		now, err := c.v1Now(ctx, kind)
		if err != nil {
			return err
		}
		all, known = now.all, true
	}
	if known {
		for _, v1 := range all {
			if err := do(*v1); err != nil {
				return err
			}
		}
		return nil
	}
	return c.eachMetadata(ctx, kind.V1GVK(), kind.V1CRDName(), metadataPage, kind.Selector(), func(obj *metav1.PartialObjectMetadata) error {
		return do(v1ObjectOf(obj))
	})
}

func v1ObjectOf(obj *metav1.PartialObjectMetadata) v1Object {
	owners, err := resources.CalicoOwners(obj)
	return v1Object{
		key: client.ObjectKeyFromObject(obj), uid: obj.UID, version: obj.ResourceVersion, content: resources.ContentVersion(obj), owners: owners,
		attached: err != nil || resources.HasCalicoOwners(obj), unreadable: err != nil,
	}
}

// isEqual compares a v3 object with what it should be by its content alone, owners in Calico left out. The answer to
// most creates is what was sent, which is seen without two digests.
func (c *Copier) isEqual(of *pairs, conv *resources.Converted, live *unstructured.Unstructured) bool {
	e := c.statusEntry(of.schema, live)
	if isAsSent(of.kind, conv.Object, live) {
		return !e.terminating && !e.lacksStatus(of.schema, conv)
	}
	e.body.digest = contentDigest(of.kind, of.schema, live)
	return e.equals(of, conv)
}

// isAsSent tells that an object holds the very content that was sent; if not, it may still mean the same.
func isAsSent(kind *resources.Kind, sent, live *unstructured.Unstructured) bool {
	for field := range live.Object {
		if _, has := sent.Object[field]; !has && !(field == "status" && kind.HasStatus()) {
			return false
		}
	}
	for field, value := range sent.Object {
		if field != "metadata" && !reflect.DeepEqual(value, live.Object[field]) {
			return false
		}
	}
	return maps.Equal(sent.GetLabels(), live.GetLabels()) && maps.Equal(sent.GetAnnotations(), live.GetAnnotations()) &&
		slices.Equal(sent.GetFinalizers(), live.GetFinalizers()) && reflect.DeepEqual(sent.GetOwnerReferences(), live.GetOwnerReferences())
}

// equals is isEqual for an object that was digested.
func (e entry) equals(of *pairs, conv *resources.Converted) bool {
	return !e.terminating && !e.lacksStatus(of.schema, conv) && e.body != nil && e.body.digest == contentDigest(of.kind, of.schema, conv.Object)
}

// fill reads the content of the v3 objects that are left in the index. One that has come since is not in
// it, as if it came later.
func (c *Copier) fill(ctx context.Context, of *pairs) error {
	return c.eachV3(ctx, of.kind, func(obj *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(obj)
		if _, left := of.live.entries[key]; left {
			of.live.put(key, c.contentEntry(of.kind, of.schema, obj))
		}
		return nil
	})
}
