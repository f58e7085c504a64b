package copier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Plan reads and converts every v1 object and changes nothing. Objects that could not be copied are in
// Problems, each by its v1 name; those that are being deleted are among them where others need them. validate also finds those
// that v3 would refuse, which takes four times as long; Copy finds them anyway. A kind whose v1 CRD is
// absent has no objects. The error tells that the plan is incomplete. With AskServer it also finds what admission
// would refuse or change.
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
	return Plan{Kinds: progress.Kinds, Total: progress.Done, Problems: p.problems, Skipped: p.skipped, Unasked: p.unasked}, err
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
	unasked  string
}

func (p *planner) kind(ctx context.Context, kind *resources.Kind) error {
	schema, err := p.schema(ctx, kind)
	if err != nil {
		return err
	}
	from := map[client.ObjectKey]string{} // v3 object -> name of the v1 object it comes from
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	err = p.EachV1(within, kind, func(v1 *unstructured.Unstructured) error {
		count, conv, problem, err := p.check(within, kind, schema, v1, from)
		if err != nil {
			return err
		}
		if conv == nil || problem != nil || !p.askServer {
			p.found(kind, count, problem)
			return nil
		}
		name := v1.GetName()
		g.Go(func() error {
			problem, err := p.ask(within, kind, schema, conv)
			if problem != nil {
				problem.Name = name
			}
			p.found(kind, count, problem)
			return err
		})
		return nil
	})
	if asked := g.Wait(); asked != nil {
		return asked // the list has only stopped because of it
	}
	return err
}

// found counts an object.
func (p *planner) found(kind *resources.Kind, count counter, problem *resources.Problem) {
	if problem != nil {
		count = rejected
		p.mu.Lock()
		p.problems = append(p.problems, *problem)
		p.mu.Unlock()
	}
	p.tracker.done(kind, count)
}

// ask finds what admission does to a copy, by a dry run. Of one that is there it tells only whether it is refused.
func (p *planner) ask(ctx context.Context, kind *resources.Kind, schema *resources.Schema, conv *resources.Converted) (*resources.Problem, error) {
	if p.isUnasked() {
		return nil, nil
	}
	want := conv.Object
	made := &creation{Unstructured: *want.DeepCopy()}
	err := p.try(ctx, func() error { return p.c.Create(ctx, made, client.DryRunAll) })
	key := client.ObjectKeyFromObject(want)
	switch class := apierrors.Classify(err); {
	case class == apierrors.None:
		if fields := resources.Altered(kind, schema, want, withCalicoOwners(&made.Unstructured, nil)); len(fields) > 0 {
			problem := alteredCopy(kind, want, fields).Problem(p.owner.UID)
			return &problem, nil
		}
		return nil, nil
	case class == apierrors.Conflict || apierrors.NamespaceEnds(err):
		return nil, nil
	case apierrors.NotAllowed(err) || class == apierrors.NotFound && !namespaceMissing(err):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unasked = err.Error()
		return nil, nil
	case ctx.Err() != nil || apierrors.Retryable(class):
		return nil, fmt.Errorf("ask whether %s %s may be created: %w", kind.Name(), key, err)
	}
	problem := refusal(kind, key, err)
	return &problem, nil
}

// isUnasked tells that the server would give no answer about the others either.
func (p *planner) isUnasked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unasked != ""
}

// judgeLeaving tells the objects that v3 may lack, because they are being deleted, from those that it may not.
func (p *planner) judgeLeaving(ctx context.Context) error {
	skipped, inUse, err := p.leftBehind(ctx, p.leaving, p.tracker)
	slices.SortFunc(skipped, compareSkipped)
	p.skipped, p.problems = skipped, append(p.problems, inUse...)
	return err
}

// check returns what is wrong with one object, and else what it counts as, and what would be created. It notes the v3
// name in from.
func (p *planner) check(ctx context.Context, kind *resources.Kind, schema *resources.Schema, v1 *unstructured.Unstructured, from map[client.ObjectKey]string) (counter, *resources.Converted, *resources.Problem, error) {
	conv, err := resources.Convert(kind, v1, schema)
	var problem *resources.Problem
	if errors.As(err, &problem) {
		return nil, nil, problem, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if conv.Terminating {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaving.add(kind, v1)
		return terminating, nil, nil, nil
	}
	key := client.ObjectKeyFromObject(conv.Object)
	if other, taken := from[key]; taken {
		return nil, nil, &resources.Problem{
			Kind: kind.Name(), Namespace: v1.GetNamespace(), Name: v1.GetName(), Reason: resources.ReasonNameCollision,
			Message: fmt.Sprintf("it and %q would both become %q in v3", other, key.Name),
			Remedy:  "delete or rename one of the two v1 objects",
		}, nil
	}
	from[key] = v1.GetName()
	if !p.validate {
		return planned, conv, nil, nil
	}
	whole := conv.Object
	if len(conv.Status) > 0 {
		whole = &unstructured.Unstructured{Object: maps.Clone(whole.Object)}
		whole.Object["status"] = conv.Status // written by itself, and validated as strictly
	}
	problem, err = resources.Validate(ctx, kind, whole, schema)
	if problem != nil {
		problem.Name = v1.GetName() // the object to repair
	}
	return planned, conv, problem, err
}
