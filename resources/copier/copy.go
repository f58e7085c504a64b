package copier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

const (
	// maxListers bounds the pages in memory: one per kind that is being listed.
	maxListers = 4
	// maxRaces bounds how often one object may change or vanish under our hands.
	maxRaces = 5
)

// Copy brings v3 to what v1 says: creates what is missing, repairs copies of ours that differ, removes
// copies of ours whose v1 object is gone, and reports foreign objects that differ. One object that
// fails does not stop the others. The error tells that the copy is incomplete for a reason that is not
// an object's; call again. A second call writes nothing if nothing changed.
func (c *Copier) Copy(ctx context.Context, report Report) (Result, error) {
	run, err := c.newRun(ctx, report)
	if err != nil {
		return Result{}, err
	}
	if err = run.work(ctx); err == nil {
		run.judgeAdopted()
		err = run.judgeLeaving(ctx)
	}
	run.tracker.flush()
	return run.result(), err
}

// run is the notebook of one Copy.
type run struct {
	*Copier
	tracker  *tracker
	owners   *ownerMap
	finished map[string]chan struct{}

	mu        sync.Mutex
	conflicts []Conflict
	rejected  []resources.Problem
	deferred  int64
	adopted   []dependent // foreign, and equal but for owners in Calico, as far as these were known
	altered   []Conflict
	skipped   []Skipped
	onlyInV3  []resources.Problem
	leaving   leaving
}

// kindRun is the notebook of one kind in a run.
type kindRun struct {
	*pairs
	// jobs counts the objects that are queued or in work.
	jobs sync.WaitGroup
	// unreadable is set by a worker for an object whose v3 name is not known; mu of the run guards it.
	unreadable bool
}

// job is one object to copy. v1 is read by the worker if it is nil, and conv is its conversion.
type job struct {
	of   *kindRun
	key  client.ObjectKey
	v1   *unstructured.Unstructured
	conv *resources.Converted
}

func (c *Copier) newRun(ctx context.Context, report Report) (*run, error) {
	kinds := c.reg.Kinds()
	totals, err := c.totals(ctx, kinds)
	if err != nil {
		return nil, err
	}
	return &run{Copier: c, tracker: newTracker(kinds, totals, report), owners: newOwnerMap(), finished: finishLines(kinds), leaving: leaving{}}, nil
}

// finishLines are a channel for each kind, to be closed when all its objects are done.
func finishLines(kinds []*resources.Kind) map[string]chan struct{} {
	lines := map[string]chan struct{}{}
	for _, kind := range kinds {
		lines[kind.Name()] = make(chan struct{})
	}
	return lines
}

// Objects is how many objects of all kinds there are to migrate. It asks, and lists nothing but where a kind has a
// selector.
func (c *Copier) Objects(ctx context.Context) (all int64, err error) {
	totals, err := c.totals(ctx, c.reg.Kinds())
	for _, n := range totals {
		all += n
	}
	return all, err
}

// totals asks all kinds at once: the answers are small.
func (c *Copier) totals(ctx context.Context, kinds []*resources.Kind) ([]int64, error) {
	totals := make([]int64, len(kinds))
	g, ctx := errgroup.WithContext(ctx)
	for i, kind := range kinds {
		g.Go(func() error {
			if list, listed := c.snapshotOf(kind); listed {
				totals[i] = int64(len(list))
				return nil
			}
			now, err := c.momentOf(ctx, kind)
			totals[i] = now.objects
			return err
		})
	}
	return totals, g.Wait()
}

