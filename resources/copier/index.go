package copier

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

// index is what is known of all v3 objects of one kind without keeping them: some hundreds of bytes
// each, which it shares with the replica that it is of, if any.
type index struct {
	mu      sync.Mutex
	entries map[client.ObjectKey]*entry // of all objects; a replica may have the same map
	// taken is, by the name in v3, that of the v1 object that becomes it, whether v3 has it or not.
	taken map[client.ObjectKey]string
	found int // how many of the taken v3 has
	// proved are taken, too, by objects of the same name. They are nearly all, and each is there once: see takeProved.
	proved []client.ObjectKey
}

// entry is what is known of one v3 object. It does not change.
type entry struct {
	uid         types.UID
	id          rawUID // the same; zero where it is no UUID
	version     uint64
	owners      []metav1.OwnerReference
	copied      string // of which version of v1 it is a copy, see CopiedVersionAnnotation
	ours        bool
	marked      bool // a migration has made it, ours or another one
	terminating bool
	body        *body // nil in an index of metadata
}

// body is what only the whole object says.
type body struct {
	digest    [sha256.Size]byte // zero if only the status was asked for
	bare      bool              // has no status
	ownStatus string            // see ownStatus
}

func newIndex(entries map[client.ObjectKey]*entry) *index {
	return &index{entries: entries, taken: map[client.ObjectKey]string{}}
}

func (i *index) total() int64 { return int64(len(i.entries)) }

// entryOf is what the metadata of a v3 object says.
func entryOf(me owner, obj metav1.Object) *entry {
	return &entry{
		uid: obj.GetUID(), id: idOf(obj.GetUID()), version: parseVersion(obj.GetResourceVersion()), owners: obj.GetOwnerReferences(),
		copied: obj.GetAnnotations()[resources.CopiedVersionAnnotation],
		ours:   me.has(obj), marked: obj.GetAnnotations()[resources.MigratedByAnnotation] != "", terminating: obj.GetDeletionTimestamp() != nil,
	}
}

func (e *entry) revision() uint64 { return e.version }

// names are those of all entries, by their UID.
func (i *index) names() map[rawUID]client.ObjectKey {
	names := make(map[rawUID]client.ObjectKey, len(i.entries))
	for key, e := range i.entries {
		names[e.id] = key
	}
	return names
}

// take gives a v1 object, by its name, what it becomes: nil where v3 has none yet. What is left in the end has no v1
// object. other is the v1 object that becomes the same, and was first: then nothing is taken.
func (i *index) take(key client.ObjectKey, v1 string) (e *entry, other string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v1 != key.Name { // no proved object has the name of another that is called the same in v3
		i.settle()
	}
	return i.claim(key, v1)
}

// claim needs mu.
func (i *index) claim(key client.ObjectKey, v1 string) (e *entry, other string) {
	if other, taken := i.taken[key]; taken && other != v1 {
		return nil, other
	} else if !taken {
		i.taken[key] = v1
		if i.entries[key] != nil {
			i.found++
		}
	}
	return i.entries[key], ""
}

// takeProved takes an entry for a v1 object, before any other is taken. As long as all are called as in v1, nobody has
// to look whether one is taken already.
func (i *index) takeProved(key client.ObjectKey, v1 string, sameName bool) bool {
	if sameName {
		i.proved = append(i.proved, key)
		return true
	}
	_, other := i.take(key, v1)
	return other == ""
}

// settle moves the proved to the other taken ones. It needs mu where several goroutines take.
func (i *index) settle() {
	for _, key := range i.proved {
		i.claim(key, key.Name)
	}
	i.proved = nil
}

// orphans are the copies of ours that nobody took, sorted by name.
func (i *index) orphans() []client.ObjectKey { return i.left(true) }

// left are the entries that nobody took, of our copies or of all others, sorted by name.
func (i *index) left(ours bool) []client.ObjectKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.found+len(i.proved) == len(i.entries) {
		return nil
	}
	i.settle()
	var keys []client.ObjectKey
	for key, e := range i.entries {
		if _, taken := i.taken[key]; e.ours == ours && !taken {
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
		if i.entries[key].marked {
			who = "another migration has left it"
		}
		if key.Namespace != "" {
			target += " -n " + key.Namespace
		}
		only = append(only, problemOf(kind, key, resources.ReasonOnlyInV3, "is in v3 only, and in force as soon as v3 is open: "+who,
			fmt.Sprintf("delete it, unless v3 is to have it: kubectl delete %s.%s.%s %s", kind.V3Plural(), kind.V3GVK().Version, resources.V3Group, target)))
	}
	return only
}

func compareKeys(a, b client.ObjectKey) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// owner is the UID of the migration that the copies belong to; "" where there is none yet.
type owner types.UID

// has is false for every object where there is no migration.
func (me owner) has(obj metav1.Object) bool {
	return me != "" && obj.GetAnnotations()[resources.MigratedByAnnotation] == string(me)
}

// mark stamps an object that we are about to write: whose it is, and of what it is a copy. Its metadata
// is its own: see resources.Convert.
func (me owner) mark(obj metav1.Object, conv *resources.Converted) {
	annotate(obj, resources.MigratedByAnnotation, string(me))
	annotate(obj, resources.CopiedVersionAnnotation, conv.V1Content)
}

// deferred ends the CopiedVersionAnnotation of a copy that does not have all its owners yet.
const deferred = " owners withheld"

// markDeferred says of a copy that RemapOwners is to set its owners.
func markDeferred(obj metav1.Object, conv *resources.Converted) {
	annotate(obj, resources.CopiedVersionAnnotation, conv.V1Content+deferred)
}

func annotate(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

// unmark removes the annotations of this program.
func unmark(obj *Meta) {
	delete(obj.Annotations, resources.MigratedByAnnotation)
	delete(obj.Annotations, resources.CopiedVersionAnnotation)
	delete(obj.Annotations, migrationv1.AnnotationBarrier)
}
