package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// decide compares an existing v3 object with the wanted one; no cause means equal. Owners in Calico are
// not compared: some of them may not be known yet, and RemapOwners repairs them.
func decide(kind *resources.Kind, schema *resources.Schema, want, live *unstructured.Unstructured, ours bool) (Cause, []resources.FieldDiff) {
	differs, leaving := CauseUnmanaged, CauseUnmanaged
	if ours {
		differs, leaving = CauseStale, CauseTerminating
	}
	if at := live.GetDeletionTimestamp(); at != nil {
		return leaving, []resources.FieldDiff{{Path: "metadata.deletionTimestamp", Want: "(absent)", Have: at.UTC().Format(time.RFC3339)}}
	}
	if diffs := resources.Diff(kind, schema, withCalicoOwners(want, nil), withCalicoOwners(live, nil)); len(diffs) > 0 {
		return differs, diffs
	}
	return "", nil
}

// judge is decide, and for a copy of ours that differs it finds out why. What admission makes of the
// wanted object again, as a dry run shows, is no difference. What somebody else has changed since we
// wrote it is his. The rest is for a Copy to repair. again says that the object changed or vanished
// meanwhile.
func (c *Copier) judge(ctx context.Context, kind *resources.Kind, schema *resources.Schema, conv *resources.Converted, live *unstructured.Unstructured) (cause Cause, diffs []resources.FieldDiff, again bool, err error) {
	cause, diffs = decide(kind, schema, conv.Object, live, c.isOurs(live))
	if cause != CauseStale {
		return cause, diffs, false, nil
	}
	admitted := desiredOver(kind, conv.Object, live)
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err = c.try(ctx, func() error { return c.c.Patch(ctx, admitted, patch, client.DryRunAll) })
	switch apierrors.Classify(err) {
	case apierrors.None:
	case apierrors.Conflict, apierrors.NotFound:
		return "", nil, true, nil
	case apierrors.Invalid:
		if len(editedSince(kind, schema, conv, live)) > 0 { // what nobody else has a part in, Copy makes anew
			return CauseEdited, fixedFirst(diffs, err), false, nil
		}
		return cause, diffs, false, nil
	case apierrors.Forbidden:
		return cause, diffs, false, nil // Copy will be told the same, and names the object
	default:
		return "", nil, false, fmt.Errorf("ask what would become of %s %s: %w", kind.Name(), client.ObjectKeyFromObject(live), err)
	}
	want, have := withCalicoOwners(admitted, nil), withCalicoOwners(live, nil)
	diffs = resources.Diff(kind, schema, want, have)
	if len(diffs) == 0 {
		return "", nil, false, nil
	}
	if edited := resources.Edited(kind, schema, want, have, fieldManager, copiedVersion(live) == conv.V1Content); len(edited) > 0 {
		return CauseEdited, edited, false, nil
	}
	return CauseStale, diffs, false, nil
}

// alteredFields are those in which a v3 object, which another copy would not change, is no copy of v1.
func (c *Copier) alteredFields(of *pairs, conv *resources.Converted, live *unstructured.Unstructured) []resources.FieldDiff {
	fields := resources.Altered(of.kind, of.schema, withCalicoOwners(conv.Object, nil), withCalicoOwners(live, nil))
	if c.statusEntry(of.schema, live).lacksStatus(of.schema, conv) {
		fields = append(fields, resources.DiffStatus(of.schema, conv.Status, statusIn(live))...)
	}
	return fields
}

func alteredCopy(kind *resources.Kind, live *unstructured.Unstructured, fields []resources.FieldDiff) Conflict {
	return Conflict{Kind: kind.Name(), Namespace: live.GetNamespace(), Name: live.GetName(), Cause: CauseAltered, Fields: fields}
}

// WaiveAltered is what a person waives who wants v3 to have what admission makes of the copies.
const WaiveAltered = "altered-copies"

// Problem says of an altered copy what a person can do; by is the UID of the migration, empty where there is none yet.
func (c Conflict) Problem(by types.UID) resources.Problem {
	var fields []string
	for i, f := range c.Fields {
		if i == fieldsNamed {
			fields = append(fields, fmt.Sprintf("and %d more", len(c.Fields)-i))
			break
		}
		fields = append(fields, f.String())
	}
	return resources.Problem{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Reason: resources.ReasonAltered,
		Message: "an admission policy or a webhook makes something else of it in v3: " + strings.Join(fields, ", "),
		Remedy: fmt.Sprintf("change what does it, and delete the copy; or, if v3 is to have it so, waive it with the annotation %s on the migration",
			migrationv1.WaiverAnnotation(WaiveAltered, by))}
}

// fieldsNamed is how many fields of an object a message names.
const fieldsNamed = 5

// editedSince is what others have done to a copy of ours.
func editedSince(kind *resources.Kind, schema *resources.Schema, conv *resources.Converted, live *unstructured.Unstructured) []resources.FieldDiff {
	want, have := withCalicoOwners(desiredOver(kind, conv.Object, live), nil), withCalicoOwners(live, nil)
	return resources.Edited(kind, schema, want, have, fieldManager, copiedVersion(live) == conv.V1Content)
}

