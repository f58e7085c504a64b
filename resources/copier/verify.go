package copier

import (
	"context"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Compare looks at the objects that both sides have, over all kinds. It changes nothing. An object that cannot be
// read or converted is an error, never "no conflict"; of a kind of which v3 has none, v1 is not read.
func (c *Copier) Compare(ctx context.Context) (Comparison, error) {
	s, err := compareAll(ctx, c.sides.withoutSnapshot(), true, true)
	if err != nil {
		return Comparison{}, err
	}
	return Comparison{
		Conflicts: slices.DeleteFunc(s.different.sorted(compareConflicts), func(d Conflict) bool { return !d.ForPerson() }),
		Equal:     s.unmanaged.sorted(compareSkipped), OnlyInV3: s.onlyInV3.sorted(compareProblems),
	}, nil
}

// Verify compares both sides completely, owners included. It changes nothing, and may be called at any
// time, for a migration that is over as well; what it would have to ask the server about copies that
// admission changed, it asks as dry runs.
func (c *Copier) Verify(ctx context.Context) (Verification, error) {
	s, err := compareAll(ctx, c.sides.withoutSnapshot(), true, false)
	if err != nil {
		return Verification{}, err
	}
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

func compareAll(ctx context.Context, sides *sides, content, onlyPairs bool) (*comparer, error) {
	s := &comparer{sides: sides, content: content, onlyPairs: onlyPairs, owners: newOwnerMap(), counts: map[string]KindVerification{}}
	listers := make(chan struct{}, maxListers)
	err := eachKind(ctx, sides.v1.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		free, err := sides.turn(ctx, listers, kind)
		if err != nil {
			return err
		}
		defer free()
		return s.kind(ctx, kind)
	})
	if err == nil && content {
		s.compareOwners()
	}
	return s, err
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
	of.counts.V3, of.counts.Digest = of.live.total(), of.sum.of(kind).Digest
	s.mu.Lock()
	s.counts[kind.Name()] = of.counts
	s.mu.Unlock()
	s.onlyInV3.add(of.live.onlyInV3(kind)...)
	for _, key := range of.live.orphans() {
		s.extra.add(problemOf(kind, key, resources.ReasonExtra, "is a copy of ours whose v1 object is gone, or is being deleted", "copying again removes it"))
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
		s.different.add(conflictOf(d.kind, d.key, finding{d.cause(want), diffs}))
	}
}
