package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// tryPage is how many copies are read to find one that can be tried: more than the few that nobody may delete.
const tryPage = 20

// errTriedAll ends a list of which nothing more is to be tried.
var errTriedAll = errors.New("nothing more to try")

// TryWrites asks by dry runs for what is still to be done to the copies, whatever becomes of the migration: to change
// their metadata, and to delete them. It changes nothing. Of each kind it tries one copy, of a kind of policies one in
// each tier, since Calico grants rights by tier. What the API server would refuse is returned.
func (c *Copier) TryWrites(ctx context.Context) (problems []resources.Problem, err error) {
	var mu sync.Mutex
	err = eachKind(ctx, c.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		tried := map[string]bool{}
		size := int64(tryPage)
		if kind.Tiered() {
			size = metadataPage
		}
		err := c.eachMetadata(ctx, kind.V3GVK(), kind.V3CRDName(), size, labels.Everything(), func(obj *metav1.PartialObjectMetadata) error {
			tier := tierOf(kind, obj)
			if tried[tier] || !c.isOurs(obj) || kind.Undeletable(obj.Name) {
				return nil
			}
			obj.SetGroupVersionKind(kind.V3GVK()) // an item of a list says that it is metadata only
			found, answered, err := c.tryWritesOf(ctx, kind, obj)
			if err != nil {
				return err
			}
			mu.Lock()
			problems = append(problems, found...)
			mu.Unlock()
			if tried[tier] = answered; answered && !kind.Tiered() {
				return errTriedAll
			}
			return nil
		})
		if errors.Is(err, errTriedAll) {
			return nil
		}
		return err
	})
	slices.SortFunc(problems, compareProblems)
	return problems, err
}

// tierOf is empty for a kind without tiers.
func tierOf(kind *resources.Kind, obj *metav1.PartialObjectMetadata) string {
	if !kind.Tiered() {
		return ""
	}
	return obj.Labels[resources.TierLabel]
}

// tryWritesOf tries one copy. answered is false for one that has changed or gone meanwhile.
func (c *Copier) tryWritesOf(ctx context.Context, kind *resources.Kind, obj *metav1.PartialObjectMetadata) (problems []resources.Problem, answered bool, err error) {
	key := client.ObjectKeyFromObject(obj)
	for _, try := range []struct {
		verb string
		do   func() error
	}{
		{"patch", func() error {
			changed := obj.DeepCopy()
			return c.patchMetadata(ctx, changed, func() { forget(changed) }, client.DryRunAll)
		}},
		{"delete", func() error { return c.deleteExactly(ctx, obj, client.DryRunAll) }},
	} {
		err := try.do()
		switch class := apierrors.Classify(err); {
		case apierrors.Refused(err):
			problem := Refusal(try.verb, kind, key, err)
			if tier := tierOf(kind, obj); tier != "" {
				problem.Message = fmt.Sprintf("of tier %s, %s", tier, problem.Message)
			}
			problems = append(problems, problem)
		case class == apierrors.Conflict || class == apierrors.NotFound:
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("try to %s %s %s: %w", try.verb, kind.Name(), key, err)
		}
	}
	return problems, true, nil
}

// Refusal says of a v3 object that the API server does not let something be done to it.
func Refusal(verb string, kind *resources.Kind, key client.ObjectKey, err error) resources.Problem {
	return resources.Problem{
		Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: resources.ReasonRejected,
		Message: fmt.Sprintf("%s is refused: %v", verb, err), Remedy: "let this account pass what refuses it",
	}
}
