package datastoremigration

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources/copier"
	"github.com/phasegate/phasegate/resources/inflight"
)

// DefaultRequestTimeout is kube-apiserver's own default (--request-timeout).
const DefaultRequestTimeout = time.Minute

// lateWrites looks for writes of v1 that were let in before the lock and land after both sides were compared: something
// between admission and etcd has held them. An API server answers each request within its --request-timeout, so what it
// answers as written is written by then. v3 is open meanwhile, and nobody waits for this but the migration itself.
type lateWrites struct {
	copiers

	door    *door
	timeout time.Duration
}

func (s *lateWrites) rights() []rbacv1.PolicyRule {
	return grants(onAPIService("get patch"), s.lists(), s.onV1CRDs("get"), s.onV3("get create patch delete"), s.onV3Status("patch"), s.onV3Finalizers())
}

// bring brings to v3 what has landed since the comparison, as often as the step runs, and a last time after the API
// servers have given up every request that was let in. How long that is, is counted by the clock of this process, from
// when it has seen first that both sides are equal: a clock that was set proves nothing, and a manager that has just
// started counts anew. Without an enforced lock it looks at nothing: v1 may be written as long as it is there.
func (s *lateWrites) bring(ctx context.Context, sc *scope) (outputs, error) {
	verified := sc.Object.Status.Verified
	if verified == nil || verified.Revision == 0 {
		return outputs{"watching": false, "conflicts": 0}, nil
	}
	over := sc.Clock.Since(s.caches.verified(sc.Object, verified.At, sc.Clock.Now())) >= s.timeout
	var late copier.Late
	err := s.door.mustReachV3(ctx, sc, func(version string) (err error) {
		late, err = s.copierOver(sc.Object, version).BringLate(inflight.WithLowPriority(ctx), verified)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(late.Brought) > 0 {
		sc.Warn("LateWrites", "%d writes of v1 were let in before the lock and landed after both sides were compared; they were brought to v3: %s",
			len(late.Brought), strings.Join(examples(late.Brought, asIs), "; "))
	}
	open := undecided(late)
	if len(open) > 0 && open.String() != sc.Object.Status.LateWrites.String() {
		sc.Warn("LateWritesConflict", "%d objects of v1 were written after both sides were compared, and cannot be brought to v3, which has something else: %s. Write in v3 what is to be in force, and set the annotation %s before the clean-up",
			len(open), strings.Join(examples(open, func(c migrationv1.Conflict) string { return migrationv1.Conflicts{c}.String() }), "; "), waiverFor(sc.Object, waiveV1Changed))
	}
	settled := over && !late.Changing
	sc.Report(func(dm *migration) {
		dm.Status.LateWrites = open
		if settled {
			dm.Status.Verified = verifiedToo(verified, late, len(open) == 0)
		}
	})
	return outputs{"watching": !settled, "conflicts": len(open)}, nil
}

// lateLength is how long the list of undecided objects may be on record.
const lateLength = 16 << 10

// undecided are the objects that a person has to look at, as many as can be on record.
func undecided(late copier.Late) (open migrationv1.Conflicts) {
	open = shownConflicts(late.Conflicts)
	for _, p := range late.Problems {
		open = append(open, migrationv1.Conflict{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Fields: []string{p.Message}})
	}
	slices.SortFunc(open, func(a, b migrationv1.Conflict) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for len(open) > migrationv1.MaxConflicts || len(open) > 1 && len(open.String()) > lateLength {
		open = open[:len(open)-1]
	}
	return open
}

// verifiedToo is what is verified now: of the kinds that were brought, what v1 has by now. The revision stays where a
// person has to decide: the clean-up names what was written since.
func verifiedToo(before *migrationv1.Verified, late copier.Late, all bool) *migrationv1.Verified {
	known, err := before.ByKind()
	if err != nil || len(late.Kinds) == 0 {
		return before
	}
	for _, kind := range late.Kinds {
		known[kind.Kind] = kind
	}
	next := &migrationv1.Verified{At: before.At, Revision: before.Revision, Digests: migrationv1.JoinDigests(slices.Collect(maps.Values(known)))}
	if all {
		next.Revision = int64(late.Revision)
	}
	return next
}
