package copier

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/phasegate/phasegate/resources"
)

// gathered is a list that several goroutines add to.
type gathered[T any] struct {
	mu  sync.Mutex
	all []T // to be read once they are done
}

func (g *gathered[T]) add(more ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, more...)
}

// remove takes out what is.
func (g *gathered[T]) remove(is func(T) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = slices.DeleteFunc(g.all, is)
}

// sorted is all of it: it was added in any order.
func (g *gathered[T]) sorted(compare func(a, b T) int) []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.SortFunc(g.all, compare)
	return g.all
}

// eachKind calls do for all kinds at once. The first error ends the others.
func eachKind(ctx context.Context, kinds []*resources.Kind, do func(context.Context, *resources.Kind) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range kinds {
		g.Go(func() error { return do(ctx, kind) })
	}
	return g.Wait()
}

// crew works on many objects at a time, until the first error.
func crew(ctx context.Context) (*errgroup.Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	return g, ctx
}

// finish waits for a crew whose work came out of a list that has ended so.
func finish(g *errgroup.Group, listed error) error {
	if failed := g.Wait(); failed != nil {
		return failed // the list has only stopped because of it
	}
	return listed
}
