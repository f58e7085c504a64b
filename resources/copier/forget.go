package copier

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// ForgetCopies takes our notes off every v3 object that bears our mark: the migration is over, and they
// are nobody's copies any more. Those that the API server does not let be written keep their notes, and are returned.
// A second call frees what is left.
func (c *Copier) ForgetCopies(ctx context.Context) (kept []resources.Problem, err error) {
	var mu sync.Mutex
	err = eachKind(ctx, c.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		return c.eachOfOurs(ctx, kind, func(ctx context.Context, obj *metav1.PartialObjectMetadata) error {
			key := client.ObjectKeyFromObject(obj)
			_, err := c.amend(ctx, kind, key, obj, forget)
			if apierrors.Refused(err) {
				mu.Lock()
				defer mu.Unlock()
				kept = append(kept, Refusal("patch", kind, key, err))
				return nil
			}
			if err != nil {
				return fmt.Errorf("take our notes off %s %s: %w", kind.Name(), key, err)
			}
			return nil
		})
	})
	slices.SortFunc(kept, compareProblems)
	return kept, err
}

// eachKind calls do for all kinds at once. The first error ends the others.
func eachKind(ctx context.Context, kinds []*resources.Kind, do func(context.Context, *resources.Kind) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range kinds {
		g.Go(func() error { return do(ctx, kind) })
	}
	return g.Wait()
}

// eachOfOurs calls do for every copy of ours of a kind, from several goroutines.
func (c *Copier) eachOfOurs(ctx context.Context, kind *resources.Kind, do func(context.Context, *metav1.PartialObjectMetadata) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	err := c.eachV3Metadata(ctx, kind, func(obj *metav1.PartialObjectMetadata) error {
		if c.isOurs(obj) {
			obj.SetGroupVersionKind(kind.V3GVK()) // an item of a list says that it is metadata only
			g.Go(func() error { return do(ctx, obj) })
		}
		return ctx.Err()
	})
	if workErr := g.Wait(); workErr != nil {
		return workErr // the list only stopped because a worker failed
	}
	return err
}
