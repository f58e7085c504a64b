package copier

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// writer brings objects to v3, one with each call. Its errors stop the whole copy; what is wrong with one object goes
// to the notes.
type writer struct {
	*api
	v1     *Source
	copies *Copies
	notes  *notebook
	// deferOwners leaves all owners in Calico to RemapOwners.
	deferOwners bool
}

func (w *writer) copy(ctx context.Context, j *job) (err error) {
	of := j.of
	if j.v1 == nil {
		if j.v1, err = w.v1.read(ctx, of.kind, j.key); err != nil || j.v1 == nil {
			return err
		}
	}
	j.conv, err = resources.Convert(of.kind, j.v1, of.schema)
	var problem *resources.Problem
	if errors.As(err, &problem) {
		w.notes.reject(of.kind, *problem)
		of.unreadable.Store(true)
		return nil
	}
	if err != nil {
		return err
	}
	if j.conv.Terminating {
		w.notes.leave(of.kind, j.v1)
		return nil
	}
	want := j.conv.Object
	there, other := of.live.take(client.ObjectKeyFromObject(want), j.v1.GetName())
	if other != "" {
		w.notes.reject(of.kind, collision(of.kind, j.v1, other, want.GetName()))
		return nil
	}
	known := there != nil
	if known && of.equals(there, j.conv) {
		of.prove(j, there.uid, there.version)
		return w.equal(idOf(j.conv.V1UID), j.dependent(there))
	}
	resolved, unknown := w.ownersNow(j.conv.Owners)
	if len(resolved) > 0 {
		want.SetOwnerReferences(append(want.GetOwnerReferences(), resolved...))
	}
	of.me.mark(want, j.conv)
	if len(unknown) > 0 {
		markDeferred(want, j.conv)
	}
	return w.write(ctx, j, known)
}

// ownersNow are the owners in Calico that a copy may have already.
func (w *writer) ownersNow(refs []metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference) {
	if w.deferOwners {
		return nil, refs
	}
	return w.notes.owners.resolve(refs)
}

// write creates the object, or reconciles the one that is there: at once where it is known, since a create
// would be one write more in vain.
func (w *writer) write(ctx context.Context, j *job, there bool) error {
	for range 2 * maxRaces {
		attempt := w.create
		if there {
			attempt = w.reconcileExisting
		}
		if err := attempt(ctx, j); !errors.Is(err, errChanged) {
			return err
		}
		there = !there
	}
	return fmt.Errorf("%s %s: changed %d times while it was copied", j.of.kind.Name(), j.name(), maxRaces)
}

// create is errChanged if the object is there already.
func (w *writer) create(ctx context.Context, j *job) error {
	made := &creation{Unstructured: *j.conv.Object}
	err := w.tryWrite(ctx, w.counted(j.of.kind.Name(), "create", func() error { return w.client.Create(ctx, made) }))
	switch apierrors.Classify(err) {
	case apierrors.None:
		return w.writeStatus(ctx, j, &made.Unstructured, created)
	case apierrors.Conflict:
		return errChanged
	}
	return w.refused(ctx, j, err)
}

// reconcileExisting deals with an object that is there already.
func (w *writer) reconcileExisting(ctx context.Context, j *job) error {
	live, err := w.get(ctx, j.of.kind.V3GVK(), j.name())
	if apierrors.Classify(err) == apierrors.NotFound {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", j.of.kind.Name(), j.name(), err)
	}
	found, err := j.of.difference(ctx, j.conv, live)
	seen := j.of.entryWithStatus(live)
	switch {
	case err != nil:
		return err
	case found.cause == CauseStale:
		return w.repair(ctx, j, live)
	case found.cause != "":
		w.notes.conflict(j.of.kind, j.name(), found)
		return nil
	case j.of.lacksStatus(seen, j.conv) && !seen.body.bare:
		return w.writeStatus(ctx, j, live, updated)
	case j.of.lacksStatus(seen, j.conv):
		return w.writeStatus(ctx, j, live, equal(seen.ours))
	}
	return w.done(j, live, equal(seen.ours))
}