// work feeds the objects of all kinds through one queue to the workers.
func (r *run) work(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan job) // without a buffer: a job that is in it is in a worker's hands
	listers := make(chan struct{}, maxListers)

	var feeders sync.WaitGroup
	for _, kind := range r.reg.Kinds() {
		feeders.Add(1)
		g.Go(func() error {
			defer feeders.Done()
			return r.feed(ctx, kind, listers, queue)
		})
	}
	g.Go(func() error {
		feeders.Wait()
		close(queue)
		return nil
	})
	for range workers {
		g.Go(func() error {
			for job := range queue {
				err := r.copyOne(ctx, &job)
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
func (r *run) feed(ctx context.Context, kind *resources.Kind, listers chan struct{}, queue chan<- job) error {
	for _, first := range kind.After() {
		if err := await(ctx, r.finished[first]); err != nil {
			return err
		}
	}
	of, err := r.enqueue(ctx, kind, listers, queue)
	if err != nil {
		return err
	}
	of.jobs.Wait()
	if err := ctx.Err(); err != nil {
		return err // a worker failed: what is left in the index was perhaps never looked at
	}
	if !of.unreadable {
		if err := r.removeOrphans(ctx, of); err != nil {
			return err
		}
		r.mu.Lock()
		r.onlyInV3 = append(r.onlyInV3, of.live.onlyInV3(kind)...)
		r.mu.Unlock()
	}
	r.cache.keep(kind, of.proved)
	close(r.finished[kind.Name()])
	return nil
}

// enqueue lets the first object of a kind go alone: what the API server makes at its first sight of a kind, it makes
// for each request that comes meanwhile, once more for each. Where a MutatingAdmissionPolicy matches, as those of
// Calico do with policies, that is half a second of CPU a request (typeConverterManager of k8s.io/apiserver 0.36).
func (r *run) enqueue(ctx context.Context, kind *resources.Kind, listers chan struct{}, queue chan<- job) (*kindRun, error) {
	select {
	case listers <- struct{}{}:
		defer func() { <-listers }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pairs, err := r.newPairs(ctx, kind)
	if err != nil {
		return nil, err
	}
	of := &kindRun{pairs: pairs}
	first := true
	put := func(j job) error {
		of.jobs.Add(1)
		select {
		case queue <- j:
			if first || kind.InOrder() { // who is created first is older
				of.jobs.Wait()
			}
			first = false
			return nil
		case <-ctx.Done():
			of.jobs.Done()
			return ctx.Err()
		}
	}
	return of, r.visit(ctx, pairs, true, visitor{
		proved: func(v1 v1Object, key client.ObjectKey, live entry, _ proof) error {
			r.equal(kind, key, live.ours)
			return r.landed(v1.uid, dependent{kind: kind, key: key, want: v1.owners, live: live})
		},
		single: func(key client.ObjectKey) error { return put(job{of: of, key: key}) },
		whole:  func(v1 *unstructured.Unstructured) error { return put(job{of: of, v1: v1}) },
		seen:   true,
	})
}

func await(ctx context.Context, done <-chan struct{}) error {
	if done == nil {
		return nil // the lock is no kind that is copied
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyOne returns an error only if the whole copy must stop.
func (r *run) copyOne(ctx context.Context, j *job) (err error) {
	of := j.of
	if j.v1 == nil {
		if j.v1, err = r.readV1(ctx, of.kind, j.key); err != nil || j.v1 == nil {
			return err
		}
	}
	conv, err := resources.Convert(of.kind, j.v1, of.schema)
	var problem *resources.Problem
	if errors.As(err, &problem) {
		r.reject(of, *problem)
		r.mu.Lock()
		of.unreadable = true
		r.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	if conv.Terminating { // its copy, if there is one, is left for removeStrays
		r.leave(of.kind, j.v1)
		return nil
	}
	want := conv.Object
	key := client.ObjectKeyFromObject(want)
	there, known := of.live.take(key)
	j.conv = conv
	if known && there.equals(of.pairs, conv) {
		r.prove(j, there.uid, there.version)
		r.equal(of.kind, key, there.ours)
		return r.landed(conv.V1UID, dependent{kind: of.kind, key: key, want: conv.Owners, live: there})
	}
	resolved, unknown := r.ownersNow(conv.Owners)
	setOwners(want, append(want.GetOwnerReferences(), resolved...))
	r.mark(want, conv, len(unknown) == 0)
	return r.write(ctx, j, known)
}

// ownersNow are the owners in Calico that a copy may have already.
func (r *run) ownersNow(refs []metav1.OwnerReference) (resolved, unknown []metav1.OwnerReference) {
	if r.deferOwners {
		return nil, refs
	}
	return r.owners.resolve(refs)
}

// prove notes that the v3 object is equal, by its content, to what the v1 object of the job becomes.
func (r *run) prove(j *job, uid types.UID, version uint64) {
	if r.cache != nil {
		j.of.proved.prove(j.conv, v1Digest(j.of.kind, j.v1), uid, version)
	}
}

func (r *run) reject(of *kindRun, problem resources.Problem) {
	r.mu.Lock()
	r.rejected = append(r.rejected, problem)
	r.mu.Unlock()
	r.tracker.rejected(of.kind, problem)
}

func (r *run) conflict(of *kindRun, live *unstructured.Unstructured, cause Cause, diffs []resources.FieldDiff) {
	r.mu.Lock()
	r.conflicts = append(r.conflicts, Conflict{
		Kind: of.kind.Name(), Namespace: live.GetNamespace(), Name: live.GetName(), Cause: cause, Fields: diffs,
	})
	r.mu.Unlock()
	r.tracker.done(of.kind, conflicted)
}

// removeOrphans deletes copies of ours whose v1 object went away since they were made, or is being deleted; but
// not with its CRD.
func (r *run) removeOrphans(ctx context.Context, of *kindRun) error {
	strays := of.live.orphans()
	if len(strays) == 0 {
		return nil
	}
	crd, err := r.standingV1(ctx, of.kind)
	if err != nil {
		return err
	}
	for _, key := range strays {
		gone, err := r.removeOrphan(ctx, of.kind, key, crd)
		if err != nil {
			return fmt.Errorf("delete %s %s, which is gone from v1: %w", of.kind.Name(), key, err)
		}
		if gone == deleted {
			r.tracker.deleted(of.kind)
		}
	}
	return nil
}

func (r *run) removeOrphan(ctx context.Context, kind *resources.Kind, key client.ObjectKey, crd *metav1.PartialObjectMetadata) (deleteResult, error) {
	seen, err := r.getMetadata(ctx, kind, key)
	switch {
	case apierrors.Classify(err) == apierrors.NotFound:
		return absent, nil
	case err != nil:
		return "", err
	}
	if err := r.outlives(kind, seen, crd); err != nil {
		return "", err
	}
	return r.remove(ctx, kind, key, seen)
}

// result sorts what the workers found in any order.
func (r *run) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.conflicts, compareConflicts)
	slices.SortFunc(r.rejected, compareProblems)
	slices.SortFunc(r.altered, compareConflicts)
	slices.SortFunc(r.skipped, compareSkipped)
	slices.SortFunc(r.onlyInV3, compareProblems)
	return Result{Progress: r.tracker.snapshot(), Conflicts: r.conflicts, Rejected: r.rejected, Skipped: r.skipped, Altered: r.altered,
		OnlyInV3: r.onlyInV3, Deferred: r.deferred}
}

func compareConflicts(a, b Conflict) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name}, []string{b.Kind, b.Namespace, b.Name})
}

func compareProblems(a, b resources.Problem) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name}, []string{b.Kind, b.Namespace, b.Name})
}
