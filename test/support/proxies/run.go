package proxies

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// revision is what the Deployment controller counts pod templates with.
const revision = "deployment.kubernetes.io/revision"

// Run starts every proxy there is and will be, once for each of its pod templates,
// until ctx is done; workers at a time. An error ends it, too.
func Run(ctx context.Context, c client.WithWatch, workers int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	started := map[types.UID]string{}
	// The API server ends each watch in time, and the client does when ctx is done.
	for ctx.Err() == nil {
		there, err := c.Watch(ctx, &appsv1.DeploymentList{}, client.MatchingLabels{"toolhive": "true"})
		if err != nil {
			if ctx.Err() == nil {
				group.Go(func() error { return fmt.Errorf("watch the proxies: %w", err) })
			}
			break
		}
		// Without a resourceVersion, a watch begins with what is there.
		for event := range there.ResultChan() {
			proxy, is := event.Object.(*appsv1.Deployment)
			if !is || event.Type == watch.Deleted || !running(proxy) || started[proxy.UID] == proxy.Annotations[revision] {
				continue
			}
			started[proxy.UID] = proxy.Annotations[revision]
			group.Go(func() error { return insist(ctx, c, proxy) })
		}
	}
	return group.Wait()
}

// insist is Start as often as it takes: a proxy that meets a change tries again,
// and one whose server goes ends with it.
func insist(ctx context.Context, c client.Client, proxy *appsv1.Deployment) error {
	for {
		err := Start(ctx, c, proxy)
		switch {
		case err == nil, apierrs.IsNotFound(err), ctx.Err() != nil:
			return nil
		case !apierrs.IsConflict(err):
			return err
		}
	}
}
