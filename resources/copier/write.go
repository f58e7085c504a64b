package copier

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// write creates the object, or settles with the one that is there: at once where it is known, since a create
// would be one write more in vain.
func (r *run) write(ctx context.Context, j *job, there bool) error {
	for range 2 * maxRaces {
		attempt := r.create
		if there {
			attempt = r.reconcileExisting
		}
		again, err := attempt(ctx, j)
		if !again || err != nil {
			return err
		}
		there = !there
	}
	return fmt.Errorf("%s %s: changed %d times while it was copied", j.of.kind.Name(), client.ObjectKeyFromObject(j.conv.Object), maxRaces)
}

// create tells by again that the object is there already.
func (r *run) create(ctx context.Context, j *job) (again bool, err error) {
	want := j.conv.Object
	made := &creation{Unstructured: *want}
	err = r.tryWrite(ctx, r.counted(j.of.kind.Name(), "create", func() error { return r.c.Create(ctx, made) }))
	switch apierrors.Classify(err) {
	case apierrors.None:
		return r.finish(ctx, j, &made.Unstructured, created)
	case apierrors.Conflict:
		return true, nil
	}
	return false, r.refused(ctx, j, err)
}

// reconcileExisting deals with an object that is there already. again tells that it changed or vanished meanwhile.
func (r *run) reconcileExisting(ctx context.Context, j *job) (again bool, err error) {
	of, want := j.of, j.conv.Object
	key := client.ObjectKeyFromObject(want)
	live, err := r.get(ctx, of.kind.V3GVK(), key)
	if apierrors.Classify(err) == apierrors.NotFound {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", of.kind.Name(), key, err)
	}
	seen := r.statusEntry(of.schema, live)
	cause, diffs, again, err := r.judge(ctx, of.kind, of.schema, j.conv, live)
	switch {
	case again || err != nil:
		return again, err
	case cause == CauseStale:
		return r.repair(ctx, j, live)
	case cause != "":
		r.conflict(of, live, cause, diffs)
		return false, nil
	case seen.lacksStatus(of.schema, j.conv) && seen.body.bare:
		return r.finish(ctx, j, live, equal(seen.ours))
	case seen.lacksStatus(of.schema, j.conv):
		return r.finish(ctx, j, live, updated)
	}
	return false, r.done(j, live, equal(seen.ours))
}

// repair makes a copy of ours what it should be.
func (r *run) repair(ctx context.Context, j *job, live *unstructured.Unstructured) (again bool, err error) {
	next := desiredOver(j.of.kind, j.conv.Object, live)
	if owesOwners(j.conv.Object, live, j.conv.V1Content) {
		markDeferred(next, j.conv)
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err = r.tryWrite(ctx, func() error { return r.c.Patch(ctx, next, patch) })
	switch apierrors.Classify(err) {
	case apierrors.None:
		if r.statusEntry(j.of.schema, next).lacksStatus(j.of.schema, j.conv) {
			return r.finish(ctx, j, next, updated)
		}
		return false, r.done(j, next, updated)
	case apierrors.Conflict, apierrors.NotFound:
		return true, nil
	case apierrors.Invalid:
		if gone, clearErr := r.deleteForRecreate(ctx, j, live); gone || clearErr != nil {
			return gone, clearErr
		}
	}
	return false, r.refused(ctx, j, err)
}

// deleteForRecreate removes a copy of ours that cannot become what it should be, since a field may not change: the v1
// object was deleted and created anew. It is removed as it was seen, if nobody else has written it, and if the
// server would take the new one.
func (r *run) deleteForRecreate(ctx context.Context, j *job, live *unstructured.Unstructured) (gone bool, err error) {
	if !r.mayClear(j, live) {
		return false, nil
	}
	trial := &creation{Unstructured: *j.conv.Object.DeepCopy()}
	err = r.tryWrite(ctx, func() error { return r.c.Create(ctx, trial, client.DryRunAll) })
	switch class := apierrors.Classify(err); {
	case class == apierrors.None || class == apierrors.Conflict: // it is there
	case ctx.Err() != nil || apierrors.Retryable(class):
		return false, fmt.Errorf("ask whether %s %s may be created anew: %w", j.of.kind.Name(), client.ObjectKeyFromObject(live), err)
	default:
		return false, nil // the answer to the repair says enough
	}
	_, err = r.removeLive(ctx, j.of.kind, metadataOf(live))
	switch apierrors.Classify(err) {
	case apierrors.None, apierrors.Conflict, apierrors.NotFound: // write looks again
		return true, nil
	}
	return false, fmt.Errorf("delete %s %s, which cannot become what v1 has: %w", j.of.kind.Name(), client.ObjectKeyFromObject(live), err)
}

// mayClear tells whether nobody but us has a part in a copy.
func (r *run) mayClear(j *job, live *unstructured.Unstructured) bool {
	return r.isOurs(live) && len(editedSince(j.of.kind, j.of.schema, j.conv, live)) == 0 && !j.of.kind.Undeletable(live.GetName())
}

// metadataOf is what the deletion of an object has to know of it.
func metadataOf(live *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: live.GetNamespace(), Name: live.GetName(), UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
		Annotations: live.GetAnnotations(), Finalizers: live.GetFinalizers(),
	}}
	out.SetGroupVersionKind(live.GroupVersionKind())
	return out
}

