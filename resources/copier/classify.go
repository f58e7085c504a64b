package copier

import (
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// rules decide about the objects of one kind. They ask nobody.
type rules struct {
	me     owner
	kind   *resources.Kind
	schema *resources.Schema
}

// finding is how a v3 object differs from the wanted one; without a cause it is equal.
type finding struct {
	cause  Cause
	fields []resources.FieldDiff
}

// conflictOf is a finding about an object of v3.
func conflictOf(kind *resources.Kind, key client.ObjectKey, f finding) Conflict {
	return Conflict{Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Cause: f.cause, Fields: f.fields}
}

// compare compares an existing v3 object with the wanted one. Owners in Calico are not compared: some of them may not
// be known yet, and RemapOwners repairs them.
func (r rules) compare(want, live *unstructured.Unstructured) finding {
	differs, leaving := CauseUnmanaged, CauseUnmanaged
	if r.me.has(live) {
		differs, leaving = CauseStale, CauseTerminating
	}
	if at := live.GetDeletionTimestamp(); at != nil {
		return finding{leaving, []resources.FieldDiff{{Path: "metadata.deletionTimestamp", Want: "(absent)", Have: at.UTC().Format(time.RFC3339)}}}
	}
	if diffs := resources.Diff(r.kind, r.schema, withoutCalicoOwners(want), withoutCalicoOwners(live)); len(diffs) > 0 {
		return finding{differs, diffs}
	}
	return finding{}
}

// edited is what others have done to a copy of ours, which should become this.
func (r rules) edited(conv *resources.Converted, want, live *unstructured.Unstructured) []resources.FieldDiff {
	copied := strings.TrimSuffix(live.GetAnnotations()[resources.CopiedVersionAnnotation], deferred)
	return resources.Edited(r.kind, r.schema, withoutCalicoOwners(want), withoutCalicoOwners(live), fieldManager, copied == conv.V1Content)
}

// altered is how a v3 object, which another copy would not change, is no copy of v1. Without fields it is one.
func (r rules) altered(conv *resources.Converted, live *unstructured.Unstructured) finding {
	fields := resources.Altered(r.kind, r.schema, withoutCalicoOwners(conv.Object), withoutCalicoOwners(live))
	if r.lacksStatus(r.entryWithStatus(live), conv) {
		fields = append(fields, resources.DiffStatus(r.schema, conv.Status, statusOf(live))...)
	}
	return finding{CauseAltered, fields}
}

// isEqual compares a v3 object with what it should be by its content alone, owners in Calico left out. The answer to
// most creates is what was sent, which is seen without another look.
func (r rules) isEqual(conv *resources.Converted, live *unstructured.Unstructured) bool {
	e := r.entryWithStatus(live)
	return !e.terminating && !r.lacksStatus(e, conv) && (r.isAsSent(conv.Object, live) ||
		len(resources.Diff(r.kind, r.schema, withoutCalicoOwners(conv.Object), withoutCalicoOwners(live))) == 0)
}

// isAsSent: an object holds the very content that was sent. If it does not, it may still mean the same.
func (r rules) isAsSent(sent, live *unstructured.Unstructured) bool {
	for field := range live.Object {
		if _, has := sent.Object[field]; !has && !(field == "status" && r.kind.HasStatus(r.schema)) {
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
func (r rules) equals(e *entry, conv *resources.Converted) bool {
	return !e.terminating && !r.lacksStatus(e, conv) && e.body != nil && e.body.digest == r.digest(conv.Object)
}

// digest leaves the owners in Calico out: they are compared, and repaired, by themselves.
func (r rules) digest(obj *unstructured.Unstructured) [sha256.Size]byte {
	return resources.Digest(r.kind, r.schema, withoutCalicoOwners(obj))
}

func (r rules) entryWithContent(obj *unstructured.Unstructured) *entry {
	e := r.entryWithStatus(obj)
	e.body.digest = r.digest(obj)
	return e
}

func (r rules) entryWithStatus(obj *unstructured.Unstructured) *entry {
	e := entryOf(r.me, obj)
	e.body = &body{bare: isBare(obj), ownStatus: r.ownStatus(obj)}
	return e
}

// isBare: nobody has written a status yet.
func isBare(obj *unstructured.Unstructured) bool { return len(statusOf(obj)) == 0 }

func statusOf(obj *unstructured.Unstructured) map[string]any {
	status, _ := obj.Object["status"].(map[string]any)
	return status
}

// ownStatus is a digest of the status of an object if nobody but us has written it, and else "".
func (r rules) ownStatus(obj *unstructured.Unstructured) string {
	ours := false
	for _, entry := range obj.GetManagedFields() {
		if resources.OwnsStatus(entry) {
			if entry.Manager != fieldManager {
				return ""
			}
			ours = true
		}
	}
	if !ours {
		return ""
	}
	return r.statusDigest(statusOf(obj))
}

func (r rules) statusDigest(status map[string]any) string {
	sum := resources.StatusDigest(r.schema, status)
	return string(sum[:])
}

// lacksStatus: a copy of ours has no status, where v1 has one, or another one than v1 has. What a controller has
// written stays.
func (r rules) lacksStatus(e *entry, conv *resources.Converted) bool {
	switch {
	case !e.ours || e.body == nil:
		return false
	case e.body.bare:
		return len(conv.Status) > 0
	}
	return e.body.ownStatus != "" && e.body.ownStatus != r.statusDigest(conv.Status)
}

// desired is the live object with the content that we want. What the server manages, what admission has added, the
// status, the owners in Calico and the finalizers of Calico's own controllers stay as they are.
func (r rules) desired(want, live *unstructured.Unstructured) *unstructured.Unstructured {
	kept := func(field string) bool {
		return field == "apiVersion" || field == "kind" || field == "metadata" || field == "status" && r.kind.HasStatus(r.schema)
	}
	out := live.DeepCopy()
	for field := range live.Object {
		if !kept(field) {
			delete(out.Object, field)
		}
	}
	for field, value := range want.Object {
		if !kept(field) {
			out.Object[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	out.SetLabels(want.GetLabels())
	out.SetAnnotations(want.GetAnnotations())
	finalizers := want.GetFinalizers()
	for _, f := range live.GetFinalizers() {
		if r.kind.ControllerFinalizer(f) && !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	out.SetFinalizers(finalizers)
	calico, _ := resources.SplitOwners(live.GetOwnerReferences())
	_, foreign := resources.SplitOwners(want.GetOwnerReferences())
	out.SetOwnerReferences(append(foreign, calico...))
	resources.KeepAdded(out, live)
	return out
}

// owesOwners: a copy of ours, repaired, has other owners in Calico than we want, since a repair keeps
// those that are there. One that was complete, and is of this very content, owes nothing: what it lacks,
// another writer has taken away.
func owesOwners(want, live *unstructured.Unstructured, content string) bool {
	wanted, _ := resources.SplitOwners(want.GetOwnerReferences())
	have, _ := resources.SplitOwners(live.GetOwnerReferences())
	return live.GetAnnotations()[resources.CopiedVersionAnnotation] != content && len(resources.DiffOwners(wanted, have)) > 0
}

// fixedFirst marks the fields that the API server has refused to change, and puts them first.
func fixedFirst(diffs []resources.FieldDiff, refusal error) []resources.FieldDiff {
	var causes []metav1.StatusCause
	if details := apierrors.Details(refusal); details != nil {
		causes = details.Causes
	}
	var fixed, others []resources.FieldDiff
	for _, diff := range diffs {
		diff.Fixed = slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			return c.Field != "" && (strings.HasPrefix(diff.Path, c.Field) || strings.HasPrefix(c.Field, diff.Path))
		})
		if diff.Fixed {
			fixed = append(fixed, diff)
		} else {
			others = append(others, diff)
		}
	}
	return append(fixed, others...)
}

// withoutCalicoOwners returns obj without references to Calico objects; all others stay. It returns obj itself if
// there is nothing to change, and else a shallow copy.
func withoutCalicoOwners(obj *unstructured.Unstructured) *unstructured.Unstructured {
	calico, foreign := resources.SplitOwners(obj.GetOwnerReferences())
	if len(calico) == 0 {
		return obj
	}
	out := &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	if meta, ok := obj.Object["metadata"].(map[string]any); ok {
		out.Object["metadata"] = maps.Clone(meta)
	}
	out.SetOwnerReferences(foreign)
	return out
}
