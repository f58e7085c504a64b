package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// comparer lists both sides of every kind and notes where they differ. It keeps a digest per v3 object
// and whole objects only where they differ; owners in Calico are resolved once all kinds are listed.
type comparer struct {
	*Copier
	// content is false when only the owners matter: v3 is then listed as metadata.
	content bool
	// onlyPairs is true when v1 objects do not matter that v3 lacks: where it lacks all, they are not read.
	onlyPairs bool
	owners    *ownerMap

	mu         sync.Mutex
	kinds      map[string]KindVerification
	different  []Conflict
	altered    []Conflict
	missing    []resources.Problem
	extra      []resources.Problem
	adopted    []Skipped // foreign and equal
	onlyInV3   []resources.Problem
	dependents []dependent
}

// dependent is a v3 object that has owners in Calico, or should have.
type dependent struct {
	kind    *resources.Kind
	key     client.ObjectKey
	content string                  // the ContentVersion of the v1 object
	want    []metav1.OwnerReference // as v1 has them
	live    entry
}

func (c *Copier) newComparer(content bool) *comparer {
	return &comparer{Copier: c, content: content, owners: newOwnerMap(), kinds: map[string]KindVerification{}}
}

func (s *comparer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range s.reg.Kinds() {
		g.Go(func() error { return s.kind(ctx, kind) })
	}
	err := g.Wait()
	slices.SortFunc(s.different, compareConflicts)
	slices.SortFunc(s.altered, compareConflicts)
	slices.SortFunc(s.missing, compareProblems)
	slices.SortFunc(s.extra, compareProblems)
	slices.SortFunc(s.onlyInV3, compareProblems)
	slices.SortFunc(s.dependents, func(a, b dependent) int {
		return slices.Compare([]string{a.kind.Name(), a.key.Namespace, a.key.Name}, []string{b.kind.Name(), b.key.Namespace, b.key.Name})
	})
	return err
}

// kindComparer is the notebook of one kind.
type kindComparer struct {
	*pairs
	counts KindVerification
	sum    kindDigest // of what v1 has, without the altered
	// mismatches are the v1 objects whose digest differs from that of the v3 object, or whose status is
	// missing, and those whose v3 object was not read yet.
	mismatches map[client.ObjectKey]mismatch
}

type mismatch struct {
	*resources.Converted
	digest digest
}

func (s *comparer) kind(ctx context.Context, kind *resources.Kind) error {
	pairs, err := s.newPairs(ctx, kind)
	if err != nil {
		return err
	}
	of := &kindComparer{pairs: pairs, counts: KindVerification{Kind: kind.Name()}, mismatches: map[client.ObjectKey]mismatch{}}
	var singles []client.ObjectKey
	err = s.visit(ctx, pairs, s.content, visitor{
		proved: func(v1 v1Object, key client.ObjectKey, live entry, p proof) error {
			of.counts.V1++
			s.same(of, key, live.ours)
			of.sum.add(p.digest)
			s.depends(dependent{kind: kind, key: key, content: v1.content, want: v1.owners, live: live})
			return s.owners.record(v1.uid, kind, key.Name, live.uid)
		},
		single: func(key client.ObjectKey) error {
			singles = append(singles, key)
			return nil
		},
		whole:     func(v1 *unstructured.Unstructured) error { return s.one(of, v1) },
		onlyPairs: s.onlyPairs,
	})
	if err != nil {
		return err
	}
	if err := s.each(ctx, of, singles); err != nil {
		return err
	}
	of.counts.V3 = of.live.total
	if err := s.confirm(ctx, of); err != nil {
		return err
	}
	s.cache.keep(kind, of.proved)
	s.mu.Lock()
	defer s.mu.Unlock()
	of.counts.Digest = of.sum.of(kind).Digest
	s.kinds[kind.Name()] = of.counts
	s.onlyInV3 = append(s.onlyInV3, of.live.onlyInV3(kind)...)
	for _, key := range of.live.orphans() {
		s.extra = append(s.extra, resources.Problem{
			Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonExtra,
			Message: "is a copy of ours whose v1 object is gone, or is being deleted", Remedy: "copying again removes it",
		})
	}
	return nil
}

