package copier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// kindComparer compares one kind.
type kindComparer struct {
	*pairs
	all *comparer
	// mismatches are the v1 objects whose digest differs from that of the v3 object, or whose status is
	// missing, and those whose v3 object was not read yet.
	mismatches map[client.ObjectKey]mismatch

	mu     sync.Mutex
	counts KindVerification
	sum    kindDigest // of what v1 has, without the altered
}

// vanished is said of an object that was in the index.
const vanished = "vanished from v3 a moment ago"

type mismatch struct {
	*resources.Converted
	digest digest
}

func (k *kindComparer) compareBoth(ctx context.Context) error {
	var singles []client.ObjectKey
	err := k.visit(ctx, k.all.content, visitor{
		proved: func(v1 *v1Object, key client.ObjectKey, live *entry, p proof) error {
			k.counts.V1++
			k.sum.add(p.digest)
			k.same(key, live.ours)
			return k.depends(v1.id, dependent{kind: k.kind, key: key, content: v1.content, want: v1.owners, live: *live, proved: true})
		},
		single: func(key client.ObjectKey) error {
			singles = append(singles, key)
			return nil
		},
		whole:     k.one,
		onlyPairs: k.all.onlyPairs,
	})
	if err != nil {
		return err
	}
	if err := k.each(ctx, singles); err != nil {
		return err
	}
	return k.confirm(ctx)
}

// each reads a few v1 objects, and looks at them.
func (k *kindComparer) each(ctx context.Context, keys []client.ObjectKey) error {
	var mu sync.Mutex
	g, ctx := crew(ctx)
	for _, key := range keys {
		g.Go(func() error {
			v1, err := k.from.v1.read(ctx, k.kind, key)
			if err != nil || v1 == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			return k.one(v1)
		})
	}
	return g.Wait()
}

// one looks at one v1 object. An object that cannot be converted is an error: nothing can be said about
// its copy.
func (k *kindComparer) one(v1 *unstructured.Unstructured) error {
	conv, err := resources.Convert(k.kind, v1, k.schema)
	if err != nil {
		return err
	}
	if conv.Terminating {
		return nil // a copy of it is an orphan
	}
	key := client.ObjectKeyFromObject(conv.Object)
	live, other := k.live.take(key, v1.GetName())
	var sum digest
	if k.all.content {
		sum = v1Digest(k.kind, v1)
		k.sum.add(sum)
	}
	k.counts.V1++
	switch {
	case other != "":
		k.all.missing.add(collision(k.kind, v1, other, key.Name))
		return nil
	case live == nil:
		k.missing(client.ObjectKeyFromObject(v1), fmt.Sprintf("is not in v3 as %q", key.Name))
		return nil
	}
	if err := k.depends(idOf(conv.V1UID), dependent{kind: k.kind, key: key, content: conv.V1Content, want: conv.Owners, live: *live}); err != nil {
		return err
	}
	switch {
	case !k.all.content:
	case k.equals(live, conv):
		k.same(key, live.ours)
		k.proved.prove(conv, sum, live.uid, live.version)
	default:
		k.mismatches[key] = mismatch{conv, sum}
	}
	return nil
}

// depends notes where a v1 object is in v3, and the object if owners in Calico are to be looked at.
func (k *kindComparer) depends(v1 rawUID, d dependent) error {
	d.live.owners, _ = resources.SplitOwners(d.live.owners)
	if len(d.live.owners) > 0 || len(d.want) > 0 {
		k.all.dependents.add(d)
	}
	return k.all.owners.record(v1, k.kind, d.key.Name, &d.live)
}

// confirm reads v3 once more where anything differed, and finds out why each does. What has become equal,
// or has vanished, since the first list counts as it is now.
func (k *kindComparer) confirm(ctx context.Context) error {
	if len(k.mismatches) == 0 {
		return nil
	}
	g, ctx := crew(ctx)
	if isFew(len(k.mismatches), int(k.counts.Same)) {
		for key, conv := range k.mismatches {
			g.Go(func() error { return k.examine(ctx, conv, key, nil) })
		}
		return g.Wait()
	}
	err := finish(g, k.eachObject(ctx, inV3(k.kind), func(live *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(live)
		if conv, ok := k.mismatches[key]; ok {
			delete(k.mismatches, key)
			g.Go(func() error { return k.examine(ctx, conv, key, live) })
		}
		return ctx.Err()
	}))
	if err != nil {
		return err
	}
	for key := range k.mismatches {
		k.missing(key, vanished)
	}
	return nil
}

// examine looks at a v3 object that seemed to differ until it stands still. live is read if it is nil.
func (k *kindComparer) examine(ctx context.Context, conv mismatch, key client.ObjectKey, live *unstructured.Unstructured) (err error) {
	for range maxRaces {
		if live == nil {
			live, err = k.get(ctx, k.kind.V3GVK(), key)
		}
		if apierrors.Classify(err) == apierrors.NotFound {
			k.missing(key, vanished)
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s %s: %w", k.kind.Name(), key, err)
		}
		found, err := k.difference(ctx, conv.Converted, live)
		if err == nil && found.cause == "" {
			found, err = k.statusDifference(ctx, conv.Converted, live)
		}
		if !errors.Is(err, errChanged) {
			if err == nil {
				k.note(conv, key, live, found)
			}
			return err
		}
		live = nil
	}
	return fmt.Errorf("%s %s: changed %d times while it was compared", k.kind.Name(), key, maxRaces)
}

func (k *kindComparer) note(conv mismatch, key client.ObjectKey, live *unstructured.Unstructured, found finding) {
	if found.cause != "" && found.cause != CauseAltered {
		k.all.different.add(conflictOf(k.kind, key, found))
		return
	}
	if k.isEqual(conv.Converted, live) {
		k.proved.prove(conv.Converted, conv.digest, live.GetUID(), parseVersion(live.GetResourceVersion()))
	} else if altered := k.altered(conv.Converted, live); len(altered.fields) > 0 {
		k.all.altered.add(conflictOf(k.kind, key, altered))
		k.mu.Lock()
		defer k.mu.Unlock()
		k.counts.Altered++
		k.sum.remove(conv.digest)
		return
	}
	k.same(key, k.me.has(live))
}

// same counts an object that both sides have.
func (k *kindComparer) same(key client.ObjectKey, ours bool) {
	k.mu.Lock()
	k.counts.Same++
	k.mu.Unlock()
	if !ours {
		k.all.unmanaged.add(dependent{kind: k.kind, key: key}.skipped())
	}
}

func (k *kindComparer) missing(key client.ObjectKey, message string) {
	k.all.missing.add(problemOf(k.kind, key, resources.ReasonMissing, message, "copying again creates it"))
}
