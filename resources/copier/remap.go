package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// RemapOwners gives the copies of ours the owners in Calico that their v1 objects have: those that were
// deferred because the owner was not in v3 yet. It learns everything from the API server, so it works
// after a crash, and a second call writes nothing. Owners that do not exist are left out and returned
// in Missing. Unmanaged objects, and what another writer has changed since, are not touched; Conflicts names
// those whose owners differ.
func (c *Copier) RemapOwners(ctx context.Context) (RemapResult, error) {
	s, err := compareAll(ctx, c.sides, false, false)
	if err != nil {
		return RemapResult{}, err
	}
	var result RemapResult
	var patched atomic.Int64
	g, ctx := crew(ctx)
	for _, d := range s.dependents.sorted(compareDependents) {
		want, unknown := s.owners.resolve(d.want)
		result.Missing = append(result.Missing, d.missing(unknown)...)
		if len(resources.DiffOwners(want, d.live.owners)) == 0 || d.cause(want) != CauseStale {
			continue
		}
		g.Go(func() error {
			changed, err := c.setOwners(ctx, d, want)
			if changed {
				patched.Add(1)
			}
			return err
		})
	}
	err = g.Wait()
	result.Patched = patched.Load()
	return result, err
}

// Owners reads both sides and returns a function that rewrites references to v1 objects, by the raw UID
// or by the one of the aggregated view, to the v3 objects that they have become. A reference to a v3 object
// stays. Those whose object is not there come back as unknown.
func (c *Copier) Owners(ctx context.Context) (func([]metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference), error) {
	s, err := compareAll(ctx, c.sides, false, false)
	if err != nil {
		return nil, err
	}
	there := map[types.UID]bool{}
	for _, target := range s.owners.by {
		there[target.uid] = true
	}
	return func(refs []metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference) {
		for _, ref := range refs {
			one, none := s.owners.resolve([]metav1.OwnerReference{ref})
			if len(none) > 0 && there[ref.UID] {
				one, none = none, nil
			}
			resolved, unknown = append(resolved, one...), append(unknown, none...)
		}
		return resolved, unknown
	}, nil
}

// setOwners replaces the owners in Calico of a copy and keeps all others.
func (c *Copies) setOwners(ctx context.Context, d dependent, want []metav1.OwnerReference) (bool, error) {
	changed, err := c.amend(ctx, d.kind, d.key, nil, func(obj *Meta) {
		_, foreign := resources.SplitOwners(obj.OwnerReferences)
		obj.OwnerReferences = append(foreign, want...)
		if copied, ok := obj.Annotations[resources.CopiedVersionAnnotation]; ok {
			// With these owners a copy of proved content is one of v1 as it is now, and whatever differs later was
			// changed in v3: it may have been made before the owners of the v1 object were taken off. Of another one
			// v1 may have changed since.
			if d.proved {
				copied = d.content
			}
			obj.Annotations[resources.CopiedVersionAnnotation] = strings.TrimSuffix(copied, deferred)
		}
	})
	if err != nil {
		return false, fmt.Errorf("set owners of %s %s: %w", d.kind.Name(), d.key, err)
	}
	return changed, nil
}

// dependent is a v3 object that has owners in Calico, or should have.
type dependent struct {
	kind    *resources.Kind
	key     client.ObjectKey
	content string                  // the CopiedVersion of the v1 object
	want    []metav1.OwnerReference // as v1 has them
	live    entry
	proved  bool // the v3 object holds what the v1 object has, owners in Calico left out
}

func compareDependents(a, b dependent) int {
	return slices.Compare([]string{a.kind.Name(), a.key.Namespace, a.key.Name}, []string{b.kind.Name(), b.key.Namespace, b.key.Name})
}

func (d dependent) skipped() Skipped {
	return Skipped{Kind: d.kind.Name(), Namespace: d.key.Namespace, Name: d.key.Name, Why: SkippedEqual}
}

// cause says why the owners differ. Our copy had all that v1 has, unless we deferred some; an owner
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

func (d dependent) missing(unknown []metav1.OwnerReference) []resources.Problem {
	var out []resources.Problem
	for _, ref := range unknown {
		out = append(out, problemOf(d.kind, d.key, resources.ReasonOwnerMissing,
			fmt.Sprintf("its owner %s %q (uid %s) does not exist and is left out", ref.Kind, ref.Name, ref.UID), "none is needed, unless the owner should exist"))
	}
	return out
}
