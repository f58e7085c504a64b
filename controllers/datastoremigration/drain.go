package datastoremigration

import (
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// drainRights: the lock is v1's too.
func (s *steps) drainRights() []rbacv1.PolicyRule {
	return allOf("list", resources.V1Group, s.Registry.All(), (*resources.Kind).V1Plural)
}

// drain waits until two lists of v1, `quiet` apart, are equal: what was in
// flight when the lock was taken has landed. The lock is only a request until
// the fence exists, so after `atMost` the migration goes on: objects whose
// status changes for ever must not hold it up, and Verify compares everything
// again before anything is opened.
func (s *steps) drain(ctx context.Context, sc *scope) (outputs, error) {
	quiet := sc.With.Duration("quiet", time.Second)
	end := sc.Clock.Now().Add(sc.With.Duration("atMost", 10*time.Second))
	before, err := s.v1Versions(ctx)
	if err != nil {
		return nil, err
	}
	for {
		if err := sleep(ctx, sc.Clock, quiet); err != nil {
			return nil, err
		}
		after, err := s.v1Versions(ctx)
		if err != nil {
			return nil, err
		}
		if maps.Equal(before, after) {
			return outputs{"quiet": true}, nil
		}
		if !sc.Clock.Now().Before(end) {
			sc.Warn("StillWritten", "v1 objects are still being written %s after the lock: stop tools that write crd.projectcalico.org; both sides are compared before v3 is opened",
				sc.With.Duration("atMost", 10*time.Second))
			return outputs{"quiet": false}, nil
		}
		before = after
	}
}

func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.After(d):
		return nil
	}
}

// v1Versions maps the UID of every v1 object to its resource version.
func (s *steps) v1Versions(ctx context.Context) (map[types.UID]string, error) {
	kinds := s.Registry.All()
	found := make([]map[types.UID]string, len(kinds))
	group, ctx := errgroup.WithContext(ctx)
	for i, kind := range kinds {
		group.Go(func() (err error) {
			found[i], err = s.versions(ctx, kind)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := map[types.UID]string{}
	for _, m := range found {
		maps.Copy(all, m)
	}
	return all, nil
}

func (s *steps) versions(ctx context.Context, kind *resources.Kind) (map[types.UID]string, error) {
	versions := map[types.UID]string{}
	opts := &client.ListOptions{Limit: 5000, LabelSelector: kind.Selector()}
	for {
		page := &metav1.PartialObjectMetadataList{}
		gvk := kind.V1GVK()
		gvk.Kind += "List"
		page.SetGroupVersionKind(gvk)
		err := s.client.List(ctx, page, opts)
		if apierrs.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil // the CRD is not installed: there is nothing of this kind
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.V1GVK().GroupKind(), err)
		}
		for i := range page.Items {
			versions[page.Items[i].UID] = page.Items[i].ResourceVersion
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return versions, nil
		}
	}
}