// finish writes the status that v1 has to a copy of ours that lacks it, as it was seen: not over what a
// controller has written by then.
func (r *run) finish(ctx context.Context, j *job, live *unstructured.Unstructured, count counter) (again bool, err error) {
	if len(j.conv.Status) > 0 || r.statusEntry(j.of.schema, live).lacksStatus(j.of.schema, j.conv) {
		patch, err := statusPatch(live, j.conv.Status)
		if err != nil {
			return false, fmt.Errorf("write the status of %s %s: %w", j.of.kind.Name(), client.ObjectKeyFromObject(live), err)
		}
		live = bareCopy(live)
		err = r.tryWrite(ctx, func() error { return r.c.Status().Patch(ctx, live, patch) })
		switch apierrors.Classify(err) {
		case apierrors.None:
		case apierrors.Conflict, apierrors.NotFound:
			return true, nil
		default:
			return false, r.refused(ctx, j, err)
		}
	}
	return false, r.done(j, live, count)
}

// bareCopy names an object, for an answer to be read into.
func bareCopy(obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(obj.GroupVersionKind())
	out.SetNamespace(obj.GetNamespace())
	out.SetName(obj.GetName())
	return out
}

// statusPatch makes the status of live what it should be, and takes away what is not in it any more.
func statusPatch(live *unstructured.Unstructured, status map[string]any) (client.Patch, error) {
	next := live.DeepCopy()
	next.Object["status"] = status
	if len(status) == 0 {
		delete(next.Object, "status")
	}
	data, err := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}).Data(next)
	return client.RawPatch(types.MergePatchType, data), err
}

// judgeStatus is judge of the status of a copy. One that admission makes of v1's again is no repair's to change.
func (c *Copier) judgeStatus(ctx context.Context, kind *resources.Kind, schema *resources.Schema, conv *resources.Converted, live *unstructured.Unstructured) (cause Cause, diffs []resources.FieldDiff, again bool, err error) {
	if !c.statusEntry(schema, live).lacksStatus(schema, conv) {
		return "", nil, false, nil
	}
	if isBare(live) {
		return CauseStale, []resources.FieldDiff{{Path: "status", Want: "present", Have: "(absent)"}}, false, nil
	}
	diffs = resources.DiffStatus(schema, conv.Status, statusIn(live))
	patch, err := statusPatch(live, conv.Status)
	if err != nil {
		return "", nil, false, err
	}
	admitted := bareCopy(live)
	err = c.try(ctx, func() error { return c.c.Status().Patch(ctx, admitted, patch, client.DryRunAll) })
	switch apierrors.Classify(err) {
	case apierrors.None:
		if len(resources.DiffStatus(schema, statusIn(admitted), statusIn(live))) == 0 {
			return CauseAltered, diffs, false, nil
		}
	case apierrors.Conflict, apierrors.NotFound:
		return "", nil, true, nil
	case apierrors.Invalid, apierrors.Forbidden: // Copy will be told the same, and names the object
	default:
		return "", nil, false, fmt.Errorf("ask what would become of the status of %s %s: %w", kind.Name(), client.ObjectKeyFromObject(live), err)
	}
	return CauseStale, diffs, false, nil
}

// done counts an object that is in v3 by now, as the server has answered it. What it holds is proved by
// its content alone: admission may have made something else of what we sent.
func (r *run) done(j *job, live *unstructured.Unstructured, count counter) error {
	of, conv := j.of, j.conv
	if r.isEqual(of.pairs, conv, live) {
		r.prove(j, live.GetUID(), parseVersion(live.GetResourceVersion()))
	} else if fields := r.alteredFields(of.pairs, conv, live); len(fields) > 0 {
		r.mu.Lock()
		r.altered = append(r.altered, alteredCopy(of.kind, live, fields))
		r.mu.Unlock()
	}
	r.tracker.done(of.kind, count)
	r.skip(of.kind, client.ObjectKeyFromObject(live), r.isOurs(live))
	return r.landed(conv.V1UID, dependent{kind: of.kind, key: client.ObjectKeyFromObject(live), want: conv.Owners, live: r.entryOf(live)})
}

// ForbiddenError ends a Copy: the right to a write was missing for as long as tries go on.
type ForbiddenError struct{ Err error }

func (e *ForbiddenError) Error() string { return e.Err.Error() }
func (e *ForbiddenError) Unwrap() error { return e.Err }

// refused notes an object that the server did not take. It returns an error if the reason is not the
// object's. What is in a namespace that is being deleted will be gone from v1 in a moment, too.
func (r *run) refused(ctx context.Context, j *job, err error) error {
	key := client.ObjectKeyFromObject(j.conv.Object)
	class := apierrors.Classify(err)
	if apierrors.NotAllowed(err) {
		return &ForbiddenError{fmt.Errorf("write %s %s: %w", j.of.kind.Name(), key, err)}
	}
	if ctx.Err() != nil || apierrors.Retryable(class) || class == apierrors.NotFound && !namespaceMissing(err) {
		return fmt.Errorf("write %s %s: %w", j.of.kind.Name(), key, err)
	}
	if apierrors.NamespaceEnds(err) {
		r.conflict(j.of, j.conv.Object, CauseTerminating, nil)
		return nil
	}
	if namespaceMissing(err) {
		v1, readErr := r.readV1(ctx, j.of.kind, client.ObjectKeyFromObject(j.v1))
		if readErr != nil {
			return readErr
		}
		if v1 == nil { // it went with its namespace since it was listed
			r.leave(j.of.kind, j.v1)
			return nil
		}
	}
	r.reject(j.of, refusal(j.of.kind, key, err))
	return nil
}

func refusal(kind *resources.Kind, key client.ObjectKey, err error) resources.Problem {
	return resources.Problem{
		Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonRejected,
		Message: fmt.Sprintf("refused by the API server: %v", err),
		Remedy:  "change the v1 object, or what refuses it, then try again",
	}
}

// namespaceMissing tells a namespace that is gone from a resource that is not served.
func namespaceMissing(err error) bool {
	details := apierrors.Details(err)
	return details != nil && details.Kind == "namespaces"
}
