package copier

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// known was proved by earlier looks, proved by this one.
	known, proved *proofs
}

func (s *sides) of(ctx context.Context, kind *resources.Kind) (*pairs, error) {
	schema, err := s.cache.schemas.of(ctx, s.api, kind)
	if err != nil {
		return nil, err
	}
	return &pairs{asker: asker{s.api, rules{s.me, kind, schema}}, from: s, known: s.cache.of(kind, schema), proved: newProofs(schema)}, nil
}

// visitor says what becomes of the v1 objects of a kind. Each is given to one of the three; they are called
// from one goroutine.
type visitor struct {
	// proved is for a v1 object of which it is proved that v3 holds the same, as key.
	proved func(v1 v1Object, key client.ObjectKey, live entry, p proof) error
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
	whole := len(p.known.by) == 0 || p.kind.InOrder()
	if p.live, err = p.list(ctx, content && whole, v.seen); err != nil || v.onlyPairs && p.live.total == 0 {
		return err
	}
	p.proved.v3 = p.live.total
	if whole {
		return p.from.v1.eachToCopy(ctx, p.kind, v.whole)
	}
	open, err := p.filterProved(ctx, v)
	if err != nil {
		return err
	}
	if isFew(len(open), len(p.proved.by)) {
		return eachOf(open, func(key *client.ObjectKey) error { return v.single(*key) })
	}
	if content {
		if err := p.fill(ctx); err != nil {
			return err
		}
	}
	return p.from.v1.EachV1(ctx, p.kind, func(v1 *unstructured.Unstructured) error {
		id, _ := resources.ParseUID(v1.GetUID()) // of zero nothing is proved
		if _, done := p.proved.of(id); done {
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
	switch {
	case !taken:
		return nil
	case len(v1) == 0 && p.known.v3 == 0 && len(p.known.by) == 0:
		return newIndex(0)
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
	idx, of := newIndex(0), inV3(p.kind)
	var err error
	if content {
		err = p.eachObject(ctx, of, func(obj *unstructured.Unstructured) error {
			idx.put(client.ObjectKeyFromObject(obj), p.entryWithContent(obj))
			return nil
		})
	} else {
		err = p.eachMeta(ctx, of, func(obj *Meta) error {
			idx.put(client.ObjectKeyFromObject(obj), entryOf(p.me, obj))
			return nil
		})
	}
	idx.total = int64(len(idx.entries))
	return idx, err
}

// filterProved hands over what is proved, and returns the names of the other v1 objects.
func (p *pairs) filterProved(ctx context.Context, v visitor) (open []client.ObjectKey, err error) {
	names := p.live.names()
	err = p.from.v1.eachMetaToCopy(ctx, p.kind, func(v1 v1Object) error {
		id, _ := resources.ParseUID(v1.uid)
		found, known := p.known.of(id)
		key := names[found.v3]
		live := p.live.at(key)
		if !known || v1.unreadable || !found.holds(v1.version, live) {
			open = append(open, v1.key)
			return nil
		}
		p.live.take(key)
		p.proved.add(id, found)
		return v.proved(v1, key, live, found)
	})
	return open, err
}

// fill reads the content of the v3 objects that are left in the index. One that has come since is not in
// it, as if it came later.
func (p *pairs) fill(ctx context.Context) error {
	return p.eachObject(ctx, inV3(p.kind), func(obj *unstructured.Unstructured) error {
		key := client.ObjectKeyFromObject(obj)
		if _, left := p.live.entries[key]; left {
			p.live.put(key, p.entryWithContent(obj))
		}
		return nil
	})
}