// fixedFirst marks the fields that the API server has refused to change, and puts them first.
func fixedFirst(diffs []resources.FieldDiff, refusal error) []resources.FieldDiff {
	var causes []metav1.StatusCause
	if details := apierrors.Details(refusal); details != nil {
		causes = details.Causes
	}
	for i := range diffs {
		path := diffs[i].Path
		diffs[i].Fixed = slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			return c.Field != "" && (strings.HasPrefix(path, c.Field) || strings.HasPrefix(c.Field, path))
		})
	}
	slices.SortStableFunc(diffs, func(a, b resources.FieldDiff) int {
		if a.Fixed == b.Fixed {
			return 0
		} else if a.Fixed {
			return -1
		}
		return 1
	})
	return diffs
}

// isBare tells that nobody has written a status yet.
func isBare(obj *unstructured.Unstructured) bool {
	status, _ := obj.Object["status"].(map[string]any)
	return len(status) == 0
}

// ownStatus is a digest of the status of an object if nobody but us has written it, and else "".
func ownStatus(schema *resources.Schema, obj *unstructured.Unstructured) string {
	ours := false
	for _, entry := range obj.GetManagedFields() {
		if entry.Subresource == "status" {
			if entry.Manager != fieldManager {
				return ""
			}
			ours = true
		}
	}
	if ours {
		return statusDigest(schema, statusIn(obj))
	}
	return ""
}

func statusIn(obj *unstructured.Unstructured) map[string]any {
	status, _ := obj.Object["status"].(map[string]any)
	return status
}

func statusDigest(schema *resources.Schema, status map[string]any) string {
	sum := resources.StatusDigest(schema, status)
	return string(sum[:])
}

// lacksStatus tells that a copy of ours has no status, where v1 has one, or another one than v1 has. What a
// controller has written stays.
func (e entry) lacksStatus(schema *resources.Schema, conv *resources.Converted) bool {
	switch {
	case !e.ours || e.body == nil:
		return false
	case e.body.bare:
		return len(conv.Status) > 0
	}
	return e.body.ownStatus != "" && e.body.ownStatus != statusDigest(schema, conv.Status)
}

// withheld ends the CopiedVersionAnnotation of a copy that does not have all its owners yet.
const withheld = " owners withheld"

// owesOwners tells that a copy of ours, repaired, has other owners in Calico than we want: a repair keeps
// those that are there. One that was complete, and is of this very content, owes nothing: what it lacks,
// somebody has taken away.
func owesOwners(want, live *unstructured.Unstructured, content string) bool {
	wanted, _ := resources.SplitOwners(want.GetOwnerReferences())
	have, _ := resources.SplitOwners(live.GetOwnerReferences())
	return live.GetAnnotations()[resources.CopiedVersionAnnotation] != content && len(resources.DiffOwners(wanted, have)) > 0
}

func copiedVersion(obj metav1.Object) string {
	return strings.TrimSuffix(obj.GetAnnotations()[resources.CopiedVersionAnnotation], withheld)
}

// desiredOver is the live object with the content that we want. What the server manages, the status, the
// owners in Calico and the finalizers of Calico's own controllers stay as they are.
func desiredOver(kind *resources.Kind, want, live *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	for field := range live.Object {
		if !keptField(kind, field) {
			delete(out.Object, field)
		}
	}
	for field, value := range want.Object {
		if !keptField(kind, field) {
			out.Object[field] = value
		}
	}
	out.SetLabels(want.GetLabels())
	out.SetAnnotations(want.GetAnnotations())
	finalizers := want.GetFinalizers()
	for _, f := range live.GetFinalizers() {
		if kind.ControllerFinalizer(f) && !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	out.SetFinalizers(finalizers)
	calico, _ := resources.SplitOwners(live.GetOwnerReferences())
	_, foreign := resources.SplitOwners(want.GetOwnerReferences())
	out.SetOwnerReferences(append(foreign, calico...))
	return out
}

func keptField(kind *resources.Kind, field string) bool {
	return field == "apiVersion" || field == "kind" || field == "metadata" || field == "status" && kind.HasStatus()
}

// mark stamps an object that we are about to write: whose it is, and of what it is a copy. Its metadata
// is its own: see resources.Convert.
func (c *Copier) mark(obj *unstructured.Unstructured, conv *resources.Converted, complete bool) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resources.MigratedByAnnotation] = string(c.owner.UID)
	annotations[resources.CopiedVersionAnnotation] = conv.V1Content
	obj.SetAnnotations(annotations)
	if !complete {
		markDeferred(obj, conv)
	}
}

// markDeferred says of a copy that RemapOwners is to set its owners.
func markDeferred(obj *unstructured.Unstructured, conv *resources.Converted) {
	annotations := obj.GetAnnotations()
	annotations[resources.CopiedVersionAnnotation] = conv.V1Content + withheld
	obj.SetAnnotations(annotations)
}

// setOwners replaces all owner references of an object whose metadata is its own.
func setOwners(obj *unstructured.Unstructured, refs []metav1.OwnerReference) {
	if len(refs) > 0 {
		obj.SetOwnerReferences(refs)
	}
}
