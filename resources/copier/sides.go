package copier

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

// sides reads both sides.
type sides struct {
	*api
	me    owner
	v1    *Source
	cache *EqualityCache
}

// withoutSnapshot reads v1 as it is now.
func (s sides) withoutSnapshot() *sides {
	v1 := *s.v1
	v1.snapshot = nil
	s.v1 = &v1
	return &s
}

// pairs is a look at one kind on both sides.
type pairs struct {
	asker
	from *sides
	// live is v3. The object that was found for a v1 object is taken from it.
	live *index
	// known was proved by earlier looks, proved is for what this one proves; they may be the same.
	known, proved *proofs
}

func (s *sides) of(ctx context.Context, kind *resources.Kind) (*pairs, error) {
	schema, err := s.schema(ctx, kind)
	if err != nil {
		return nil, err
	}
	p := &pairs{asker: asker{s.api, rules{s.me, kind, schema}}, from: s, known: s.cache.of(kind, schema)}
	p.proved = p.known.next()
	return p, nil
}

// turn waits until a kind may be listed, by so many that listers takes. One that is watched has no pages: it waits for
// its barriers, and not for the lists of others.
func (s *sides) turn(ctx context.Context, listers chan struct{}, kind *resources.Kind) (free func(), err error) {
	if s.v1.watcher.kinds.of(kind) != nil {
		return func() {}, nil
	}
	select {
	case listers <- struct{}{}:
		return func() { <-listers }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// schema is that of v3 as it is now. With a snapshot it is what the last look saw: a Verify finds what has happened.
func (s *sides) schema(ctx context.Context, kind *resources.Kind) (*resources.Schema, error) {
	if _, taken := s.v1.snapshot.of(kind); taken {
		if last, known := s.cache.schemas.cached(kind.V3CRDName()); known {
			return last.schema, nil
		}
	}
	return s.cache.schemas.of(ctx, s.api, kind)
}

// visitor says what becomes of the v1 objects of a kind. Each is given to one of the three; they are called
// from one goroutine.
type visitor struct {
	// proved is for a v1 object of which it is proved that v3 holds the same, as key.
	proved func(v1 *v1Object, key client.ObjectKey, live *entry, p proof) error
	// single is for one of a few others, which are to be read one by one; see Source.read.
	single func(key client.ObjectKey) error
	// whole is for an object that was read already.
	whole func(v1 *unstructured.Unstructured) error
	// onlyPairs: nothing is to be given where v3 has no object.
	onlyPairs bool
	// seen: v3 may be taken as it was seen last.
	seen bool
}

// visit lists v3 into live, and then v1. Of what is proved it reads the metadata only. Without content live
// has no digests, whatever is read.
func (p *pairs) visit(ctx context.Context, content bool, v visitor) (err error) {
	known, _ := p.known.sizes()
	whole := known == 0 || p.kind.InOrder()
	if p.live, err = p.list(ctx, content && whole, v.seen); err != nil || v.onlyPairs && p.live.total() == 0 {
		return err
	}
	p.proved.saw(p.live.total())
	if whole {
		return p.from.v1.eachToCopy(ctx, p.kind, v.whole)
	}
	proved, open, err := p.filterProved(ctx, v)
	if err != nil {
		return err
	}
	if isFew(len(open), len(proved)) {
		return eachOf(open, func(key *client.ObjectKey) error { return v.single(*key) })
	}
	done := sets.New(proved...)
	if content {
		if err := p.fill(ctx); err != nil {
			return err
		}
	}
	return p.from.v1.EachV1(ctx, p.kind, func(v1 *unstructured.Unstructured) error {
		if done.Has(idOf(v1.GetUID())) {
			return nil
		}
		return v.whole(v1)
	})
}

// isFew: some objects of a kind are read faster one by one than in a list of all.
func isFew(some, others int) bool { return some <= 100 || some*10 <= some+others }

// lastSeen is what v3 was when it was looked at last, for UseSnapshot: nobody but us has written it since, and a
// Verify finds what has happened all the same. It is nil where v3 has to be listed.
func (p *pairs) lastSeen(content bool) *index {
	v1, taken := p.from.v1.snapshot.of(p.kind)
	watched := p.from.v1.watcher.kinds.of(p.kind)
	proved, v3 := p.known.sizes()
	switch {
	case !taken:
		return nil
	case len(v1) == 0 && v3 == 0 && proved == 0:
		return newIndex(nil)
	case !content && watched != nil && watched.v3.follows():
		return indexOf(watched.v3)
	}
	return nil
}

// list reads v3, unless what was seen last is good enough: whole objects, of which it keeps a digest, or the metadata.
func (p *pairs) list(ctx context.Context, content, seen bool) (*index, error) {
	if seen {
		if last := p.lastSeen(content); last != nil {
			return last, nil
		}
	}
	if watched := p.from.v1.watcher.kinds.of(p.kind); !content && watched != nil && watched.v3.pass(ctx) {
		return indexOf(watched.v3), nil
	}
	entries, of := map[client.ObjectKey]*entry{}, inV3(p.kind)
	var err error
	if content {
		err = p.eachObject(ctx, of, func(obj *unstructured.Unstructured) error {
			entries[client.ObjectKeyFromObject(obj)] = p.entryWithContent(obj)
			return nil
		})
	} else {
		err = p.eachMeta(ctx, of, func(obj *Meta) error {
			entries[client.ObjectKeyFromObject(obj)] = entryOf(p.me, obj)
			return nil
		})
	}
	return newIndex(entries), err
}

// filterProved hands over what is proved, and returns the UIDs of that, and the names of the other v1 objects.
func (p *pairs) filterProved(ctx context.Context, v visitor) (proved []rawUID, open []client.ObjectKey, err error) {
	var names map[rawUID]client.ObjectKey // of v3; nil as long as each is called as in v1
	p.live.proved = make([]client.ObjectKey, 0, len(p.live.entries))
	proved = make([]rawUID, 0, len(p.live.entries))
	err = p.from.v1.eachMetaToCopy(ctx, p.kind, func(v1 *v1Object) error {
		found, known := p.known.of(v1.id)
		key := v1.key
		live := p.live.entries[key]
		if known && (live == nil || live.id != found.v3) {
			if names == nil {
				names = p.live.names()
			}
			key = names[found.v3]
			live = p.live.entries[key]
		}
		if !known || v1.unreadable || !found.holds(v1.version, live) || !p.live.takeProved(key, v1.key.Name, names == nil) {
			open = append(open, v1.key)
			return nil
		}
		proved = append(proved, v1.id)
		if p.proved != p.known {
			p.proved.add(v1.id, found)
		}
		return v.proved(v1, key, live, found)
	})
	return proved, open, err
}

// fill reads the content of the v3 objects that are left in the index. One that has come since is not in
// it, as if it came later.
func (p *pairs) fill(ctx context.Context) error {
	p.live.settle()
	filled := maps.Clone(p.live.entries)
	err := p.eachObject(ctx, inV3(p.kind), func(obj *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(obj)
		_, taken := p.live.taken[key]
		if _, there := filled[key]; there && !taken {
			filled[key] = p.entryWithContent(obj)
		}
		return nil
	})
	p.live.entries = filled
	return err
}
