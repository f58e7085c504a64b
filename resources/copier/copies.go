package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Copies are the v3 objects that bear our mark. They are changed and deleted as they were seen, and only while they
// bear it.
type Copies struct {
	*api
	me  owner
	reg *resources.Registry
}

// each calls do for every copy of ours of a kind, from several goroutines.
func (c *Copies) each(ctx context.Context, kind *resources.Kind, do func(context.Context, *Meta) error) error {
	g, ctx := crew(ctx)
	return finish(g, c.eachMeta(ctx, inV3(kind), func(obj *Meta) error {
		if c.me.has(obj) {
			g.Go(func() error { return do(ctx, obj) })
		}
		return ctx.Err()
	}))
}

// DeleteCopies removes every v3 object that bears our mark, kinds that depend on others before those, and
// all that do not at once. Call it again until Remaining is empty; the second call deletes what is left.
// Objects that are protected against deletion lose the mark and stay. Copies that are the last of their
// objects, because the v1 CRD went with those, are an error, and stay; lastToo deletes them as well.
func (c *Copies) DeleteCopies(ctx context.Context, lastToo bool) (Deletion, error) {
	d := &deletion{Copies: c, mayBeLast: lastToo}
	err := d.all(ctx)
	out := Deletion{Deleted: d.deleted.Load(), Kept: d.kept.sorted(compareProblems)}
	if err == nil {
		out.Remaining, err = c.remaining(ctx)
	}
	return out, err
}

// FreeStore is DeleteCopies for a store that is full, and takes deletes and nothing else: copies that a write would
// have to come before, which have finalizers or are protected, stay for a later DeleteCopies.
func (c *Copies) FreeStore(ctx context.Context) (int64, error) {
	d := &deletion{Copies: c, deletesOnly: true}
	err := d.all(ctx)
	return d.deleted.Load(), err
}

// RemoveMigrationAnnotations takes our notes off every v3 object that bears our mark: the migration is over, and they
// are nobody's copies any more. Those that the API server does not let be written keep their notes, and are returned.
// A second call frees what is left.
func (c *Copies) RemoveMigrationAnnotations(ctx context.Context) ([]resources.Problem, error) {
	var kept gathered[resources.Problem]
	err := eachKind(ctx, c.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		return c.each(ctx, kind, func(ctx context.Context, obj *Meta) error {
			key := client.ObjectKeyFromObject(obj)
			_, err := c.amend(ctx, kind, key, obj, unmark)
			if apierrors.Refused(err) {
				kept.add(Refusal("patch", kind, key, err))
				return nil
			}
			if err != nil {
				return fmt.Errorf("take our notes off %s %s: %w", kind.Name(), key, err)
			}
			return nil
		})
	})
	return kept.sorted(compareProblems), err
}

// deletion is one DeleteCopies.
type deletion struct {
	*Copies
	// mayBeLast deletes copies that may be the last of their objects.
	mayBeLast bool
	// deletesOnly leaves what a write would have to come before.
	deletesOnly bool
	deleted     atomic.Int64
	kept        gathered[resources.Problem]
}

func (d *deletion) all(ctx context.Context) error {
	kinds := d.reg.Kinds()
	finished := newFinishLines(kinds)
	return eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		var first []string // the kinds that depend on it
		for _, other := range kinds {
			if slices.Contains(other.After(), kind.Name()) {
				first = append(first, other.Name())
			}
		}
		if err := finished.await(ctx, first); err != nil {
			return err
		}
		err := d.kind(ctx, kind)
		if err == nil {
			finished.done(kind)
		}
		return err
	})
}

