package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// Plan reads and converts every v1 object and changes nothing. Objects that could not be copied are in
// Problems, each by its v1 name; those that are being deleted are among them where others need them. validate also finds those
// that v3 would refuse, which takes four times as long; Copy finds them anyway. A kind whose v1 CRD is
// absent has no objects. The error says that the plan is incomplete. With AskServer it also finds what admission
// would refuse or change.
func (c *Copier) Plan(ctx context.Context, validate bool) (Plan, error) {
	kinds := c.reg.Kinds()
	totals, err := c.totals(ctx, kinds)
	if err != nil {
		return Plan{}, err
	}
	p := &planner{sides: c.sides, validate: validate, notes: newNotebook(kinds, totals, nil), filled: map[Filled]int64{}}
	if !c.askServer {
		p.unasked.Store(new(string))
	}
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(maxListers)
	for _, kind := range kinds {
		g.Go(func() error { return p.kind(within, kind) })
	}
	if err = g.Wait(); err == nil {
		err = p.notes.judgeTerminating(ctx, c.Source)
	}
	found := p.notes.result()
	plan := Plan{Kinds: found.Kinds, Total: found.Done, Problems: found.Rejected, Skipped: found.Skipped, Filled: p.allFilled()}
	if why := p.unasked.Load(); why != nil {
		plan.Unasked = *why
	}
	return plan, err
}

// planner is one Plan.
type planner struct {
	*sides
	validate bool
	notes    *notebook
	// unasked is why the server is not asked: it would give no answer about any object. nil: it is.
	unasked atomic.Pointer[string]

	mu     sync.Mutex
	filled map[Filled]int64 // how many objects, by the rest
}

func (p *planner) fill(kind *resources.Kind, by string, all []resources.Filled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range all {
		p.filled[Filled{Kind: kind.Name(), Field: one.Field, Value: one.Value, By: by}]++
	}
}

func (p *planner) allFilled() (all []Filled) {
	for one, objects := range p.filled {
		one.Objects = objects
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Filled) int {
		return slices.Compare([]string{a.Kind, a.Field, a.Value, a.By}, []string{b.Kind, b.Field, b.Value, b.By})
	})
	return all
}

func (p *planner) kind(ctx context.Context, kind *resources.Kind) error {
	of, err := p.of(ctx, kind)
	if err != nil {
		return err
	}
	of.live = newIndex(nil) // v3 is not looked at: it is only noted which v1 object becomes what
	g, ctx := crew(ctx)
	return finish(g, p.v1.EachV1(ctx, kind, func(v1 *unstructured.Unstructured) error {
		conv, err := p.check(ctx, of, v1)
		switch {
		case err != nil:
			return p.note(kind, v1, err)
		case conv.Terminating:
			p.notes.leave(kind, v1)
			return nil
		}
		p.fill(kind, "", conv.Filled)
		switch {
		case p.unasked.Load() != nil:
			p.notes.tracker.done(kind, planned)
		default:
			g.Go(func() error { return p.note(kind, v1, p.ask(ctx, of, conv)) })
		}
		return nil
	}))
}

// note counts an object. What is wrong with it has the name of the object to repair; every other error ends the plan.
func (p *planner) note(kind *resources.Kind, v1 *unstructured.Unstructured, err error) error {
	var problem *resources.Problem
	switch {
	case errors.As(err, &problem):
		problem.Name = v1.GetName()
		p.notes.reject(kind, *problem)
		return nil
	case err == nil:
		p.notes.tracker.done(kind, planned)
	}
	return err
}

// collision is about a v1 object of which another one takes the place in v3.
func collision(kind *resources.Kind, v1 *unstructured.Unstructured, other, inV3 string) resources.Problem {
	return problemOf(kind, client.ObjectKeyFromObject(v1), resources.ReasonNameCollision,
		fmt.Sprintf("it and %q would both become %q in v3", other, inV3), "delete or rename one of the two v1 objects")
}

// check converts one object. The error may be a Problem of the object.
func (p *planner) check(ctx context.Context, of *pairs, v1 *unstructured.Unstructured) (*resources.Converted, error) {
	conv, err := resources.Convert(of.kind, v1, of.schema)
	if err != nil || conv.Terminating {
		return conv, err
	}
	if _, other := of.live.take(client.ObjectKeyFromObject(conv.Object), v1.GetName()); other != "" {
		problem := collision(of.kind, v1, other, conv.Object.GetName())
		return nil, &problem
	}
	p.mark(conv)
	if !p.validate {
		return conv, nil
	}
	whole := conv.Object
	if len(conv.Status) > 0 {
		whole = &unstructured.Unstructured{Object: maps.Clone(whole.Object)}
		whole.Object["status"] = conv.Status // written by itself, and validated as strictly
	}
	problem, err := resources.Validate(ctx, of.kind, whole, of.schema)
	if problem != nil {
		return nil, problem
	}
	return conv, err
}

// unborn stands for the UID of a migration that is not created yet: it is as long.
const unborn = owner("00000000-0000-0000-0000-000000000000")

// mark makes of an object what a copy will write, at its longest: our notes count towards the limits of the server.
func (p *planner) mark(conv *resources.Converted) {
	cmp.Or(p.me, unborn).mark(conv.Object, conv)
	if len(conv.Owners) > 0 {
		markDeferred(conv.Object, conv)
	}
}

// ask finds what admission does to a copy, by a dry run. Of one that is there it finds only whether it is refused.
func (p *planner) ask(ctx context.Context, of *pairs, conv *resources.Converted) error {
	if p.unasked.Load() != nil {
		return nil
	}
	want := conv.Object
	made := &creation{Unstructured: *want.DeepCopy()}
	err := p.try(ctx, func() error { return p.client.Create(ctx, made, client.DryRunAll) })
	key := client.ObjectKeyFromObject(want)
	switch class := apierrors.Classify(err); {
	case class == apierrors.None:
		fields := resources.Altered(of.kind, of.schema, want, withoutCalicoOwners(&made.Unstructured))
		if len(fields) == 0 {
			p.fill(of.kind, ByAdmission, resources.Added(want, &made.Unstructured))
			return nil
		}
		problem := conflictOf(of.kind, key, finding{CauseAltered, fields}).Problem(types.UID(p.me))
		return &problem
	case class == apierrors.Conflict || apierrors.NamespaceEnds(err):
		return nil
	case apierrors.NotAllowed(err) || class == apierrors.NotFound && !namespaceMissing(err):
		why := err.Error()
		p.unasked.Store(&why)
		return nil
	case ctx.Err() != nil || !apierrors.Final(err):
		return fmt.Errorf("ask whether %s %s may be created: %w", of.kind.Name(), key, err)
	}
	problem := refusal(of.kind, key, err)
	return &problem
}
