package copier

import (
	"context"
	"fmt"

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

// asSeen calls do with an object, and again with what it has become if it has changed since. seen is read if it is nil.
// It is false for an object that is gone.
func (a *api) asSeen(ctx context.Context, kind *resources.Kind, key client.ObjectKey, seen *Meta, do func(*Meta) error) (there bool, err error) {
	for range maxRaces {
		if seen == nil {
			seen, err = a.getMeta(ctx, kind.V3GVK(), key)
		}
		if err == nil {
			err = do(seen)
		}
		switch {
		case apierrors.ObjectNotFound(err):
			return false, nil
		case apierrors.Classify(err) == apierrors.Conflict: // look again
			seen, err = nil, nil
		default:
			return err == nil, err
		}
	}
	return false, fmt.Errorf("changed %d times meanwhile", maxRaces)
}

// amend changes the metadata of one copy of ours. false says that there is no such copy of ours any more: it vanished,
// or lost our mark.
func (c *Copies) amend(ctx context.Context, kind *resources.Kind, key client.ObjectKey, seen *Meta, change func(*Meta)) (changed bool, err error) {
	_, err = c.asSeen(ctx, kind, key, seen, func(obj *Meta) error {
		if !c.me.has(obj) {
			return nil
		}
		err := c.patchMeta(ctx, obj, func() { change(obj) })
		changed = err == nil
		return err
	})
	return changed, err
}

// remove deletes one copy of ours.
func (c *Copies) remove(ctx context.Context, kind *resources.Kind, key client.ObjectKey, seen *Meta) (what deleteResult, err error) {
	there, err := c.asSeen(ctx, kind, key, seen, func(obj *Meta) (err error) {
		what, err = c.removeLive(ctx, kind, obj)
		return err
	})
	if !there {
		what = absent
	}
	return what, err
}

// removeLive returns the bare error of the API server. The deletion of a copy is not the deletion of the
// object, which lives on in v1: no finalizer's work may be done for it. So the finalizers go first, and
// the delete insists on the version without them, in case a controller puts one back.
func (c *Copies) removeLive(ctx context.Context, kind *resources.Kind, obj *Meta) (deleteResult, error) {
	if !c.me.has(obj) {
		return absent, nil
	}
	if kind.Undeletable(obj.Name) {
		err := c.deleteExactly(ctx, obj, client.DryRunAll)
		if apierrors.Refused(err) {
			return kept, c.patchMeta(ctx, obj, func() { unmark(obj) })
		}
		if err != nil {
			return "", err
		}
	}
	if len(obj.Finalizers) > 0 {
		if err := c.patchMeta(ctx, obj, func() { obj.Finalizers = nil }); err != nil {
			return "", err
		}
	}
	return deleted, c.deleteExactly(ctx, obj)
}
