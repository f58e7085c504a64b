// Package patch is how phasegate writes custom resources: by merge patches of
// what a closure changed, never by Update, so that fields of other writers and
// fields unknown to our Go types survive.
//
// It knows no kind and no machine: which object is written, when, and what a
// conflict means is the caller's business.
//
// All functions share these rules:
//
//   - Everything to be written is changed inside mutate. An edit made before the
//     call is on both sides of the diff and is not sent.
//   - mutate works on obj itself.
//   - On an error obj is what it was before the call, and the error is the
//     client's own, unwrapped, so that apierrors.IsConflict and the like work.
//   - They may be called again: a second call changes nothing more.
package patch

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MutateAndPatchSpec applies mutate to obj and sends the difference in spec and
// metadata (finalizers, annotations, labels) as a merge patch that carries
// obj's resourceVersion: a write of somebody else since obj was read is a
// conflict, and the caller must read again. A mutate that changes nothing is sent
// too: the answer then says whether obj is still what is stored. A caller that
// wants no request in a steady state looks first.
//
// Afterwards obj is the server's reply (metadata with the new resourceVersion,
// spec and all the rest), except for its status: that stays as it is in memory,
// because the caller may hold a status that it has not written yet.
func MutateAndPatchSpec[T client.Object](ctx context.Context, c client.Client, obj T, mutate func(T)) error {
	return mutateAndSend(obj, mutate, true, func(reply T, body client.Patch) error {
		if err := c.Patch(ctx, reply, body); err != nil {
			return err
		}
		copyStatus(obj, reply)
		return nil
	})
}

// MutateAndSwapStatus applies mutate to obj and sends the difference to the status
// subresource, as a compare-and-swap: the patch carries obj's resourceVersion, and any
// write since obj was read is a conflict. It is for the owner of a state machine, whose
// stored phase must not be overwritten by a decision made from an older one. If mutate
// changed nothing, no request is made.
//
// Arrays are replaced whole by a merge patch: be the only writer of all conditions.
//
// Afterwards obj is the server's reply, spec and metadata included; a spec that
// was edited in memory only is gone.
func MutateAndSwapStatus[T client.Object](ctx context.Context, c client.Client, obj T, mutate func(T)) error {
	return mutateAndSend(obj, mutate, false, func(reply T, body client.Patch) error {
		return c.Status().Patch(ctx, reply, body)
	})
}

// MutateAndSwap is MutateAndSwapStatus for kinds without a status subresource: whatever
// mutate changes is sent in one merge patch that carries obj's resourceVersion. Afterwards
// obj is the server's reply.
func MutateAndSwap[T client.Object](ctx context.Context, c client.Client, obj T, mutate func(T)) error {
	return mutateAndSend(obj, mutate, false, func(reply T, body client.Patch) error {
		return c.Patch(ctx, reply, body)
	})
}

// mutateAndSend keeps the rules of the package comment. always sends also what changes
// nothing, for the sake of the resourceVersion. send receives an empty object to decode
// the reply into: decoding into obj would merge, and leave map entries behind that the
// server no longer has.
func mutateAndSend[T client.Object](obj T, mutate func(T), always bool, send func(reply T, body client.Patch) error) error {
	before := obj.DeepCopyObject().(T)
	mutate(obj)
	body, err := diff(before, obj, always)
	if err != nil {
		overwrite(obj, before)
		return err
	}
	if body == nil {
		return nil
	}
	reply := reflect.New(reflect.TypeOf(before).Elem()).Interface().(T)
	reply.GetObjectKind().SetGroupVersionKind(before.GetObjectKind().GroupVersionKind())
	reply.SetNamespace(before.GetNamespace())
	reply.SetName(before.GetName())
	if err := send(reply, body); err != nil {
		overwrite(obj, before)
		return err
	}
	reply.GetObjectKind().SetGroupVersionKind(before.GetObjectKind().GroupVersionKind())
	overwrite(obj, reply)
	return nil
}

// diff is the merge patch that leads from before to after, and carries the resourceVersion of
// before; nil if there is nothing to send.
func diff(before, after client.Object, always bool) (client.Patch, error) {
	data, err := client.MergeFrom(before).Data(after)
	if err == nil && string(data) == "{}" && !always {
		return nil, nil
	}
	if err == nil {
		data, err = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
	}
	return client.RawPatch(types.MergePatchType, data), err
}

// overwrite makes *obj what *with is. The two share memory afterwards, so with
// must not be used any more.
func overwrite[T client.Object](obj, with T) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(with).Elem())
}

// copyStatus gives to the status of from. A kind without a status is left alone.
func copyStatus(from, to client.Object) {
	if u, ok := to.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
		if status, found := from.(*unstructured.Unstructured).Object["status"]; found {
			u.Object["status"] = status
		}
		return
	}
	status := reflect.ValueOf(to).Elem().FieldByName("Status")
	if status.IsValid() {
		status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	}
}