func (d *deletion) kind(ctx context.Context, kind *resources.Kind) error {
	standing := sync.OnceValues(func() (*Meta, error) { return d.standingV1(ctx, kind) })
	return d.each(ctx, kind, func(ctx context.Context, obj *Meta) error {
		if !d.mayBeLast {
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
}

func (d *deletion) one(ctx context.Context, kind *resources.Kind, obj *Meta) error {
	key := client.ObjectKeyFromObject(obj)
	if d.deletesOnly && (len(obj.Finalizers) > 0 || kind.Undeletable(obj.Name)) {
		return nil
	}
	what, err := d.remove(ctx, kind, key, obj)
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind.Name(), key, err)
	}
	switch what {
	case deleted:
		d.deleted.Add(1)
	case kept:
		d.kept.add(problemOf(kind, key, resources.ReasonProtected, "may not be deleted and stays, without our mark", "none is needed"))
	}
	return nil
}

// remaining lists what still bears our mark.
func (c *Copies) remaining(ctx context.Context) (out []resources.Problem, err error) {
	kinds := c.reg.Kinds()
	slices.Reverse(kinds)
	for _, kind := range kinds {
		err := c.eachMeta(ctx, inV3(kind), func(obj *Meta) error {
			if c.me.has(obj) {
				out = append(out, problemOf(kind, client.ObjectKeyFromObject(obj), resources.ReasonRemaining,
					fmt.Sprintf("is still there, finalizers %q", obj.Finalizers), "wait, or remove the finalizers"))
			}
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// removeOrphans deletes copies of ours whose v1 object went away since they were made, or is being deleted; but
// not with its CRD. It returns how many it has deleted.
func (c *Copies) removeOrphans(ctx context.Context, kind *resources.Kind, orphans []client.ObjectKey) (gone int64, err error) {
	if len(orphans) == 0 {
		return 0, nil
	}
	crd, err := c.standingV1(ctx, kind)
	if err != nil {
		return 0, err
	}
	for _, key := range orphans {
		what := absent
		seen, err := c.getMeta(ctx, kind.V3GVK(), key)
		if err == nil {
			err = c.outlives(kind, seen, crd)
		}
		if err == nil {
			what, err = c.remove(ctx, kind, key, seen)
		}
		if err != nil && !apierrors.ObjectNotFound(err) {
			return gone, fmt.Errorf("delete %s %s, which is gone from v1: %w", kind.Name(), key, err)
		}
		if what == deleted {
			gone++
		}
	}
	return gone, nil
}

// standingV1 reads the metadata of the v1 CRD of a kind of which objects seem to be gone. The error says that
// the CRD went, or goes, and takes them along: that is nobody's wish about the objects, whose copies are the last.
func (c *Copies) standingV1(ctx context.Context, kind *resources.Kind) (*Meta, error) {
	crd, err := c.getMeta(ctx, crdKind, client.ObjectKey{Name: kind.V1CRDName()})
	switch {
	case apierrors.Classify(err) == apierrors.NotFound:
		return nil, c.lastCopies(kind, "is gone")
	case err != nil:
		return nil, fmt.Errorf("read crd %s: %w", kind.V1CRDName(), err)
	case crd.DeletionTimestamp != nil:
		return nil, c.lastCopies(kind, "is being deleted")
	}
	return crd, nil
}

// outlives is an error about a copy that is older than the v1 CRD: its object went with an earlier one.
func (c *Copies) outlives(kind *resources.Kind, seen, crd *Meta) error {
	if seen.CreationTimestamp.Before(&crd.CreationTimestamp) {
		return c.lastCopies(kind, "is newer than the copies: it was deleted with its objects and applied again")
	}
	return nil
}

// WaiveLastCopies is what a person waives who wants copies deleted that may be the last of their objects.
const WaiveLastCopies = "last-copies"

// lastCopies says what has become of a v1 CRD, and what is to be done about it.
func (c *Copies) lastCopies(kind *resources.Kind, what string) error {
	return fmt.Errorf("crd %s %s, and the copies in v3 may be the last of its objects: they stay; save them (kubectl get %s.%s.%s -A -o yaml), "+
		"then apply the CRD with its objects again; to have them deleted, abort the migration and set the annotation %s on it",
		kind.V1CRDName(), what, kind.V3Plural(), kind.V3GVK().Version, resources.V3Group, migrationv1.WaiverAnnotation(WaiveLastCopies, types.UID(c.me)))
}
