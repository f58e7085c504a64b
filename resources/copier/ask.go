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

// errChanged: an object has changed, or vanished, since it was read. It is to be read again.
var errChanged = errors.New("it has changed meanwhile")

// asker knows the rules of a kind, and asks the API server by dry runs what admission would make of a write. It
// changes nothing.
type asker struct {
	*api
	rules
}

// difference is compare, and for a copy of ours that differs it finds out why. What admission makes of the
// wanted object again, as a dry run shows, is no difference. What another writer has changed since we
// wrote it is his. The rest is for a Copy to repair.
func (a asker) difference(ctx context.Context, conv *resources.Converted, live *unstructured.Unstructured) (finding, error) {
	found := a.compare(conv.Object, live)
	if found.cause != CauseStale {
		return found, nil
	}
	want := a.desired(conv.Object, live)
	admitted, patch := want.DeepCopy(), client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err := a.try(ctx, func() error { return a.client.Patch(ctx, admitted, patch, client.DryRunAll) })
	switch apierrors.Classify(err) {
	case apierrors.None:
	case apierrors.Conflict, apierrors.NotFound:
		return finding{}, errChanged
	case apierrors.Invalid:
		if len(a.edited(conv, want, live)) > 0 { // what nobody else has a part in, Copy makes anew
			return finding{CauseEdited, fixedFirst(found.fields, err)}, nil
		}
		return found, nil
	case apierrors.Forbidden:
		return found, nil // Copy will get the same answer, and names the object
	default:
		return finding{}, fmt.Errorf("ask what would become of %s %s: %w", a.kind.Name(), client.ObjectKeyFromObject(live), err)
	}
	found.fields = resources.Diff(a.kind, a.schema, withoutCalicoOwners(admitted), withoutCalicoOwners(live))
	if len(found.fields) == 0 {
		return finding{}, nil
	}
	if edited := a.edited(conv, admitted, live); len(edited) > 0 {
		return finding{CauseEdited, edited}, nil
	}
	return found, nil
}

// statusDifference is difference of the status of a copy. One that admission makes of v1's again is no repair's to
// change.
func (a asker) statusDifference(ctx context.Context, conv *resources.Converted, live *unstructured.Unstructured) (finding, error) {
	if !a.lacksStatus(a.entryWithStatus(live), conv) {
		return finding{}, nil
	}
	if isBare(live) {
		return finding{CauseStale, []resources.FieldDiff{{Path: "status", Want: "present", Have: "(absent)"}}}, nil
	}
	found := finding{CauseStale, resources.DiffStatus(a.schema, conv.Status, statusOf(live))}
	patch, err := statusPatch(live, conv.Status)
	if err != nil {
		return finding{}, err
	}
	admitted := nameOnly(live)
	err = a.try(ctx, func() error { return a.patchStatus(ctx, admitted, patch, metav1.DryRunAll) })
	switch apierrors.Classify(err) {
	case apierrors.None:
		if len(resources.DiffStatus(a.schema, statusOf(admitted), statusOf(live))) == 0 {
			found.cause = CauseAltered
		}
	case apierrors.Conflict, apierrors.NotFound:
		return finding{}, errChanged
	case apierrors.Invalid, apierrors.Forbidden: // Copy will get the same answer, and names the object
	default:
		return finding{}, fmt.Errorf("ask what would become of the status of %s %s: %w", a.kind.Name(), client.ObjectKeyFromObject(live), err)
	}
	return found, nil
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
