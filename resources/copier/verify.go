package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Compare looks at the objects that both sides have, over all kinds. It changes nothing. An object that cannot be
// read or converted is an error, never "no conflict"; of a kind of which v3 has none, v1 is not read.
func (c *Copier) Compare(ctx context.Context) (Comparison, error) {
	s := newComparer(c.sides.withoutSnapshot())
	s.content, s.onlyPairs = true, true
	if err := s.all(ctx); err != nil {
		return Comparison{}, err
	}
	s.compareOwners()
	return Comparison{
		Conflicts: slices.DeleteFunc(s.different.sorted(compareConflicts), func(d Conflict) bool { return !d.ForPerson() }),
		Equal:     s.unmanaged.sorted(compareSkipped), OnlyInV3: s.onlyInV3.sorted(compareProblems),
	}, nil
}

// Verify compares both sides completely, owners included. It changes nothing, and may be called at any
// time, for a migration that is over as well; what it would have to ask the server about copies that
// admission changed, it asks as dry runs.
func (c *Copier) Verify(ctx context.Context) (Verification, error) {
	s := newComparer(c.sides.withoutSnapshot())
	s.content = true
	if err := s.all(ctx); err != nil {
		return Verification{}, err
	}
	s.compareOwners()
	v := Verification{Different: s.different.sorted(compareConflicts), Altered: s.altered.sorted(compareConflicts), Missing: s.missing.sorted(compareProblems),
		Extra: s.extra.sorted(compareProblems), OnlyInV3: s.onlyInV3.sorted(compareProblems)}
	for _, kind := range c.reg.Kinds() {
		v.Kinds = append(v.Kinds, s.counts[kind.Name()])
		if slices.ContainsFunc(v.Extra, func(p resources.Problem) bool { return p.Kind == kind.Name() }) {
			if _, err := c.standingV1(ctx, kind); err != nil {
				return Verification{}, err
			}
		}
	}
	return v, nil
}

// comparer lists both sides of every kind and notes where they differ. It keeps a digest per v3 object
// and whole objects only where they differ; owners in Calico are resolved once all kinds are listed.
type comparer struct {
	*sides
	// content is false when only the owners matter: v3 is then listed as metadata.
	content bool
	// onlyPairs is true when v1 objects do not matter that v3 lacks: where it lacks all, they are not read.
	onlyPairs bool
	owners    *ownerMap

	different  gathered[Conflict]
	altered    gathered[Conflict]
	missing    gathered[resources.Problem]
	extra      gathered[resources.Problem]
	onlyInV3   gathered[resources.Problem]
	unmanaged  gathered[Skipped] // and equal
	dependents gathered[dependent]
	mu         sync.Mutex
	counts     map[string]KindVerification
}

func newComparer(s *sides) *comparer {
	return &comparer{sides: s, owners: newOwnerMap(), counts: map[string]KindVerification{}}
}

func (s *comparer) all(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range s.v1.reg.Kinds() {
		g.Go(func() error { return s.kind(ctx, kind) })
	}
	return g.Wait()
}

func (s *comparer) kind(ctx context.Context, kind *resources.Kind) error {
	pairs, err := s.of(ctx, kind)
	if err != nil {
		return err
	}
	of := &kindComparer{pairs: pairs, all: s, counts: KindVerification{Kind: kind.Name()}, mismatches: map[client.ObjectKey]mismatch{}}
	if err := of.compareBoth(ctx); err != nil {
		return err
	}
	s.cache.keep(kind, of.proved)
	of.counts.V3, of.counts.Digest = of.live.total, of.sum.of(kind).Digest
	s.mu.Lock()
	s.counts[kind.Name()] = of.counts
	s.mu.Unlock()
	s.onlyInV3.add(of.live.onlyInV3(kind)...)
	for _, key := range of.live.orphans() {
		s.extra.add(resources.Problem{
			Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonExtra,
			Message: "is a copy of ours whose v1 object is gone, or is being deleted", Remedy: "copying again removes it",
		})
	}
	return nil
}

// compareOwners adds the dependents whose owners differ to what is different. It counts an object at
// most once.
func (s *comparer) compareOwners() {
	known := map[string]bool{}
	for _, d := range s.different.all {
		known[d.Kind+"/"+d.Namespace+"/"+d.Name] = true
	}
	for _, d := range s.dependents.all {
		want, _ := s.owners.resolve(d.want)
		diffs := resources.DiffOwners(want, d.live.owners)
		if len(diffs) == 0 || known[d.kind.Name()+"/"+d.key.Namespace+"/"+d.key.Name] {
			continue
		}
		counts := s.counts[d.kind.Name()]
		counts.Same--
		s.counts[d.kind.Name()] = counts
		s.unmanaged.remove(func(a Skipped) bool { return a == d.skipped() })
		s.different.add(d.conflict(d.cause(want), diffs))
	}
}

// kindComparer compares one kind.
type kindComparer struct {
	*pairs
	all *comparer
	// mismatches are the v1 objects whose digest differs from that of the v3 object, or whose status is
	// missing, and those whose v3 object was not read yet.
	mismatches map[client.ObjectKey]mismatch

	mu     sync.Mutex
	counts KindVerification
	sum    kindDigest // of what v1 has, without the altered
}

type mismatch struct {
	*resources.Converted
	digest digest
}

func (k *kindComparer) compareBoth(ctx context.Context) error {
	var singles []client.ObjectKey
	err := k.visit(ctx, k.all.content, visitor{
		proved: func(v1 v1Object, key client.ObjectKey, live entry, p proof) error {
			k.counts.V1++
			k.sum.add(p.digest)
			k.same(key, live.ours)
			return k.depends(v1.uid, dependent{kind: k.kind, key: key, content: v1.content, want: v1.owners, live: live})
		},
		single: func(key client.ObjectKey) error {
			singles = append(singles, key)
			return nil
		},
		whole:     k.one,
		onlyPairs: k.all.onlyPairs,
	})
	if err != nil {
		return err
	}
	if err := k.each(ctx, singles); err != nil {
		return err
	}
	return k.confirm(ctx)
}