// repair makes a copy of ours what it should be.
func (w *writer) repair(ctx context.Context, j *job, live *unstructured.Unstructured) error {
	next := j.of.desired(j.conv.Object, live)
	if owesOwners(j.conv.Object, live, j.conv.V1Content) {
		markDeferred(next, j.conv)
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err := w.tryWrite(ctx, func() error { return w.client.Patch(ctx, next, patch) })
	switch apierrors.Classify(err) {
	case apierrors.None:
		if j.of.lacksStatus(j.of.entryWithStatus(next), j.conv) {
			return w.writeStatus(ctx, j, next, updated)
		}
		return w.done(j, next, updated)
	case apierrors.Conflict, apierrors.NotFound:
		return errChanged
	case apierrors.Invalid:
		if cleared := w.deleteForRecreate(ctx, j, live); cleared != nil {
			return cleared
		}
	}
	return w.refused(ctx, j, err)
}

// deleteForRecreate removes a copy of ours that cannot become what it should be, since a field may not change: the v1
// object was deleted and created anew. It is removed as it was seen, if nobody else has written it, and if the
// server would take the new one. It is errChanged if the copy is gone, or has changed, and nil if it stays.
func (w *writer) deleteForRecreate(ctx context.Context, j *job, live *unstructured.Unstructured) error {
	of := j.of
	if !of.me.has(live) || len(of.edited(j.conv, of.desired(j.conv.Object, live), live)) > 0 || of.kind.Undeletable(live.GetName()) {
		return nil
	}
	trial := &creation{Unstructured: *j.conv.Object.DeepCopy()}
	err := w.tryWrite(ctx, func() error { return w.client.Create(ctx, trial, client.DryRunAll) })
	switch class := apierrors.Classify(err); {
	case class == apierrors.None || class == apierrors.Conflict: // it is there
	case ctx.Err() != nil || !apierrors.Final(err):
		return fmt.Errorf("ask whether %s %s may be created anew: %w", of.kind.Name(), j.name(), err)
	default:
		return nil // the answer to the repair says enough
	}
	_, err = w.copies.removeLive(ctx, of.kind, metadataOf(live))
	switch apierrors.Classify(err) {
	case apierrors.None, apierrors.Conflict, apierrors.NotFound: // write looks again
		return errChanged
	}
	return fmt.Errorf("delete %s %s, which cannot become what v1 has: %w", of.kind.Name(), j.name(), err)
}

// metadataOf is what the deletion of an object has to know of it.
func metadataOf(live *unstructured.Unstructured) *Meta {
	out := &Meta{ObjectMeta: metav1.ObjectMeta{
		Namespace: live.GetNamespace(), Name: live.GetName(), UID: live.GetUID(), ResourceVersion: live.GetResourceVersion(),
		Annotations: live.GetAnnotations(), Finalizers: live.GetFinalizers(),
	}}
	out.SetGroupVersionKind(live.GroupVersionKind())
	return out
}

// writeStatus writes the status that v1 has to a copy of ours that lacks it, as it was seen: not over what a
// controller has written by then.
func (w *writer) writeStatus(ctx context.Context, j *job, live *unstructured.Unstructured, count counter) error {
	if len(j.conv.Status) > 0 || j.of.lacksStatus(j.of.entryWithStatus(live), j.conv) {
		patch, err := statusPatch(live, j.conv.Status)
		if err != nil {
			return fmt.Errorf("write the status of %s %s: %w", j.of.kind.Name(), j.name(), err)
		}
		live = nameOnly(live)
		err = w.tryWrite(ctx, func() error { return j.of.patchStatus(ctx, live, patch) })
		switch apierrors.Classify(err) {
		case apierrors.None:
		case apierrors.Conflict, apierrors.NotFound:
			return errChanged
		default:
			return w.refused(ctx, j, err)
		}
	}
	return w.done(j, live, count)
}

// patchStatus is one request, to where the CRD has the status. A copy comes with its status, which is content here.
func (a asker) patchStatus(ctx context.Context, obj client.Object, patch client.Patch, dryRun ...string) error {
	if !a.kind.PatchesStatus(a.schema) {
		return a.client.Patch(ctx, obj, patch, &client.PatchOptions{DryRun: dryRun})
	}
	return a.client.Status().Patch(ctx, obj, patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}})
}

