package datastoremigration

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/copier"
)

// watchSync watches large kinds from before the lock on.
type watchSync struct {
	copiers

	door *door
}

// Lists take the longer the more objects there are, and under the lock they would be most of
// it. So large kinds are watched from before the lock on. A watch says what has changed, and
// not that there is nothing more to come: that is known when it shows a write of our own, to an
// object of the same kind, which is called a barrier. Which kinds these are is on record with the
// state before the first one is written; the note goes with the fence.

// barrierKindsKey is where the state has the kinds, as v3 calls them and separated by commas,
// of which objects are written as barriers.
const barrierKindsKey = "barrierKinds"

// watchFrom is how many objects of a kind make it worth a watch where the machine does not say: fewer are
// listed within milliseconds.
const watchFrom = 300

// followRights: barriers are written on both sides. Copies may be patched by those who make them.
func (s *watchSync) followRights() []rbacv1.PolicyRule {
	var kinds []*resources.Kind
	for _, kind := range s.registry.Kinds() {
		if copier.MayWatch(kind) {
			kinds = append(kinds, kind)
		}
	}
	const verbs = "list watch patch"
	return grants(onAPIService("get"), allOf(verbs, resources.V1Group, kinds, (*resources.Kind).V1Plural), allOf(verbs, resources.V3Group, kinds, (*resources.Kind).V3Plural))
}

// follow watches the large kinds from now on, if they are copied ahead. What cannot be watched is
// listed. Kinds that are on record from an earlier try are watched again.
func (s *watchSync) follow(ctx context.Context, sc *scope) error {
	if !isAhead(sc) {
		return nil
	}
	version, blocked, err := s.door.v3Version(ctx, sc.Machine, sc.Object)
	if err != nil || blocked != "" {
		return err
	}
	c := s.copierOver(sc.Object, version)
	kinds := s.barrierKinds(sc.Saved(barrierKindsKey))
	if len(kinds) == 0 {
		if kinds, err = s.planBarriers(ctx, sc, c); err != nil {
			return err
		}
	}
	if err := c.Watch(ctx, kinds); err != nil && ctx.Err() == nil {
		sc.Warn("NotWatched", "some kinds are listed under the lock, which takes longer: %v", err)
	}
	return ctx.Err()
}

// planBarriers chooses the kinds of which an object will be written, and puts them on record.
func (s *watchSync) planBarriers(ctx context.Context, sc *scope, c *copier.Copier) ([]*resources.Kind, error) {
	kinds, err := c.LargeKinds(ctx, int64(sc.With.Int("watchFrom", watchFrom)))
	if err != nil || len(kinds) == 0 {
		return nil, err
	}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.Name()
	}
	return kinds, sc.Save(ctx, barrierKindsKey, strings.Join(names, ","))
}

// barrierKinds reads what planBarriers has noted. A kind that the registry does not have is none of which we
// would write an object.
func (s *watchSync) barrierKinds(saved string) (kinds []*resources.Kind) {
	for name := range strings.SplitSeq(saved, ",") {
		if kind, known := s.registry.Kind(strings.TrimSpace(name)); known {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// liftBarriers takes our notes off v1; those in v3 go with the copies, or with the other notes on them.
func (s *watchSync) liftBarriers(ctx context.Context, sc *scope) error {
	kinds := s.barrierKinds(sc.Saved(barrierKindsKey))
	if len(kinds) == 0 && wasLost(sc.Object) { // then it may be any
		kinds = slices.DeleteFunc(slices.Clone(s.registry.Kinds()), func(kind *resources.Kind) bool { return !copier.MayWatch(kind) })
	}
	if len(kinds) == 0 {
		return nil
	}
	if err := s.copier(sc.Object).LiftBarriers(ctx, kinds); err != nil {
		return err
	}
	return sc.Save(ctx, barrierKindsKey, "")
}
