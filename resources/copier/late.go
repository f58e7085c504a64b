package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Late is what has become of the writes of v1 that landed after a Verification, when v3 is open.
type Late struct {
	// Brought names what was just done to v3: "GlobalNetworkSet web: updated".
	Brought []string
	// Conflicts are objects that were written in v3, too, or cannot become what v1 says. A person decides.
	Conflicts []Conflict
	// Problems are objects that v3 does not take.
	Problems []resources.Problem
	// Changing: something has changed while this looked. Look again.
	Changing bool
	// Kinds are those of which v1 is not what was verified, and v3 has by now what v1 has.
	Kinds []migrationv1.VerifiedKind
	// Revision is where the storage of v1 stood before this looked.
	Revision uint64
}

// BringLate brings to v3 what was written in v1 since the Verification: what was created, updated and deleted. Of one
// object it can be one write at most: another is tried on top of it, and so comes to the fence again. v3 is changed only
// where it is as it was then, by its resourceVersion, which is also the precondition; else both sides are named. It
// needs nothing but what the API server says, so that a second call, also after a crash, does what is left.
func (c *Copier) BringLate(ctx context.Context, since *migrationv1.Verified) (Late, error) {
	known, err := since.ByKind()
	if err != nil {
		return Late{}, err
	}
	sides := c.sides.withoutSnapshot()
	revision, err := sides.v1.Revision(ctx)
	if err != nil {
		return Late{}, err
	}
	kinds := c.reg.Kinds()
	notes := newNotebook(kinds, make([]int64, len(kinds)), nil)
	l := &late{writer: &writer{api: c.api, v1: sides.v1, copies: c.Copies, notes: notes}, sides: sides, since: uint64(since.Revision), owners: sync.OnceValues(func() (ownerResolver, error) {
		return c.Owners(ctx)
	})}
	looks, err := l.look(ctx, kinds, known)
	if err != nil {
		return Late{}, err
	}
	if err := l.bring(ctx, looks); err != nil {
		return Late{}, err
	}
	settled, err := l.settled(ctx, looks, known, revision)
	return Late{Brought: l.brought, Conflicts: notes.conflicts.sorted(compareConflicts), Problems: notes.rejected.sorted(compareProblems), Changing: l.moving, Kinds: settled, Revision: revision}, err
}

type ownerResolver = func([]metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference)

// late is one BringLate.
type late struct {
	*writer
	sides   *sides
	since   uint64
	owners  func() (ownerResolver, error) // reads all kinds, for the few objects that have owners in Calico
	brought []string
	moving  bool
}

// lateKind is what v1 has of a kind that is not as it was verified.
type lateKind struct {
	kind    *resources.Kind
	objects int64 // without those that are being deleted
	names   sets.Set[client.ObjectKey]
	written []client.ObjectKey // since the Verification
}

// look finds the kinds in which something was written or deleted. Of the others nothing more is read.
func (l *late) look(ctx context.Context, kinds []*resources.Kind, known map[string]migrationv1.VerifiedKind) ([]*lateKind, error) {
	looks := make([]*lateKind, len(kinds))
	listers := make(chan struct{}, maxListers)
	err := eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		free, err := l.sides.turn(ctx, listers, kind)
		if err != nil {
			return err
		}
		defer free()
		of := &lateKind{kind: kind, names: sets.New[client.ObjectKey]()}
		err = l.eachMeta(ctx, inV1(kind), func(obj *Meta) error {
			key := client.ObjectKeyFromObject(obj)
			of.names.Insert(key)
			if obj.DeletionTimestamp == nil {
				of.objects++
			}
			if contentSince(obj) > l.since {
				of.written = append(of.written, key)
			}
			return nil
		})
		if verified := known[kind.Name()]; len(of.written) > 0 || of.objects != verified.Objects+verified.Unproved {
			looks[slices.Index(kinds, kind)] = of
		}
		return err
	})
	return slices.DeleteFunc(looks, func(of *lateKind) bool { return of == nil }), err
}