// each reads a few v1 objects, and looks at them.
func (s *comparer) each(ctx context.Context, of *kindComparer, keys []client.ObjectKey) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, key := range keys {
		g.Go(func() error {
			v1, err := s.readV1(ctx, of.kind, key)
			if err != nil || v1 == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			return s.one(of, v1)
		})
	}
	return g.Wait()
}

// one looks at one v1 object. An object that cannot be converted is an error: nothing can be said about
// its copy.
func (s *comparer) one(of *kindComparer, v1 *unstructured.Unstructured) error {
	conv, err := resources.Convert(of.kind, v1, of.schema)
	if err != nil {
		return err
	}
	if conv.Terminating {
		return nil // a copy of it is a stray
	}
	key := client.ObjectKeyFromObject(conv.Object)
	live, there := of.live.take(key)
	var sum digest
	if s.content {
		sum = v1Digest(of.kind, v1)
		of.sum.add(sum)
	}
	of.counts.V1++
	if !there {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.missing = append(s.missing, resources.Problem{
			Kind: of.kind.Name(), Namespace: key.Namespace, Name: v1.GetName(), Reason: resources.ReasonMissing,
			Message: fmt.Sprintf("is not in v3 as %q", key.Name), Remedy: "copying again creates it",
		})
		return nil
	}
	if err := s.owners.record(conv.V1UID, of.kind, key.Name, live.uid); err != nil {
		return err
	}
	s.depends(dependent{kind: of.kind, key: key, content: conv.V1Content, want: conv.Owners, live: live})
	if !s.content {
		return nil
	}
	if live.equals(of.pairs, conv) {
		s.same(of, key, live.ours)
		of.proved.prove(conv, sum, live.uid, live.version)
	} else {
		of.mismatches[key] = mismatch{conv, sum}
	}
	return nil
}

// depends notes an object if owners in Calico are to be looked at.
func (s *comparer) depends(d dependent) {
	d.live.owners, _ = resources.SplitOwners(d.live.owners)
	if len(d.live.owners) > 0 || len(d.want) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dependents = append(s.dependents, d)
	}
}

// confirm reads v3 once more where anything differed, and finds out why each does. What has become equal,
// or has vanished, since the first list counts as it is now.
func (s *comparer) confirm(ctx context.Context, of *kindComparer) error {
	if len(of.mismatches) == 0 {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	if isFew(len(of.mismatches), int(of.counts.Same)) {
		for key, conv := range of.mismatches {
			g.Go(func() error { return s.examine(ctx, of, conv, key, nil) })
		}
		return g.Wait()
	}
	err := s.eachV3(ctx, of.kind, func(live *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(live)
		conv, ok := of.mismatches[key]
		if !ok {
			return ctx.Err()
		}
		delete(of.mismatches, key)
		g.Go(func() error { return s.examine(ctx, of, conv, key, live) })
		return ctx.Err()
	})
	if workErr := g.Wait(); workErr != nil {
		return workErr // the list only stopped because a worker failed
	}
	if err != nil {
		return err
	}
	for key := range of.mismatches {
		s.vanished(of, key)
	}
	return nil
}

// examine looks at a v3 object that seemed to differ until it stands still. live is read if it is nil.
func (s *comparer) examine(ctx context.Context, of *kindComparer, conv mismatch, key client.ObjectKey, live *unstructured.Unstructured) (err error) {
	for range maxRaces {
		if live == nil {
			live, err = s.get(ctx, of.kind.V3GVK(), key)
		}
		if apierrors.Classify(err) == apierrors.NotFound {
			s.vanished(of, key)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s %s: %w", of.kind.Name(), key, err)
		}
		cause, diffs, again, err := s.judge(ctx, of.kind, of.schema, conv.Converted, live)
		if err == nil && !again && cause == "" {
			cause, diffs, again, err = s.judgeStatus(ctx, of.kind, of.schema, conv.Converted, live)
		}
		if err != nil {
			return err
		}
		if !again {
			s.note(of, conv, live, cause, diffs)
			return nil
		}
		live = nil
	}
	return fmt.Errorf("%s %s: changed %d times while it was compared", of.kind.Name(), key, maxRaces)
}

func (s *comparer) note(of *kindComparer, conv mismatch, live *unstructured.Unstructured, cause Cause, diffs []resources.FieldDiff) {
	if cause != "" && cause != CauseAltered {
		s.differ(of.kind, client.ObjectKeyFromObject(live), cause, diffs)
		return
	}
	if s.isEqual(of.pairs, conv.Converted, live) {
		of.proved.prove(conv.Converted, conv.digest, live.GetUID(), parseVersion(live.GetResourceVersion()))
	} else if fields := s.alteredFields(of.pairs, conv.Converted, live); len(fields) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		of.counts.Altered++
		of.sum.remove(conv.digest)
		s.altered = append(s.altered, alteredCopy(of.kind, live, fields))
		return
	}
	s.same(of, client.ObjectKeyFromObject(live), s.isOurs(live))
}

