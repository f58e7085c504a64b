package copier

import (
	"context"
	"errors"
	"fmt"

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
func (c *Copies) TryWrites(ctx context.Context) ([]resources.Problem, error) {
	var problems gathered[resources.Problem]
	err := eachKind(ctx, c.reg.Kinds(), func(ctx context.Context, kind *resources.Kind) error {
		tried := map[string]bool{} // tiers; a kind without tiers has the empty one
		copies := inV3(kind)
		if !kind.Tiered() {
			copies.metaPage = tryPage
		}
		err := c.eachMeta(ctx, copies, func(obj *Meta) error {
			tier := tierOf(kind, obj)
			if tried[tier] || !c.me.has(obj) || kind.Undeletable(obj.Name) {
				return nil
			}
			found, err := c.tryWritesOf(ctx, kind, obj)
			if errors.Is(err, errChanged) {
				return nil // another one is tried
			}
			problems.add(found...)
			if tried[tier] = true; err == nil && !kind.Tiered() {
				return errTriedAll
			}
			return err
		})
		if errors.Is(err, errTriedAll) {
			return nil
		}
		return err
	})
	return problems.sorted(compareProblems), err
}

// tierOf is empty for a kind without tiers.
func tierOf(kind *resources.Kind, obj *Meta) string {
	if !kind.Tiered() {
		return ""
	}
	return obj.Labels[resources.TierLabel]
}

// tryWritesOf tries one copy. It is errChanged if that has changed or gone meanwhile.
func (c *Copies) tryWritesOf(ctx context.Context, kind *resources.Kind, obj *Meta) (problems []resources.Problem, err error) {
	key := client.ObjectKeyFromObject(obj)
	for _, try := range []struct {
		verb string
		do   func() error
	}{
		{"patch", func() error {
			changed := obj.DeepCopy()
			return c.patchMeta(ctx, changed, func() { unmark(changed) }, client.DryRunAll)
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
			return nil, errChanged
		case err != nil:
			return nil, fmt.Errorf("try to %s %s %s: %w", try.verb, kind.Name(), key, err)
		}
	}
	return problems, nil
}

// Refusal says of a v3 object that the API server does not let something be done to it.
func Refusal(verb string, kind *resources.Kind, key client.ObjectKey, err error) resources.Problem {
	return problemOf(kind, key, resources.ReasonRejected, fmt.Sprintf("%s is refused: %v", verb, err), "let this account pass what refuses it")
}