// contentSince is since when an object is as it is; a barrier of ours changes nothing.
func contentSince(obj metav1.Object) uint64 { return parseVersion(resources.ContentVersion(obj)) }

// bring writes what others need first, and deletes what needs others first.
func (l *late) bring(ctx context.Context, looks []*lateKind) error {
	for _, look := range looks {
		pairs, err := l.sides.of(ctx, look.kind)
		if err != nil {
			return err
		}
		for _, key := range look.written {
			if err := l.isSettled(l.one(ctx, &kindRun{pairs: pairs}, key)); err != nil {
				return err
			}
		}
	}
	for _, look := range slices.Backward(looks) {
		if err := l.removeDeleted(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// isSettled takes an object that has changed meanwhile for one to look at again.
func (l *late) isSettled(err error) error {
	if errors.Is(err, errChanged) || apierrors.Classify(err) == apierrors.Conflict {
		l.moving = true
		return nil
	}
	return err
}

// one brings one v1 object to v3.
func (l *late) one(ctx context.Context, of *kindRun, key client.ObjectKey) (err error) {
	j := &job{of: of, key: key}
	if j.v1, err = l.v1.read(ctx, of.kind, key); err != nil || j.v1 == nil {
		return err // one that is gone by now is found by the next look
	}
	j.conv, err = resources.Convert(of.kind, j.v1, of.schema)
	var problem *resources.Problem
	if errors.As(err, &problem) {
		l.notes.reject(of.kind, *problem)
		return nil
	}
	if err != nil {
		return err
	}
	live, err := l.get(ctx, of.kind.V3GVK(), j.name())
	if apierrors.Classify(err) == apierrors.NotFound {
		return l.absent(ctx, j)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", of.kind.Name(), j.name(), err)
	}
	if err := newOwnerMap().record(idOf(j.conv.V1UID), of.kind, j.name().Name, entryOf(of.me, live)); err != nil {
		return err
	}
	if j.conv.Terminating {
		return l.remove(ctx, of, live)
	}
	return l.update(ctx, j, live)
}

// absent deals with an object that v3 does not have.
func (l *late) absent(ctx context.Context, j *job) error {
	switch of := j.of; {
	case j.conv.Terminating:
		return nil
	case !isNew(j.v1):
		l.notes.conflict(of.kind, j.name(), finding{CauseEdited, resources.Diff(of.kind, of.schema, j.conv.Object, bare(of.kind, j.name()))})
		return nil
	}
	return l.add(ctx, j)
}

// isNew tells that an object was never written since it was created: v3 cannot have had it. An older one that v3 does
// not have was deleted there.
func isNew(v1 *unstructured.Unstructured) bool {
	created := v1.GetCreationTimestamp()
	return v1.GetGeneration() <= 1 && !slices.ContainsFunc(v1.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Time != nil && entry.Time.After(created.Add(time.Second))
	})
}

// bare is an object without content.
func bare(kind *resources.Kind, key client.ObjectKey) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(kind.V3GVK())
	out.SetNamespace(key.Namespace)
	out.SetName(key.Name)
	return out
}

// add creates what v3 never had.
func (l *late) add(ctx context.Context, j *job) error {
	if err := l.mark(j, nil); err != nil {
		return err
	}
	return l.noting(j, "created", func() error { return l.create(ctx, j) })
}

// mark makes of what a v1 object becomes our copy, with the owners in Calico that v1 says. If v3 lacks one of them, the
// object keeps those that it has: they go with their own v1 objects.
func (l *late) mark(j *job, have []metav1.OwnerReference) error {
	want := j.conv.Object
	if len(j.conv.Owners) > 0 {
		resolve, err := l.owners()
		if err != nil {
			return err
		}
		owners, unknown := resolve(j.conv.Owners)
		if len(unknown) > 0 && len(have) > 0 {
			owners = have
		}
		want.SetOwnerReferences(append(want.GetOwnerReferences(), owners...))
	}
	j.of.me.mark(want, j.conv)
	return nil
}

// update changes what v3 has, if that is as it was.
func (l *late) update(ctx context.Context, j *job, live *unstructured.Unstructured) error {
	of := j.of
	have, _ := resources.SplitOwners(live.GetOwnerReferences())
	if err := l.mark(j, have); err != nil {
		return err
	}
	found := of.compare(j.conv.Object, live)
	want, _ := resources.SplitOwners(j.conv.Object.GetOwnerReferences())
	found.fields = append(found.fields, resources.DiffOwners(want, have)...) // no RemapOwners comes any more
	switch {
	case len(found.fields) == 0 && of.lacksStatus(of.entryWithStatus(live), j.conv):
		return l.noting(j, "updated", func() error { return l.writeStatus(ctx, j, live, updated) })
	case len(found.fields) == 0:
		return nil
	case !of.me.has(live):
		l.notes.conflict(of.kind, j.name(), finding{CauseUnmanaged, found.fields})
		return nil
	case contentSince(live) > l.since:
		l.notes.conflict(of.kind, j.name(), finding{CauseEdited, found.fields})
		return nil
	}
	return l.noting(j, "updated", func() error { return l.replace(ctx, j, live) })
}

// replace is repair for a copy that must not go meanwhile.
func (l *late) replace(ctx context.Context, j *job, live *unstructured.Unstructured) error {
	next := j.of.desired(j.conv.Object, live)
	next.SetOwnerReferences(j.conv.Object.GetOwnerReferences()) // those in Calico, too
	err := l.tryWrite(ctx, func() error {
		return l.client.Patch(ctx, next, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	})
	switch apierrors.Classify(err) {
	case apierrors.None:
	case apierrors.Conflict, apierrors.NotFound:
		return errChanged
	default:
		return l.refused(ctx, j, err)
	}
	if j.of.lacksStatus(j.of.entryWithStatus(next), j.conv) {
		return l.writeStatus(ctx, j, next, updated)
	}
	return l.done(j, next, updated)
}

// noting tells of what was written, by the counts of what is done.
func (l *late) noting(j *job, done string, do func() error) error {
	before := l.changes()
	err := do()
	if l.changes() > before {
		l.brought = append(l.brought, fmt.Sprintf("%s: %s", shownAs(j.of.kind, j.name()), done))
	}
	return err
}

func (l *late) changes() int64 {
	p := l.notes.tracker.snapshot()
	return p.Created + p.Updated
}

func shownAs(kind *resources.Kind, key client.ObjectKey) string {
	return kind.Name() + " " + strings.TrimPrefix(key.String(), "/")
}

// settled is what v1 has of the kinds without a conflict, if nothing has changed since the look. Of one that had objects
// which a person takes as they are nothing is proved.
func (l *late) settled(ctx context.Context, looks []*lateKind, known map[string]migrationv1.VerifiedKind, revision uint64) (kinds []migrationv1.VerifiedKind, err error) {
	open := sets.New[string]()
	for _, c := range l.notes.conflicts.all {
		open.Insert(c.Kind)
	}
	for _, p := range l.notes.rejected.all {
		open.Insert(p.Kind)
	}
	for _, look := range looks {
		name := look.kind.Name()
		if open.Has(name) || known[name].Unproved > 0 {
			continue
		}
		now, err := l.v1.v1Kind(ctx, look.kind, &migrationv1.Verified{Revision: int64(revision), At: metav1.NewTime(endOfTime)})
		var problem *resources.Problem
		if errors.As(err, &problem) {
			continue
		}
		var after moment
		if err == nil {
			after, err = l.v1.moment(ctx, look.kind)
		}
		if err != nil {
			return nil, err
		}
		if len(now.Since) > 0 || after.objects != int64(look.names.Len()) {
			l.moving = true
		}
		kinds = append(kinds, now.VerifiedKind)
	}
	return kinds, nil
}

// endOfTime: the revision alone says what was written since.
var endOfTime = time.Unix(1<<40, 0)
