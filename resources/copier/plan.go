package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Plan reads and converts every v1 object and changes nothing. Objects that could not be copied are in
// Problems, each by its v1 name; those that are being deleted are among them where others need them. validate also finds those
// that v3 would refuse, which takes four times as long; Copy finds them anyway. A kind whose v1 CRD is
// absent has no objects. The error tells that the plan is incomplete.
func (c *Copier) Plan(ctx context.Context, validate bool, report Report) (Plan, error) {
	kinds := c.reg.Kinds()
	totals, err := c.totals(ctx, kinds)
	if err != nil {
		return Plan{}, err
	}
	p := &planner{Copier: c, validate: validate, tracker: newTracker(kinds, totals, report), leaving: leaving{}}
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range kinds {
		g.Go(func() error { return p.kind(within, kind) })
	}
	if err = g.Wait(); err == nil {
		err = p.judgeLeaving(ctx)
	}
	p.tracker.flush()
	slices.SortFunc(p.problems, compareProblems)
	progress := p.tracker.snapshot()
	return Plan{Kinds: progress.Kinds, Total: progress.Done, Problems: p.problems, Skipped: p.skipped}, err
}

// planner is the notebook of one Plan.
type planner struct {
	*Copier
	validate bool
	tracker  *tracker
	mu       sync.Mutex
	problems []resources.Problem
	leaving  leaving
	skipped  []Skipped
}

func (p *planner) kind(ctx context.Context, kind *resources.Kind) error {
	schema, err := p.schema(ctx, kind)
	if err != nil {
		return err
	}
	from := map[client.ObjectKey]string{} // v3 object -> name of the v1 object it comes from
	return p.EachV1(ctx, kind, func(v1 *unstructured.Unstructured) error {
		count, problem, err := p.check(ctx, kind, schema, v1, from)
		if err != nil {
			return err
		}
		if problem != nil {
			count = rejected
			p.mu.Lock()
			p.problems = append(p.problems, *problem)
			p.mu.Unlock()
		}
		p.tracker.done(kind, count)
		return nil
	})
}

// judgeLeaving tells the objects that v3 may lack, because they are being deleted, from those that it may not.
func (p *planner) judgeLeaving(ctx context.Context) error {
	skipped, inUse, err := p.leftBehind(ctx, p.leaving)
	slices.SortFunc(skipped, compareSkipped)
	p.skipped, p.problems = skipped, append(p.problems, inUse...)
	for _, problem := range inUse {
		p.tracker.moved(problem.Kind, terminating, rejected)
	}
	return err
}

// check returns what is wrong with one object, and else what it counts as. It notes the v3 name in from.
func (p *planner) check(ctx context.Context, kind *resources.Kind, schema *resources.Schema, v1 *unstructured.Unstructured, from map[client.ObjectKey]string) (counter, *resources.Problem, error) {
	conv, err := resources.Convert(kind, v1, schema)
	var problem *resources.Problem
	if errors.As(err, &problem) {
		return nil, problem, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if conv.Terminating {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaving.add(kind, v1)
		return terminating, nil, nil
	}
	key := client.ObjectKeyFromObject(conv.Object)
	if other, taken := from[key]; taken {
		return nil, &resources.Problem{
			Kind: kind.Name(), Namespace: v1.GetNamespace(), Name: v1.GetName(), Reason: resources.ReasonNameCollision,
			Message: fmt.Sprintf("it and %q would both become %q in v3", other, key.Name),
			Remedy:  "delete or rename one of the two v1 objects",
		}, nil
	}
	from[key] = v1.GetName()
	if !p.validate {
		return planned, nil, nil
	}
	if len(conv.Status) > 0 {
		conv.Object.Object["status"] = conv.Status // written by itself, and validated as strictly
	}
	problem, err = resources.Validate(ctx, kind, conv.Object, schema)
	if problem != nil {
		problem.Name = v1.GetName() // the object to repair
	}
	return planned, problem, err
}
