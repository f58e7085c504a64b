package datastoremigration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// What proves the fence: so many dry runs refused in a row, of so many tries at most.
const (
	proofs     = 3
	proofTries = 20
	proofPoll  = 50 * time.Millisecond
)

func (s *steps) drainRights() []rbacv1.PolicyRule {
	return grants(s.onV1Lock("patch"), allOf("list", resources.V1Group, s.Registry.All(), (*resources.Kind).V1Plural)) // the lock is v1's too
}

// drain proves that v1 is closed, and waits until two lists of it, `quiet` apart, are
// equal: what was let in before has landed.
//
// Where the lock is only a request, nothing can be proved, and after `atMost` the
// migration goes on: objects whose status changes for ever must not hold it up, and
// Verify compares everything again before anything is opened.
func (s *steps) drain(ctx context.Context, sc *scope) (outputs, error) {
	lock := sc.Object.Status.Lock
	enforced := lock != nil && lock.Mode == migrationv1.LockEnforced
	if enforced {
		if err := s.proveFence(ctx, sc, "the lock", lockMessage(sc.Object)); err != nil {
			return nil, err
		}
	}
	quiet, atMost := sc.With.Duration("quiet", time.Second), sc.With.Duration("atMost", 10*time.Second)
	end := sc.Clock.Now().Add(atMost)
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
		switch {
		case maps.Equal(before, after):
			return outputs{"quiet": true}, nil
		case enforced:
			return nil, &fsm.WaitError{After: quiet, Message: "v1 is closed, and objects of it still change: waiting for writes that were let in before, and for Kubernetes to delete what belongs to deleted namespaces and owners"}
		case !sc.Clock.Now().Before(end):
			sc.Warn("StillWritten", "v1 objects are still being written %s after the lock: stop tools that write crd.projectcalico.org; both sides are compared before v3 is opened", atMost)
			return outputs{"quiet": false}, nil
		}
		before = after
	}
}

// proveFence waits until writes of v1 are refused, several in a row, for the reason that
// is given and for no other one. They are dry runs, so that nothing is written where the
// fence has a hole.
func (s *steps) proveFence(ctx context.Context, sc *scope, mark, reason string) error {
	seen := error(nil)
	for refused, tries := 0, 0; refused < proofs; tries++ {
		err := s.probeFence(ctx, mark)
		switch {
		case apierrs.IsForbidden(err) && strings.Contains(err.Error(), reason):
			refused++
			continue
		case err != nil && !apierrs.IsForbidden(err):
			return fmt.Errorf("try whether the fence around v1 works: %w", err)
		case tries >= proofTries:
			return &fsm.WaitError{After: time.Second, Message: "the fence around v1 does not work yet, is the admission plugin ValidatingAdmissionPolicy on? " + outcomeOf(seen)}
		}
		refused, seen = 0, err
		if err := sleep(ctx, sc.Clock, proofPoll); err != nil {
			return err
		}
	}
	return nil
}

func outcomeOf(dryRun error) string {
	if dryRun == nil {
		return "A dry run of a write was accepted"
	}
	return "A dry run of a write said: " + dryRun.Error()
}

// probeFence tries to write the lock, as a dry run.
func (s *steps) probeFence(ctx context.Context, mark string) error {
	info := &unstructured.Unstructured{}
	info.SetGroupVersionKind(s.Registry.Lock().V1GVK())
	info.SetName(clusterInformationName)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, migrationv1.AnnotationFenceProbe, mark)
	return s.client.Patch(ctx, info, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
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
