package copier

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/resources"
)

// RemapOwners gives the copies of ours the owners in Calico that their v1 objects have: those that were
// withheld because the owner was not in v3 yet. It learns everything from the API server, so it works
// after a crash, and a second call writes nothing. Owners that do not exist are left out and returned
// in Missing. Unmanaged objects, and what somebody has changed since, are not touched; Conflicts names
// those whose owners differ.
func (c *Copier) RemapOwners(ctx context.Context) (RemapResult, error) {
	s := c.newComparer(false)
	if err := s.run(ctx); err != nil {
		return RemapResult{}, err
	}
	var result RemapResult
	var patched atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, d := range s.dependents {
		want, unknown := s.owners.resolve(d.want)
		result.Missing = append(result.Missing, missingOwners(d, unknown)...)
		if len(resources.DiffOwners(want, d.live.owners)) == 0 || d.cause(want) != CauseStale {
			continue
		}
		g.Go(func() error {
			changed, err := c.patchOwners(ctx, d, want)
			if changed {
				patched.Add(1)
			}
			return err
		})
	}
	err := g.Wait()
	result.Patched = patched.Load()
	return result, err
}

func missingOwners(d dependent, unknown []metav1.OwnerReference) []resources.Problem {
	var out []resources.Problem
	for _, ref := range unknown {
		out = append(out, resources.Problem{
			Kind: d.kind.Name(), Namespace: d.key.Namespace, Name: d.key.Name, Reason: resources.ReasonOwnerMissing,
			Message: fmt.Sprintf("its owner %s %q (uid %s) does not exist and is left out", ref.Kind, ref.Name, ref.UID),
			Remedy:  "none is needed, unless the owner should exist",
		})
	}
	return out
}

// patchOwners replaces the owners in Calico and keeps all others.
func (c *Copier) patchOwners(ctx context.Context, d dependent, want []metav1.OwnerReference) (bool, error) {
	changed, err := c.amend(ctx, d.kind, d.key, nil, func(obj *metav1.PartialObjectMetadata) {
		_, foreign := resources.SplitOwners(obj.OwnerReferences)
		obj.OwnerReferences = append(foreign, want...)
		if _, ok := obj.Annotations[resources.CopiedVersionAnnotation]; ok {
			// With these owners it is a copy of v1 as it is now, and whatever differs later was changed in v3:
			// it may have been made before the owners of the v1 object were taken off.
			obj.Annotations[resources.CopiedVersionAnnotation] = d.content
		}
	})
	if err != nil {
		return false, fmt.Errorf("set owners of %s %s: %w", d.kind.Name(), d.key, err)
	}
	return changed, nil
}
