package copier

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// Copy brings v3 to what v1 says: creates what is missing, repairs copies of ours that differ, removes
// copies of ours whose v1 object is gone, and reports foreign objects that differ. One object that
// fails does not stop the others. The error says that the copy is incomplete for a reason that is not
// an object's; call again. A second call writes nothing if nothing changed.
func (c *Copier) Copy(ctx context.Context, report Report) (Result, error) {
	kinds := c.reg.Kinds()
	totals, err := c.totals(ctx, kinds)
	if err != nil {
		return Result{}, err
	}
	notes := newNotebook(kinds, totals, report)
	run := &copying{writer: &writer{api: c.api, v1: c.Source, copies: c.Copies, notes: notes, deferOwners: c.deferOwners}, sides: c.sides,
		finished: newFinishLines(kinds), listers: make(chan struct{}, maxListers), queue: make(chan job)}
	if err = run.all(ctx, kinds); err == nil {
		notes.judgeUnmanaged()
		err = notes.judgeTerminating(ctx, c.Source)
	}
	notes.tracker.flush()
	return notes.result(), err
}

// copying is one Copy.
type copying struct {
	*writer
	sides    *sides
	finished finishLines
	listers  chan struct{} // of the kinds that are being listed
	queue    chan job      // without a buffer: a job that is in it is in a worker's hands
}

// kindRun is one kind in a Copy.
type kindRun struct {
	*pairs
	// jobs counts the objects that are queued or in work.
	jobs sync.WaitGroup
	// unreadable: there is an object whose v3 name is not known.
	unreadable atomic.Bool
}

// job is one object to copy. v1 is read by the worker if it is nil, and conv is its conversion.
type job struct {
	of   *kindRun
	key  client.ObjectKey
	v1   *unstructured.Unstructured
	conv *resources.Converted
}

// all feeds the objects of all kinds through one queue to the workers.
func (c *copying) all(ctx context.Context, kinds []*resources.Kind) error {
	g, ctx := errgroup.WithContext(ctx)
	var feeders sync.WaitGroup
	for _, kind := range kinds {
		feeders.Add(1)
		g.Go(func() error {
			defer feeders.Done()
			return c.feed(ctx, kind)
		})
	}
	g.Go(func() error {
		feeders.Wait()
		close(c.queue)
		return nil
	})
	for range workers {
		g.Go(func() error {
			for job := range c.queue {
				err := c.copy(ctx, &job)
				job.of.jobs.Done()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// feed waits for the kinds that must be there first, queues every object of its kind, and cleans up
// behind it.
func (c *copying) feed(ctx context.Context, kind *resources.Kind) error {
	if err := c.finished.await(ctx, kind.After()); err != nil {
		return err
	}
	of, err := c.enqueue(ctx, kind)
	if err != nil {
		return err
	}
	of.jobs.Wait()
	if err := ctx.Err(); err != nil {
		return err // a worker failed: what is left in the index was perhaps never looked at
	}
	if !of.unreadable.Load() {
		gone, err := c.copies.removeOrphans(ctx, kind, of.live.orphans())
		c.notes.tracker.deleted(kind, gone)
		if err != nil {
			return err
		}
		c.notes.onlyInV3.add(of.live.onlyInV3(kind)...)
	}
	c.sides.cache.keep(kind, of.proved)
	c.finished.done(kind)
	return nil
}

// enqueue lets the first object of a kind go alone: what the API server makes at its first sight of a kind, it makes
// for each request that comes meanwhile, once more for each. Where a MutatingAdmissionPolicy matches, as those of
// Calico do with policies, that is half a second of CPU a request (typeConverterManager of k8s.io/apiserver 0.36).
func (c *copying) enqueue(ctx context.Context, kind *resources.Kind) (*kindRun, error) {
	free, err := c.sides.turn(ctx, c.listers, kind)
	if err != nil {
		return nil, err
	}
	defer free()
	pairs, err := c.sides.of(ctx, kind)
	if err != nil {
		return nil, err
	}
	of := &kindRun{pairs: pairs}
	first := true
	put := func(j job) error {
		of.jobs.Add(1)
		select {
		case c.queue <- j:
			if first || kind.InOrder() { // what is created first is older
				of.jobs.Wait()
			}
			first = false
			return nil
		case <-ctx.Done():
			of.jobs.Done()
			return ctx.Err()
		}
	}
	return of, pairs.visit(ctx, true, visitor{
		proved: func(v1 *v1Object, key client.ObjectKey, live *entry, _ proof) error {
			return c.equal(v1.id, dependent{kind: kind, key: key, want: v1.owners, live: *live})
		},
		single: func(key client.ObjectKey) error { return put(job{of: of, key: key}) },
		whole:  func(v1 *unstructured.Unstructured) error { return put(job{of: of, v1: v1}) },
		seen:   true,
	})
}

// finishLines are a channel for each kind, which is closed when all its objects are done.
type finishLines map[string]chan struct{}

func newFinishLines(kinds []*resources.Kind) finishLines {
	lines := finishLines{}
	for _, kind := range kinds {
		lines[kind.Name()] = make(chan struct{})
	}
	return lines
}

func (f finishLines) done(kind *resources.Kind) { close(f[kind.Name()]) }

// await waits for these kinds. The lock is no kind that is copied.
func (f finishLines) await(ctx context.Context, kinds []string) error {
	for _, name := range kinds {
		line, copied := f[name]
		if !copied {
			continue
		}
		select {
		case <-line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
