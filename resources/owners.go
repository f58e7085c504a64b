package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
)

// detachedNote is the annotation from which references are put back: what was there, as it was.
type detachedNote struct {
	// By is the UID of the migration that wrote it.
	By types.UID `json:"by"`
	// Metadata is the value of the metadata annotation that held references; empty if it held none.
	Metadata string `json:"metadata,omitempty"`
	// OwnerReferences are all references of the object itself, if one of them was to a Calico object.
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences,omitempty"`
}

// HasCalicoOwners tells whether an object refers to an object of either Calico group, in plain sight or in
// hidden metadata. Hidden metadata that cannot be read refers to nothing: nobody else can read it either.
func HasCalicoOwners(obj metav1.Object) bool {
	if calico, _ := SplitOwners(obj.GetOwnerReferences()); len(calico) > 0 {
		return true
	}
	_, found := withoutHiddenOwners(obj.GetAnnotations()[MetadataAnnotation])
	return found
}

// IsDetached tells whether an object bears the note of DetachOwners by this migration.
func IsDetached(obj metav1.Object, by types.UID) bool {
	note, err := readNote(obj)
	return err == nil && note != nil && note.By == by
}

// DetachOwners takes references to Calico objects off an object, both those in plain sight and those in
// hidden metadata, and notes what was there. All else stays as it is. A second call changes nothing; what
// somebody has put back since the first is noted besides. The error is about a note of another migration, or
// one that cannot be read.
func DetachOwners(obj metav1.Object, by types.UID) error {
	note, err := readNote(obj)
	switch {
	case err != nil:
		return err
	case note == nil:
		note = &detachedNote{By: by}
	case note.By != by:
		return fmt.Errorf("annotation %s is of another migration, %s: put the owner references in it back by hand, and remove it",
			migrationv1.AnnotationDetachedOwners, note.By)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if without, found := withoutHiddenOwners(annotations[MetadataAnnotation]); found {
		note.Metadata = withNotedOwners(annotations[MetadataAnnotation], note.Metadata)
		annotations[MetadataAnnotation] = without
	}
	if calico, foreign := SplitOwners(obj.GetOwnerReferences()); len(calico) > 0 {
		note.OwnerReferences = addedOwners(note.OwnerReferences, obj.GetOwnerReferences())
		obj.SetOwnerReferences(foreign)
	}
	text, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("note the owner references: %w", err)
	}
	annotations[migrationv1.AnnotationDetachedOwners] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// addedOwners are the references noted before and those of now, which win: who puts one back may know of his
// own only.
func addedOwners(noted, now []metav1.OwnerReference) []metav1.OwnerReference {
	if len(noted) == 0 {
		return now
	}
	all := slices.Clone(noted)
	for _, ref := range now {
		if i := slices.IndexFunc(all, func(other metav1.OwnerReference) bool { return sameOwner(other, ref) }); i >= 0 {
			all[i] = ref
		} else {
			all = append(all, ref)
		}
	}
	return all
}

// AttachOwners puts back what DetachOwners took off, by whichever migration, and removes its note. An
// object that nobody else has changed is then as it was, byte for byte; one that somebody has keeps the
// change. rewrite turns the references to Calico objects into those that are put back; nil: as they were.
// An object without a note stays as it is.
func AttachOwners(obj metav1.Object, rewrite func(calico []metav1.OwnerReference) []metav1.OwnerReference) error {
	note, err := readNote(obj)
	if note == nil || err != nil {
		return err
	}
	annotations := obj.GetAnnotations()
	if note.Metadata != "" {
		restored, err := withHiddenOwners(annotations[MetadataAnnotation], note.Metadata)
		if err != nil {
			return err
		}
		annotations[MetadataAnnotation] = restored
	}
	delete(annotations, migrationv1.AnnotationDetachedOwners)
	if len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
	if len(note.OwnerReferences) > 0 {
		obj.SetOwnerReferences(mergedOwners(note.OwnerReferences, obj.GetOwnerReferences(), rewrite))
	}
	return nil
}

// mergedOwners puts the references to Calico objects among noted back between those that are there now.
func mergedOwners(noted, now []metav1.OwnerReference, rewrite func([]metav1.OwnerReference) []metav1.OwnerReference) []metav1.OwnerReference {
	calico, foreign := SplitOwners(noted)
	if rewrite == nil && slices.EqualFunc(foreign, now, sameOwner) {
		return noted // the order counts, too
	}
	if rewrite != nil {
		calico = rewrite(calico)
	}
	all := slices.Clone(now)
	for _, ref := range calico {
		if !slices.ContainsFunc(all, func(other metav1.OwnerReference) bool { return other.UID == ref.UID }) {
			all = append(all, ref)
		}
	}
	return all
}

func sameOwner(a, b metav1.OwnerReference) bool { return a.UID == b.UID }

// readNote returns nil without error for an object without a note.
func readNote(obj metav1.Object) (*detachedNote, error) {
	return readAnnotation[detachedNote](obj, migrationv1.AnnotationDetachedOwners)
}

const ownersField = "ownerReferences"

// withoutHiddenOwners leaves references to Calico objects out of the value of the metadata annotation. All
// that is not a reference stays as it was written, but for blanks between fields and their order.
func withoutHiddenOwners(text string) (without string, found bool) {
	fields, refs := readOwners(text)
	kept := slices.DeleteFunc(slices.Clone(refs), isCalicoReference)
	if len(kept) == len(refs) {
		return text, false
	}
	return withOwnersField(fields, kept), true
}

// withHiddenOwners puts the references to Calico objects of the original value back into the value of now.
func withHiddenOwners(now, original string) (string, error) {
	if detached, _ := withoutHiddenOwners(original); detached == now {
		return original, nil
	}
	// Somebody has written the object since: what he wrote stays.
	if now == "" {
		now = "{}"
	}
	fields, refs := readOwners(now)
	if fields == nil {
		return "", fmt.Errorf("annotation %s cannot be read any more: repair it", MetadataAnnotation)
	}
	_, noted := readOwners(original)
	for _, ref := range noted {
		if isCalicoReference(ref) && !slices.ContainsFunc(refs, func(other json.RawMessage) bool { return string(other) == string(ref) }) {
			refs = append(refs, ref)
		}
	}
	// What was written through the aggregated API has the note among its annotations.
	dropHidden(fields, migrationv1.AnnotationDetachedOwners)
	return withOwnersField(fields, refs), nil
}

// withNotedOwners is the value of the metadata annotation as it is now, with the references to Calico objects
// that were noted before; of one owner, the reference of now wins.
func withNotedOwners(now, noted string) string {
	fields, refs := readOwners(now)
	_, before := readOwners(noted)
	lost := slices.DeleteFunc(before, func(ref json.RawMessage) bool {
		return !isCalicoReference(ref) || slices.ContainsFunc(refs, func(other json.RawMessage) bool { return uidOf(other) == uidOf(ref) })
	})
	if len(lost) == 0 {
		return now
	}
	return withOwnersField(fields, append(lost, refs...))
}

func uidOf(raw json.RawMessage) types.UID {
	var ref metav1.OwnerReference
	_ = json.Unmarshal(raw, &ref) // a Calico reference was read before; what is none has no UID of one
	return ref.UID
}

// dropHidden takes one annotation out of hidden metadata. It is false if there is none.
func dropHidden(fields map[string]json.RawMessage, name string) bool {
	var annotations map[string]json.RawMessage
	if json.Unmarshal(orNull(fields["annotations"]), &annotations) != nil || annotations[name] == nil {
		return false
	}
	if delete(annotations, name); len(annotations) > 0 {
		fields["annotations"] = encoded(annotations)
	} else {
		delete(fields, "annotations")
	}
	return true
}

// readOwners takes hidden metadata apart: its fields, and each of its references. fields is nil where it
// cannot be read.
func readOwners(text string) (fields map[string]json.RawMessage, refs []json.RawMessage) {
	if json.Unmarshal([]byte(text), &fields) != nil || json.Unmarshal(orNull(fields[ownersField]), &refs) != nil {
		return nil, nil
	}
	return fields, refs
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

func withOwnersField(fields map[string]json.RawMessage, refs []json.RawMessage) string {
	delete(fields, ownersField)
	if len(refs) > 0 {
		fields[ownersField] = encoded(refs)
	}
	return string(encoded(fields))
}

func isCalicoReference(raw json.RawMessage) bool {
	var ref metav1.OwnerReference
	return json.Unmarshal(raw, &ref) == nil && IsCalicoOwner(ref)
}

// SplitOwners separates references to Calico objects from all others and keeps both in order.
func SplitOwners(refs []metav1.OwnerReference) (calico, foreign []metav1.OwnerReference) {
	for _, ref := range refs {
		if IsCalicoOwner(ref) {
			calico = append(calico, ref)
		} else {
			foreign = append(foreign, ref)
		}
	}
	return calico, foreign
}

// DiffOwners compares two lists of owner references as sets; nothing means equal.
func DiffOwners(want, have []metav1.OwnerReference) []FieldDiff {
	w, h := canonicalOwners(want), canonicalOwners(have)
	if bytes.Equal(encoded(w), encoded(h)) {
		return nil
	}
	return []FieldDiff{{Path: "metadata.ownerReferences", Want: shown(w), Have: shown(h)}}
}