// each reads a few v1 objects, and looks at them.
func (k *kindComparer) each(ctx context.Context, keys []client.ObjectKey) error {
	var mu sync.Mutex
	g, ctx := crew(ctx)
	for _, key := range keys {
		g.Go(func() error {
			v1, err := k.from.v1.read(ctx, k.kind, key)
			if err != nil || v1 == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			return k.one(v1)
		})
	}
	return g.Wait()
}

// one looks at one v1 object. An object that cannot be converted is an error: nothing can be said about
// its copy.
func (k *kindComparer) one(v1 *unstructured.Unstructured) error {
	conv, err := resources.Convert(k.kind, v1, k.schema)
	if err != nil {
		return err
	}
	if conv.Terminating {
		return nil // a copy of it is an orphan
	}
	key := client.ObjectKeyFromObject(conv.Object)
	live, there := k.live.take(key)
	var sum digest
	if k.all.content {
		sum = v1Digest(k.kind, v1)
		k.sum.add(sum)
	}
	k.counts.V1++
	if !there {
		k.missing(key.Namespace, v1.GetName(), fmt.Sprintf("is not in v3 as %q", key.Name))
		return nil
	}
	if err := k.depends(conv.V1UID, dependent{kind: k.kind, key: key, content: conv.V1Content, want: conv.Owners, live: live}); err != nil {
		return err
	}
	switch {
	case !k.all.content:
	case k.equals(live, conv):
		k.same(key, live.ours)
		k.proved.prove(conv, sum, live.uid, live.version)
	default:
		k.mismatches[key] = mismatch{conv, sum}
	}
	return nil
}

// depends notes where a v1 object is in v3, and the object if owners in Calico are to be looked at.
func (k *kindComparer) depends(v1 types.UID, d dependent) error {
	d.live.owners, _ = resources.SplitOwners(d.live.owners)
	if len(d.live.owners) > 0 || len(d.want) > 0 {
		k.all.dependents.add(d)
	}
	return k.all.owners.record(v1, k.kind, d.key.Name, d.live.uid)
}

// confirm reads v3 once more where anything differed, and finds out why each does. What has become equal,
// or has vanished, since the first list counts as it is now.
func (k *kindComparer) confirm(ctx context.Context) error {
	if len(k.mismatches) == 0 {
		return nil
	}
	g, ctx := crew(ctx)
	if isFew(len(k.mismatches), int(k.counts.Same)) {
		for key, conv := range k.mismatches {
			g.Go(func() error { return k.examine(ctx, conv, key, nil) })
		}
		return g.Wait()
	}
	err := finish(g, k.eachObject(ctx, inV3(k.kind), func(live *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(live)
		if conv, ok := k.mismatches[key]; ok {
			delete(k.mismatches, key)
			g.Go(func() error { return k.examine(ctx, conv, key, live) })
		}
		return ctx.Err()
	}))
	if err != nil {
		return err
	}
	for key := range k.mismatches {
		k.vanished(key)
	}
	return nil
}

// examine looks at a v3 object that seemed to differ until it stands still. live is read if it is nil.
func (k *kindComparer) examine(ctx context.Context, conv mismatch, key client.ObjectKey, live *unstructured.Unstructured) (err error) {
	for range maxRaces {
		if live == nil {
			live, err = k.get(ctx, k.kind.V3GVK(), key)
		}
		if apierrors.Classify(err) == apierrors.NotFound {
			k.vanished(key)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s %s: %w", k.kind.Name(), key, err)
		}
		found, err := k.difference(ctx, conv.Converted, live)
		if err == nil && found.cause == "" {
			found, err = k.statusDifference(ctx, conv.Converted, live)
		}
		if !errors.Is(err, errChanged) {
			if err == nil {
				k.note(conv, key, live, found)
			}
			return err
		}
		live = nil
	}
	return fmt.Errorf("%s %s: changed %d times while it was compared", k.kind.Name(), key, maxRaces)
}

func (k *kindComparer) note(conv mismatch, key client.ObjectKey, live *unstructured.Unstructured, found finding) {
	if found.cause != "" && found.cause != CauseAltered {
		k.all.different.add(k.conflict(key, found))
		return
	}
	if k.isEqual(conv.Converted, live) {
		k.proved.prove(conv.Converted, conv.digest, live.GetUID(), parseVersion(live.GetResourceVersion()))
	} else if altered := k.altered(conv.Converted, live); len(altered.fields) > 0 {
		k.all.altered.add(k.conflict(key, altered))
		k.mu.Lock()
		defer k.mu.Unlock()
		k.counts.Altered++
		k.sum.remove(conv.digest)
		return
	}
	k.same(key, k.me.has(live))
}

// same counts an object that both sides have.
func (k *kindComparer) same(key client.ObjectKey, ours bool) {
	k.mu.Lock()
	k.counts.Same++
	k.mu.Unlock()
	if !ours {
		k.all.unmanaged.add(dependent{kind: k.kind, key: key}.skipped())
	}
}

func (k *kindComparer) vanished(key client.ObjectKey) {
	k.missing(key.Namespace, key.Name, "vanished from v3 a moment ago")
}

func (k *kindComparer) missing(namespace, name, message string) {
	k.all.missing.add(resources.Problem{Kind: k.kind.Name(), Namespace: namespace, Name: name, Reason: resources.ReasonMissing,
		Message: message, Remedy: "copying again creates it"})
}
