package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// deleteResult is what became of a copy that should go.
type deleteResult string

const (
	deleted deleteResult = "deleted" // by us, just now
	absent  deleteResult = "absent"  // gone, or somebody else's by now
	kept    deleteResult = "kept"    // protected: it lost our mark and stays
)

// DeleteCopies removes every v3 object that bears our mark, kinds that depend on others before those, and
// all that do not at once. Call it again until Remaining is empty; the second call deletes what is left.
// Objects that are protected against deletion lose the mark and stay. Copies that are the last of their
// objects, because the v1 CRD went with those, are an error, and stay; lastToo deletes them as well.
func (c *Copier) DeleteCopies(ctx context.Context, lastToo bool, report Report) (Deletion, error) {
	kinds := c.reg.Kinds()
	slices.Reverse(kinds)
	d := &deletion{Copier: c, lastToo: lastToo, tracker: newTracker(kinds, make([]int64, len(kinds)), report), finished: finishLines(kinds)}
	err := eachKind(ctx, kinds, d.kind)
	d.tracker.flush()
	if err != nil {
		return d.out, err
	}
	remaining, err := c.remaining(ctx, kinds)
	slices.SortFunc(d.out.Kept, compareProblems)
	d.out.Remaining = remaining
	return d.out, err
}

// FreeStore is DeleteCopies for a store that is full, and takes deletes and nothing else: copies that a write would
// have to come before, which have finalizers or are protected, stay for a later DeleteCopies.
func (c *Copier) FreeStore(ctx context.Context) (deleted int64, err error) {
	kinds := c.reg.Kinds()
	d := &deletion{Copier: c, deletesOnly: true, tracker: newTracker(kinds, make([]int64, len(kinds)), nil), finished: finishLines(kinds)}
	err = eachKind(ctx, kinds, d.kind)
	return d.out.Deleted, err
}

// deletion is the notebook of one DeleteCopies.
type deletion struct {
	*Copier
	lastToo bool
	// deletesOnly leaves what a write would have to come before.
	deletesOnly bool
	tracker     *tracker
	finished    map[string]chan struct{}
	mu          sync.Mutex
	out         Deletion
}

// kind waits for the kinds that depend on it.
func (d *deletion) kind(ctx context.Context, kind *resources.Kind) error {
	for _, other := range d.reg.Kinds() {
		if !slices.Contains(other.After(), kind.Name()) {
			continue
		}
		if err := await(ctx, d.finished[other.Name()]); err != nil {
			return err
		}
	}
	standing := sync.OnceValues(func() (*metav1.PartialObjectMetadata, error) { return d.standingV1(ctx, kind) })
	err := d.eachOfOurs(ctx, kind, func(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
		if !d.lastToo {
			crd, err := standing()
			if err != nil {
				return err
			}
			if err := d.outlives(kind, obj, crd); err != nil {
				return err
			}
		}
		return d.one(ctx, kind, obj)
	})
	if err == nil {
		close(d.finished[kind.Name()])
	}
	return err
}

func (d *deletion) one(ctx context.Context, kind *resources.Kind, obj *metav1.PartialObjectMetadata) error {
	key := client.ObjectKeyFromObject(obj)
	if d.deletesOnly && (len(obj.Finalizers) > 0 || kind.Undeletable(obj.Name)) {
		return nil
	}
	what, err := d.remove(ctx, kind, key, obj)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind.Name(), key, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch what {
	case deleted:
		d.out.Deleted++
		d.tracker.deleted(kind)
	case kept:
		d.out.Kept = append(d.out.Kept, resources.Problem{
			Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonProtected,
			Message: "may not be deleted and stays, without our mark", Remedy: "none is needed",
		})
	}
	return nil
}

// remaining lists what still bears our mark.
func (c *Copier) remaining(ctx context.Context, kinds []*resources.Kind) ([]resources.Problem, error) {
	var out []resources.Problem
	for _, kind := range kinds {
		err := c.eachV3Metadata(ctx, kind, func(obj *metav1.PartialObjectMetadata) error {
			if c.isOurs(obj) {
				out = append(out, resources.Problem{
					Kind: kind.Name(), Namespace: obj.Namespace, Name: obj.Name, Reason: resources.ReasonRemaining,
					Message: fmt.Sprintf("is still there, finalizers %q", obj.Finalizers), Remedy: "wait, or remove the finalizers",
				})
			}
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// remove deletes one copy of ours, exactly as it was seen; seen is read if it is nil, and read again if it
// has changed since.
func (c *Copier) remove(ctx context.Context, kind *resources.Kind, key client.ObjectKey, seen *metav1.PartialObjectMetadata) (deleteResult, error) {
	for range maxRaces {
		var err error
		if seen == nil {
			seen, err = c.getMetadata(ctx, kind, key)
		}
		var what deleteResult
		if err == nil {
			what, err = c.removeLive(ctx, kind, seen)
		}
		switch apierrors.Classify(err) {
		case apierrors.None:
			return what, nil
		case apierrors.NotFound:
			return absent, nil
		case apierrors.Conflict: // it changed: look again
			seen = nil
		default:
			return "", err
		}
	}
	return "", fmt.Errorf("changed %d times while it was to be deleted", maxRaces)
}

// removeLive returns the bare error of the API server. The deletion of a copy is not the deletion of the
// object, which lives on in v1: no finalizer's work may be done for it. So the finalizers go first, and
// the delete insists on the version without them, in case a controller puts one back.
func (c *Copier) removeLive(ctx context.Context, kind *resources.Kind, obj *metav1.PartialObjectMetadata) (deleteResult, error) {
	if !c.isOurs(obj) {
		return absent, nil
	}
	if kind.Undeletable(obj.Name) {
		err := c.deleteExactly(ctx, obj, client.DryRunAll)
		if apierrors.Refused(err) {
			return kept, c.patchMetadata(ctx, obj, func() { forget(obj) })
		}
		if err != nil {
			return "", err
		}
	}
	if len(obj.Finalizers) > 0 {
		if err := c.patchMetadata(ctx, obj, func() { obj.Finalizers = nil }); err != nil {
			return "", err
		}
	}
	return deleted, c.deleteExactly(ctx, obj)
}

func (c *Copier) patchMetadata(ctx context.Context, obj *metav1.PartialObjectMetadata, change func(), opts ...client.PatchOption) error {
	patch := client.MergeFromWithOptions(obj.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change()
	return c.try(ctx, func() error { return c.c.Patch(ctx, obj, patch, opts...) })
}

func (c *Copier) deleteExactly(ctx context.Context, obj *metav1.PartialObjectMetadata, opts ...client.DeleteOption) error {
	uid, version := obj.UID, obj.ResourceVersion
	// As unstructured: the metadata client fails on the answer to a delete, which is no metadata.
	target := &unstructured.Unstructured{}
	target.SetGroupVersionKind(obj.GroupVersionKind())
	target.SetNamespace(obj.Namespace)
	target.SetName(obj.Name)
	opts = append(opts, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	return c.try(ctx, func() error { return c.c.Delete(ctx, target, opts...) })
}
