package copier

import (
	"context"
	"encoding/json"
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
func (r *run) write(ctx context.Context, of *kindRun, conv *resources.Converted, there bool) error {
	for range 2 * maxRaces {
		attempt := r.create
		if there {
			attempt = r.settle
		}
		again, err := attempt(ctx, of, conv)
		if !again || err != nil {
			return err
		}
		there = !there
	}
	return fmt.Errorf("%s %s: changed %d times while it was copied", of.kind.Name(), client.ObjectKeyFromObject(conv.Object), maxRaces)
}

// create tells by again that the object is there already.
func (r *run) create(ctx context.Context, of *kindRun, conv *resources.Converted) (again bool, err error) {
	want := conv.Object
	made := &creation{Unstructured: *want}
	err = r.tryWrite(ctx, r.counted(of.kind.Name(), "create", func() error { return r.c.Create(ctx, made) }))
	switch apierrors.Classify(err) {
	case apierrors.None:
		return r.finish(ctx, of, conv, made.version, &arrival{count: created, uid: made.uid, owners: want.GetOwnerReferences()})
	case apierrors.Conflict:
		return true, nil
	}
	return false, r.refused(ctx, of, want, err)
}

// settle deals with an object that is there already. again tells that it changed or vanished meanwhile.
func (r *run) settle(ctx context.Context, of *kindRun, conv *resources.Converted) (again bool, err error) {
	want := conv.Object
	key := client.ObjectKeyFromObject(want)
	live, err := r.get(ctx, of.kind.V3GVK(), key)
	if apierrors.Classify(err) == apierrors.NotFound {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", of.kind.Name(), key, err)
	}
	ours := r.isOurs(live)
	found := &arrival{count: equal(ours), uid: live.GetUID(), owners: live.GetOwnerReferences()}
	cause, diffs, again, err := r.judge(ctx, of.kind, of.schema, conv, live)
	switch {
	case again || err != nil:
		return again, err
	case cause == CauseStale:
		found.count = updated
		return r.repair(ctx, of, conv, live, found)
	case cause != "":
		r.conflict(of, live, cause, diffs)
		return false, nil
	case lacksStatus(conv, ours, isBare(live)):
		return r.finish(ctx, of, conv, live.GetResourceVersion(), found)
	}
	return false, r.done(of, conv, found)
}

// repair makes a copy of ours what it should be.
func (r *run) repair(ctx context.Context, of *kindRun, conv *resources.Converted, live *unstructured.Unstructured, found *arrival) (again bool, err error) {
	next := desiredOver(of.kind, conv.Object, live)
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err = r.tryWrite(ctx, func() error { return r.c.Patch(ctx, next, patch) })
	switch apierrors.Classify(err) {
	case apierrors.None:
		if isBare(next) {
			return r.finish(ctx, of, conv, next.GetResourceVersion(), found)
		}
		return false, r.done(of, conv, found)
	case apierrors.Conflict, apierrors.NotFound:
		return true, nil
	}
	return false, r.refused(ctx, of, conv.Object, err)
}

// finish writes the status that v1 has to a copy of ours that has none yet in that version: not over
// what a controller has written by then.
func (r *run) finish(ctx context.Context, of *kindRun, conv *resources.Converted, version string, found *arrival) (again bool, err error) {
	if len(conv.Status) > 0 {
		err := r.tryWrite(ctx, func() error { return r.c.Status().Patch(ctx, bareCopy(conv.Object), statusPatch(version, conv.Status)) })
		switch apierrors.Classify(err) {
		case apierrors.None:
		case apierrors.Conflict, apierrors.NotFound:
			return true, nil
		default:
			return false, r.refused(ctx, of, conv.Object, err)
		}
	}
	return false, r.done(of, conv, found)
}

// bareCopy names an object, for an answer to be read into.
func bareCopy(obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(obj.GroupVersionKind())
	out.SetNamespace(obj.GetNamespace())
	out.SetName(obj.GetName())
	return out
}

func statusPatch(version string, status map[string]any) client.Patch {
	data, _ := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": version}, "status": status}) // out of JSON
	return client.RawPatch(types.MergePatchType, data)
}

// arrival is an object that is in v3 by now, and where it counts.
type arrival struct {
	count  func(*Counts) *int64
	uid    types.UID
	owners []metav1.OwnerReference
}

func (r *run) done(of *kindRun, conv *resources.Converted, found *arrival) error {
	r.tracker.done(of.kind, found.count)
	return r.landed(of, conv, found.uid, found.owners)
}

// MayNotWriteError ends a Copy: the right to a write was missing for as long as tries go on.
type MayNotWriteError struct{ Err error }

func (e *MayNotWriteError) Error() string { return e.Err.Error() }
func (e *MayNotWriteError) Unwrap() error { return e.Err }

// refused notes an object that the server did not take. It returns an error if the reason is not the
// object's. What is in a namespace that is being deleted will be gone from v1 in a moment, too.
func (r *run) refused(ctx context.Context, of *kindRun, obj *unstructured.Unstructured, err error) error {
	key := client.ObjectKeyFromObject(obj)
	class := apierrors.Classify(err)
	if apierrors.NotAllowed(err) {
		return &MayNotWriteError{fmt.Errorf("write %s %s: %w", of.kind.Name(), key, err)}
	}
	if ctx.Err() != nil || apierrors.Retryable(class) || class == apierrors.NotFound && !namespaceMissing(err) {
		return fmt.Errorf("write %s %s: %w", of.kind.Name(), key, err)
	}
	if apierrors.NamespaceEnds(err) {
		r.conflict(of, obj, CauseLeaving, nil)
		return nil
	}
	r.reject(of, resources.Problem{
		Kind: of.kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonRejected,
		Message: fmt.Sprintf("refused by the API server: %v", err),
		Remedy:  "change the v1 object, or what refuses it, then try again",
	})
	return nil
}

// namespaceMissing tells a namespace that is gone from a resource that is not served.
func namespaceMissing(err error) bool {
	details := apierrors.Details(err)
	return details != nil && details.Kind == "namespaces"
}
