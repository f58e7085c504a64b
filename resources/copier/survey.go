package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// survey lists both sides of every kind and notes where they differ. It keeps a digest per v3 object
// and whole objects only where they differ; owners in Calico are resolved once all kinds are listed.
type survey struct {
	*Copier
	// content is false when only the owners matter: v3 is then listed as metadata.
	content bool
	owners  *ownerMap

	mu         sync.Mutex
	kinds      map[string]KindVerification
	different  []Conflict
	missing    []resources.Problem
	extra      []resources.Problem
	dependents []dependent
}

// dependent is a v3 object that has owners in Calico, or should have.
type dependent struct {
	kind *resources.Kind
	key  client.ObjectKey
	want []metav1.OwnerReference // as v1 has them
	live entry
}

func (c *Copier) newSurvey(content bool) *survey {
	return &survey{Copier: c, content: content, owners: newOwnerMap(), kinds: map[string]KindVerification{}}
}

func (s *survey) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range s.reg.Kinds() {
		g.Go(func() error { return s.kind(ctx, kind) })
	}
	err := g.Wait()
	slices.SortFunc(s.different, compareConflicts)
	slices.SortFunc(s.missing, compareProblems)
	slices.SortFunc(s.extra, compareProblems)
	slices.SortFunc(s.dependents, func(a, b dependent) int {
		return slices.Compare([]string{a.kind.Name(), a.key.Namespace, a.key.Name}, []string{b.kind.Name(), b.key.Namespace, b.key.Name})
	})
	return err
}

// kindSurvey is the notebook of one kind.
type kindSurvey struct {
	kind   *resources.Kind
	schema *resources.Schema
	live   *index
	counts KindVerification
	// suspects are the converted v1 objects whose digest differs from that of the v3 object.
	suspects map[client.ObjectKey]*unstructured.Unstructured
}

func (s *survey) kind(ctx context.Context, kind *resources.Kind) error {
	of := &kindSurvey{kind: kind, counts: KindVerification{Kind: kind.Name()}, suspects: map[client.ObjectKey]*unstructured.Unstructured{}}
	var err error
	if of.schema, err = s.schema(ctx, kind); err != nil {
		return err
	}
	if s.content {
		of.live, err = s.indexContent(ctx, kind, of.schema)
	} else {
		of.live, err = s.indexMetadata(ctx, kind)
	}
	if err != nil {
		return err
	}
	of.counts.V3 = int64(len(of.live.entries))
	if err := s.eachV1(ctx, kind, func(v1 *unstructured.Unstructured) error { return s.one(of, v1) }); err != nil {
		return err
	}
	if err := s.confirm(ctx, of); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[kind.Name()] = of.counts
	for _, key := range of.live.strays() {
		s.extra = append(s.extra, resources.Problem{
			Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonExtra,
			Message: "is a copy of ours whose v1 object is gone", Remedy: "copying again removes it",
		})
	}
	return nil
}

// one looks at one v1 object. An object that cannot be converted is an error: nothing can be said about
// its copy.
func (s *survey) one(of *kindSurvey, v1 *unstructured.Unstructured) error {
	conv, err := resources.Convert(of.kind, v1, of.schema)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(conv.Object)
	live, there := of.live.take(key)
	if conv.Terminating {
		return nil
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
	calico, _ := resources.SplitOwners(live.owners)
	if len(calico) > 0 || len(conv.Owners) > 0 {
		live.owners = calico
		s.mu.Lock()
		s.dependents = append(s.dependents, dependent{kind: of.kind, key: key, want: conv.Owners, live: live})
		s.mu.Unlock()
	}
	switch {
	case !s.content:
	case !live.terminating && live.digest == contentDigest(of.kind, of.schema, conv.Object):
		of.counts.Same++
	default:
		of.suspects[key] = conv.Object
	}
	return nil
}

// confirm lists v3 once more if anything differed, and notes the fields. What has become equal, or has
// vanished, since the first list counts as it is now.
func (s *survey) confirm(ctx context.Context, of *kindSurvey) error {
	if len(of.suspects) == 0 {
		return nil
	}
	err := s.eachV3(ctx, of.kind, func(live *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(live)
		want, ok := of.suspects[key]
		if !ok {
			return nil
		}
		delete(of.suspects, key)
		_, diffs := decide(of.kind, of.schema, want, live, s.owner.UID)
		if len(diffs) == 0 {
			of.counts.Same++
			return nil
		}
		s.differ(of.kind, key, s.isOurs(live), diffs)
		return nil
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range of.suspects {
		s.missing = append(s.missing, resources.Problem{
			Kind: of.kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonMissing,
			Message: "vanished from v3 a moment ago", Remedy: "copying again creates it",
		})
	}
	return nil
}

func (s *survey) differ(kind *resources.Kind, key client.ObjectKey, ours bool, diffs []resources.FieldDiff) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.different = append(s.different, Conflict{Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Ours: ours, Fields: diffs})
}

// compareOwners adds the dependents whose owners differ to what is different. It counts an object at
// most once.
func (s *survey) compareOwners() {
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
		s.differ(d.kind, d.key, d.live.ours, diffs)
	}
	slices.SortFunc(s.different, compareConflicts)
}

// Conflicts finds the v3 objects that are not ours and differ from what v1 says, over all kinds. It
// changes nothing. An object that cannot be read or converted is an error, never "no conflict".
func (c *Copier) Conflicts(ctx context.Context) ([]Conflict, error) {
	s := c.newSurvey(true)
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	s.compareOwners()
	return slices.DeleteFunc(s.different, func(d Conflict) bool { return d.Ours }), nil
}

// Verify compares both sides completely, owners included. It changes nothing.
func (c *Copier) Verify(ctx context.Context) (Verification, error) {
	s := c.newSurvey(true)
	if err := s.run(ctx); err != nil {
		return Verification{}, err
	}
	s.compareOwners()
	v := Verification{Different: s.different, Missing: s.missing, Extra: s.extra}
	for _, kind := range c.reg.Kinds() {
		v.Kinds = append(v.Kinds, s.kinds[kind.Name()])
	}
	return v, nil
}
