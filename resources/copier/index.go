package copier

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// index is what is known of all v3 objects of one kind without keeping them: some hundreds of bytes
// each, which it shares with the replica that it is of, if any.
type index struct {
	mu      sync.Mutex
	entries map[client.ObjectKey]*entry
	total   int64 // how many there were before any was taken
}

// entry is what is known of one v3 object. It does not change.
type entry struct {
	uid         types.UID
	version     uint64
	owners      []metav1.OwnerReference
	copied      string // of which version of v1 it is a copy, see CopiedVersionAnnotation
	ours        bool
	marked      bool // a migration has made it, ours or another one
	terminating bool
	body        *body // nil in an index of metadata
}

// body is what only the whole object tells.
type body struct {
	digest    [sha256.Size]byte // zero if only the status was asked for
	bare      bool              // has no status
	ownStatus string            // see ownStatus
}

// newIndex makes room for so many.
func newIndex(objects int) *index {
	return &index{entries: make(map[client.ObjectKey]*entry, objects)}
}

func (i *index) put(key client.ObjectKey, e entry) { i.entries[key] = &e }

// at is zero where there is none.
func (i *index) at(key client.ObjectKey) entry {
	if e := i.entries[key]; e != nil {
		return *e
	}
	return entry{}
}

// indexOf is what a watch has shown.
func indexOf(r *replica[entry]) *index {
	r.mu.Lock()
	defer r.mu.Unlock()
	idx := newIndex(len(r.objects))
	for key, obj := range r.objects {
		idx.entries[key] = &obj.is
	}
	idx.total = int64(len(r.objects))
	return idx
}

// indexContent lists whole objects and digests them.
func (c *Copier) indexContent(ctx context.Context, kind *resources.Kind, schema *resources.Schema) (*index, error) {
	idx := newIndex(0)
	err := c.eachV3(ctx, kind, func(obj *unstructured.Unstructured) error {
		idx.put(client.ObjectKeyFromObject(obj), c.contentEntry(kind, schema, obj))
		return nil
	})
	idx.total = int64(len(idx.entries))
	return idx, err
}

// indexMetadata reads metadata only.
func (c *Copier) indexMetadata(ctx context.Context, kind *resources.Kind) (*index, error) {
	if now := c.v3Now(ctx, kind); now != nil {
		return now, nil
	}
	idx := newIndex(0)
	err := c.eachV3Metadata(ctx, kind, func(obj *metav1.PartialObjectMetadata) error {
		idx.put(client.ObjectKeyFromObject(obj), c.entryOf(obj))
		return nil
	})
	idx.total = int64(len(idx.entries))
	return idx, err
}

func (c *Copier) contentEntry(kind *resources.Kind, schema *resources.Schema, obj *unstructured.Unstructured) entry {
	e := c.statusEntry(schema, obj)
	e.body.digest = contentDigest(kind, schema, obj)
	return e
}

func (c *Copier) statusEntry(schema *resources.Schema, obj *unstructured.Unstructured) entry {
	e := c.entryOf(obj)
	e.body = &body{bare: isBare(obj), ownStatus: ownStatus(schema, obj)}
	return e
}

func (c *Copier) entryOf(obj metav1.Object) entry {
	return entry{
		uid: obj.GetUID(), version: parseVersion(obj.GetResourceVersion()), owners: obj.GetOwnerReferences(),
		copied: obj.GetAnnotations()[resources.CopiedVersionAnnotation],
		ours:   c.isOurs(obj), marked: obj.GetAnnotations()[resources.MigratedByAnnotation] != "", terminating: obj.GetDeletionTimestamp() != nil,
	}
}

// id is zero for an object whose UID cannot be read.
func (e entry) id() rawUID {
	id, _ := resources.ParseUID(e.uid)
	return id
}

// names are those of all entries, by their UID.
func (i *index) names() map[rawUID]client.ObjectKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	names := make(map[rawUID]client.ObjectKey, len(i.entries))
	for key, e := range i.entries {
		names[e.id()] = key
	}
	return names
}

// isOurs is false for every object where there is no migration.
func (c *Copier) isOurs(obj metav1.Object) bool {
	return c.owner.UID != "" && obj.GetAnnotations()[resources.MigratedByAnnotation] == string(c.owner.UID)
}

// take removes and returns an entry: what is left in the end has no v1 object.
func (i *index) take(key client.ObjectKey) (entry, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, ok := i.entries[key]
	if !ok {
		return entry{}, false
	}
	delete(i.entries, key)
	return *e, true
}

// orphans are the copies of ours that nobody took, sorted by name.
func (i *index) orphans() []client.ObjectKey { return i.left(true) }

// left are the entries that nobody took, of our copies or of all others, sorted by name.
func (i *index) left(ours bool) []client.ObjectKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	var keys []client.ObjectKey
	for key, e := range i.entries {
		if e.ours == ours {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// onlyInV3 are the objects that nobody took and that are not ours: v3 has them in force once it is open, and v1 does
// not have them, or is deleting them. Calico's own objects, which nobody may delete, are in every v3.
func (i *index) onlyInV3(kind *resources.Kind) (only []resources.Problem) {
	for _, key := range i.left(false) {
		if kind.Undeletable(key.Name) {
			continue
		}
		who, target := "no migration has made it", key.Name
		if i.at(key).marked {
			who = "another migration has left it"
		}
		if key.Namespace != "" {
			target += " -n " + key.Namespace
		}
		only = append(only, resources.Problem{
			Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonOnlyInV3,
			Message: "is in v3 only, and in force as soon as v3 is open: " + who,
			Remedy:  fmt.Sprintf("delete it, unless v3 is to have it: kubectl delete %s.%s.%s %s", kind.V3Plural(), kind.V3GVK().Version, resources.V3Group, target),
		})
	}
	return only
}

func compareKeys(a, b client.ObjectKey) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// contentDigest leaves the owners in Calico out: they are compared, and repaired, by themselves.
func contentDigest(kind *resources.Kind, schema *resources.Schema, obj *unstructured.Unstructured) [sha256.Size]byte {
	return resources.Digest(kind, schema, withCalicoOwners(obj, nil))
}

// withCalicoOwners returns obj with exactly these references to Calico objects; all others stay. It
// returns obj itself if there is nothing to change, and else a shallow copy.
func withCalicoOwners(obj *unstructured.Unstructured, owners []metav1.OwnerReference) *unstructured.Unstructured {
	calico, foreign := resources.SplitOwners(obj.GetOwnerReferences())
	if len(calico) == 0 && len(owners) == 0 {
		return obj
	}
	return withOwners(obj, append(foreign, owners...))
}

func withOwners(obj *unstructured.Unstructured, refs []metav1.OwnerReference) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: make(map[string]any, len(obj.Object))}
	for k, v := range obj.Object {
		out.Object[k] = v
	}
	meta := map[string]any{}
	if old, ok := obj.Object["metadata"].(map[string]any); ok {
		for k, v := range old {
			meta[k] = v
		}
	}
	out.Object["metadata"] = meta
	out.SetOwnerReferences(refs)
	return out
}
