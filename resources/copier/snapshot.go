package copier

import (
	"context"
	"sync"

	"github.com/phasegate/phasegate/resources"
)

// Snapshot is what v1 was when it was looked at last. It is for the time in which nobody writes v1: ChangedSince
// proves that, and with UseSnapshot a Copier relies on the lists that proved it. It is kept in an EqualityCache.
type Snapshot struct {
	v1   *Source // as it is now
	seen *snapshots
}

// Take notes where these kinds of v1 stand now, the lock's too, for ChangedSince.
func (s *Snapshot) Take(ctx context.Context, kinds []*resources.Kind) error {
	return eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		now, err := s.v1.moment(ctx, kind)
		if err == nil {
			s.seen.replace(kind, v1List{moment: now}, false)
		}
		return err
	})
}

// ChangedSince reads the metadata of these kinds of v1, the lock's too, and returns those in which something was
// written since the last Take or ChangedSince: a version is newer than the storage was then, or there are more or
// fewer objects. Where neither is so, the list is the one that would have been seen then. The lists are kept
// for UseSnapshot. A watch that has lost an event is found out, too: the next look lists the kind.
func (s *Snapshot) ChangedSince(ctx context.Context, kinds []*resources.Kind) ([]*resources.Kind, error) {
	var changed gathered[*resources.Kind]
	err := eachKind(ctx, kinds, func(ctx context.Context, kind *resources.Kind) error {
		now, err := s.v1.now(ctx, kind)
		if err != nil {
			return err
		}
		before := s.seen.replace(kind, now, true)
		if now.newest > before.revision || now.objects != before.objects {
			changed.add(kind)
		}
		if now.objects != before.objects {
			return s.v1.recount(ctx, kind, now.objects)
		}
		return nil
	})
	return changed.all, err
}

// Invalidate drops the lists of the kinds of these v1 objects: we are about to write them, and what is copied has to
// know their versions from then on. It may be called again.
func (s *Snapshot) Invalidate(objs []*Meta) {
	written := map[string]bool{}
	for _, obj := range objs {
		written[obj.Kind] = true
	}
	for _, kind := range s.v1.reg.Kinds() {
		if written[kind.V1GVK().Kind] {
			s.seen.drop(kind)
		}
	}
}

// snapshots is what is kept of a Snapshot, by kind. Without one there is no list.
type snapshots struct {
	mu      sync.Mutex
	moments map[string]moment
	lists   map[string][]*v1Object
}

// of is what the last ChangedSince has listed of a kind.
func (s *snapshots) of(kind *resources.Kind) (list []*v1Object, taken bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, taken = s.lists[kind.Name()]
	return list, taken
}

// replace notes where a kind stands, and returns what was known.
func (s *snapshots) replace(kind *resources.Kind, now v1List, listed bool) (before moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.moments[kind.Name()]
	s.moments[kind.Name()] = now.moment
	delete(s.lists, kind.Name())
	if listed {
		s.lists[kind.Name()] = now.all
	}
	return before
}

func (s *snapshots) drop(kind *resources.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lists, kind.Name())
}
