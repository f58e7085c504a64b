package resources

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// V1FieldOwners are the entries of metadata.managedFields that a v1 object has for its clients: those in the
// metadata annotation, which the aggregated API shows, and the object's own only where there are none. It is
// empty where they cannot be read: then nobody is known to own anything.
func V1FieldOwners(v1 metav1.Object) []metav1.ManagedFieldsEntry {
	type owners struct {
		ManagedFields []metav1.ManagedFieldsEntry `json:"managedFields"`
	}
	if hidden, err := readAnnotation[owners](v1, MetadataAnnotation); err == nil && hidden != nil && len(hidden.ManagedFields) > 0 {
		return hidden.ManagedFields
	}
	return v1.GetManagedFields()
}

// HandedOver are the entries of metadata.managedFields that a v3 object should have. Each names version v3: after
// an entry of a version that its CRD does not have any more, the API server refuses every server-side apply. What
// manager has written belongs to those who own the same field in v1, if anybody does; manager keeps its notes then,
// and all others may be had by anybody without a conflict, as if the object had been applied to v3. inV1 is empty
// for an object that is no copy. changed is false where have is so already, as it is after a first call.
func HandedOver(have, inV1 []metav1.ManagedFieldsEntry, manager string) (out []metav1.ManagedFieldsEntry, changed bool, err error) {
	all, changed, err := inV3(have)
	if err != nil {
		return nil, false, err
	}
	for _, ours := range slices.Clone(all) {
		if ours.Manager != manager || ours.Operation != metav1.ManagedFieldsOperationUpdate {
			continue
		}
		given := &fieldpath.Set{}
		for _, entry := range inV1 {
			if entry.Manager == manager || entry.Subresource != ours.Subresource {
				continue
			}
			owned, err := fieldSet(entry)
			if err != nil {
				continue // of v1, and so nothing that anybody could be asked to repair now
			}
			if owned = owned.Intersection(ours.set); !owned.Empty() {
				given = given.Union(owned)
				entry.APIVersion = V3Group + "/" + V3Version
				all = all.add(fieldOwner{entry, owned})
			}
		}
		if !given.Empty() {
			changed = true
			ours.set = ours.set.Intersection(notePaths)
		}
	}
	if !changed {
		return have, false, nil
	}
	out, err = all.entries()
	return out, true, err
}

// NeedsV1 tells whether HandedOver would give something that manager owns to those who own it in v1.
func NeedsV1(have []metav1.ManagedFieldsEntry, manager string) bool {
	return slices.ContainsFunc(have, func(entry metav1.ManagedFieldsEntry) bool {
		set, err := fieldSet(entry)
		return entry.Manager == manager && err == nil && !set.Difference(notePaths).Empty()
	})
}

// notePaths are the annotations that say how an object was written.
var notePaths = func() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations"))
	for _, key := range []string{MigratedByAnnotation, CopiedVersionAnnotation, migrationv1.AnnotationBarrier, migrationv1.AnnotationLockedBy} {
		set.Insert(fieldpath.MakePathOrDie("metadata", "annotations", key))
	}
	return set
}()

// fieldOwner is an entry of managedFields.
type fieldOwner struct {
	metav1.ManagedFieldsEntry
	set *fieldpath.Set // what FieldsV1 says
}

type fieldOwners []*fieldOwner

// inV3 reads entries, and gives those of any version of v3's group version v3, which has the same fields. Two
// that have become one owner are one.
func inV3(have []metav1.ManagedFieldsEntry) (all fieldOwners, changed bool, err error) {
	for _, entry := range have {
		set, err := fieldSet(entry)
		if err != nil {
			return nil, false, err
		}
		if gv, err := schema.ParseGroupVersion(entry.APIVersion); err == nil && gv.Group == V3Group && gv.Version != V3Version {
			entry.APIVersion, changed = V3Group+"/"+V3Version, true
		}
		all = all.add(fieldOwner{entry, set})
	}
	return all, changed, nil
}

// add gives an owner more, if there is one of this name already.
func (all fieldOwners) add(one fieldOwner) fieldOwners {
	for _, other := range all {
		if other.Manager == one.Manager && other.Operation == one.Operation && other.Subresource == one.Subresource && other.APIVersion == one.APIVersion {
			other.set = other.set.Union(one.set)
			if other.Time == nil || one.Time != nil && other.Time.Before(one.Time) {
				other.Time = one.Time
			}
			return all
		}
	}
	return append(all, &one)
}

func (all fieldOwners) entries() ([]metav1.ManagedFieldsEntry, error) {
	out := []metav1.ManagedFieldsEntry{}
	for _, owner := range all {
		if owner.set.Empty() {
			continue
		}
		raw, err := owner.set.ToJSON()
		if err != nil {
			return nil, fmt.Errorf("write the fields of manager %s: %w", owner.Manager, err)
		}
		owner.FieldsType, owner.FieldsV1 = "FieldsV1", metav1.NewFieldsV1(string(raw))
		out = append(out, owner.ManagedFieldsEntry)
	}
	slices.SortStableFunc(out, func(a, b metav1.ManagedFieldsEntry) int { return cmp.Compare(a.Operation, b.Operation) })
	return out, nil
}

func fieldSet(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if entry.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
		return nil, fmt.Errorf("read the fields of manager %s: %w", entry.Manager, err)
	}
	return set, nil
}