// done counts an object that is in v3 by now, as the server has answered it. What it holds is proved by
// its content alone: admission may have made something else of what we sent.
func (w *writer) done(j *job, live *unstructured.Unstructured, count counter) error {
	if j.of.isEqual(j.conv, live) {
		j.of.prove(j, live.GetUID(), parseVersion(live.GetResourceVersion()))
	} else if found := j.of.altered(j.conv, live); len(found.fields) > 0 {
		w.notes.altered.add(conflictOf(j.of.kind, j.name(), found))
	}
	in := j.dependent(entryOf(j.of.me, live))
	w.notes.done(in, count)
	return w.notes.landed(idOf(j.conv.V1UID), in)
}

// equal counts an object that v3 has already as v1 has it.
func (w *writer) equal(v1 rawUID, in dependent) error {
	w.notes.done(in, equal(in.live.ours))
	return w.notes.landed(v1, in)
}

// prove notes that the v3 object is equal, by its content, to what the v1 object of the job becomes.
func (k *kindRun) prove(j *job, uid types.UID, version uint64) {
	if !k.from.cache.forgetful {
		k.proved.prove(j.conv, v1Digest(k.kind, j.v1), uid, version)
	}
}

// name is that of the v3 object.
func (j *job) name() client.ObjectKey { return client.ObjectKeyFromObject(j.conv.Object) }

func (j *job) dependent(live *entry) dependent {
	return dependent{kind: j.of.kind, key: j.name(), want: j.conv.Owners, live: *live}
}

// ForbiddenError ends a Copy: the right to a write was missing for as long as tries go on.
type ForbiddenError struct{ Err error }

func (e *ForbiddenError) Error() string { return e.Err.Error() }
func (e *ForbiddenError) Unwrap() error { return e.Err }

// refused notes an object that the server did not take. It returns an error if the reason is not the
// object's. What is in a namespace that is being deleted will be gone from v1 in a moment, too.
func (w *writer) refused(ctx context.Context, j *job, err error) error {
	of, class := j.of, apierrors.Classify(err)
	if apierrors.NotAllowed(err) {
		return &ForbiddenError{fmt.Errorf("write %s %s: %w", of.kind.Name(), j.name(), err)}
	}
	if ctx.Err() != nil || !apierrors.Final(err) || class == apierrors.NotFound && !namespaceMissing(err) {
		return fmt.Errorf("write %s %s: %w", of.kind.Name(), j.name(), err)
	}
	if apierrors.NamespaceEnds(err) {
		w.notes.conflict(of.kind, j.name(), finding{cause: CauseTerminating})
		return nil
	}
	if namespaceMissing(err) {
		v1, readErr := w.v1.read(ctx, of.kind, client.ObjectKeyFromObject(j.v1))
		if readErr != nil {
			return readErr
		}
		if v1 == nil { // it went with its namespace since it was listed
			w.notes.leave(of.kind, j.v1)
			return nil
		}
	}
	w.notes.reject(of.kind, refusal(of.kind, j.name(), err))
	return nil
}

func refusal(kind *resources.Kind, key client.ObjectKey, err error) resources.Problem {
	return problemOf(kind, key, resources.ReasonRejected, fmt.Sprintf("refused by the API server: %v", err),
		"change the v1 object, or what refuses it, then try again")
}

// namespaceMissing is true for a namespace that is gone, and false for a resource that is not served.
func namespaceMissing(err error) bool {
	details := apierrors.Details(err)
	return details != nil && details.Kind == "namespaces"
}