// same counts an object that both sides have.
func (s *comparer) same(of *kindComparer, key client.ObjectKey, ours bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.counts.Same++
	if !ours {
		s.adopted = append(s.adopted, Skipped{Kind: of.kind.Name(), Namespace: key.Namespace, Name: key.Name, Why: SkippedEqual})
	}
}

func (s *comparer) vanished(of *kindComparer, key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = append(s.missing, resources.Problem{
		Kind: of.kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonMissing,
		Message: "vanished from v3 a moment ago", Remedy: "copying again creates it",
	})
}

func (s *comparer) differ(kind *resources.Kind, key client.ObjectKey, cause Cause, diffs []resources.FieldDiff) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.different = append(s.different, Conflict{Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Cause: cause, Fields: diffs})
}

// compareOwners adds the dependents whose owners differ to what is different. It counts an object at
// most once.
func (s *comparer) compareOwners() {
	known := map[string]bool{}
	for _, d := range s.different {
		known[d.Kind+"/"+d.Namespace+"/"+d.Name] = true
	}
	for _, d := range s.dependents {
		want, _ := s.owners.resolve(d.want)
		diffs := resources.DiffOwners(want, d.live.owners)
		if len(diffs) == 0 || known[d.kind.Name()+"/"+d.key.Namespace+"/"+d.key.Name] {
			continue
		}
		counts := s.kinds[d.kind.Name()]
		counts.Same--
		s.kinds[d.kind.Name()] = counts
		skip := Skipped{Kind: d.kind.Name(), Namespace: d.key.Namespace, Name: d.key.Name, Why: SkippedEqual}
		s.adopted = slices.DeleteFunc(s.adopted, func(a Skipped) bool { return a == skip })
		s.differ(d.kind, d.key, d.cause(want), diffs)
	}
	slices.SortFunc(s.different, compareConflicts)
}

// cause tells why the owners differ. Our copy had all that v1 has, unless we withheld some; an owner
// whose UID alone is another one has been replaced since.
func (d dependent) cause(want []metav1.OwnerReference) Cause {
	switch {
	case !d.live.ours:
		return CauseUnmanaged
	case d.live.copied == d.content && len(resources.DiffOwners(byName(want), byName(d.live.owners))) > 0:
		return CauseEdited
	}
	return CauseStale
}

// byName puts the name where the UID is.
func byName(refs []metav1.OwnerReference) []metav1.OwnerReference {
	out := slices.Clone(refs)
	for i := range out {
		out[i].UID = types.UID(out[i].Kind + "/" + out[i].Name)
	}
	return out
}
