package crdgate

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Build makes a controller out of the cache, client and recorder of own: its
// options (a Reconciler at least) and the sources that it watches, which must
// read from own.GetCache().
type Build func(own cluster.Cluster) (controller.Options, []source.Source, error)

// RunController runs one controller that shares nothing with the manager: its
// cache, informers, REST mapper, event recorder and work queue are made anew and
// are gone when it returns. That is what a Gate needs: the informers of a
// manager cannot be freed one by one, and would list a CRD that is gone for ever.
//
// It blocks until ctx is done, waits for the running reconciles, and returns nil
// then; or returns earlier, with the error of a controller that could not be
// built, or whose sources did not sync in time (controller.Options.
// CacheSyncTimeout). It may be called again with the same name once it has
// returned. Scheme and cache settings (namespaces, selectors) are given by opts.
func RunController(ctx context.Context, cfg *rest.Config, name string, build Build, opts ...cluster.Option) error {
	own, err := cluster.New(cfg, opts...)
	if err != nil {
		return fmt.Errorf("controller %s: make its client and cache: %w", name, err)
	}
	options, sources, err := build(own)
	if err != nil {
		return fmt.Errorf("controller %s: build: %w", name, err)
	}
	// The names in controller-runtime's registry are never released.
	options.SkipNameValidation = ptr.To(true)
	if options.Logger.GetSink() == nil {
		options.Logger = log.FromContext(ctx)
	}
	c, err := controller.NewUnmanaged(name, options)
	if err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("controller %s: watch %v: %w", name, s, err)
		}
	}

	// The cache outlives the controller: the last reconciles still read from it.
	cacheCtx, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	group, controllerCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return own.Start(cacheCtx) })
	group.Go(func() error {
		defer stopCache()
		return c.Start(controllerCtx)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	return nil
}
