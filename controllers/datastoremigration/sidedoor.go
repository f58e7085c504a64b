package datastoremigration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/datastoremigration/sidedoor"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// door is the side door: a second served version of each v3 CRD, by which v3's storage can be written while the
// aggregated API server owns v3. Each CRD bears the UID of the migration; a crash leaves some open, and to close looks
// at all. People see status.copyAhead, which is Refused where there is none.
type door struct {
	copiers

	takeover *apiServiceTakeover
	quota    *etcdQuota
}

const (
	// doorTries is how often a door that somebody shuts is opened again.
	doorTries = 3
	// doorServed is how long the API server may take to serve a version that it has accepted.
	doorServed = 10 * time.Second
	doorPoll   = 200 * time.Millisecond
	// doorsAtATime are awaited: more would leave no CPU for anybody else.
	doorsAtATime = 2
)

// openSideDoor adds a served version to every v3 CRD, through which v3's storage can be
// written while the aggregated API server owns v3. Where v3 is served from its CRDs already, v3
// itself is the way. Where neither is to be had, everything is copied under the lock, and the
// status says so before.
func (s *door) openSideDoor(ctx context.Context, sc *scope) (outputs, error) {
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	refusal := ""
	if isAggregated(svc) {
		if refusal, err = s.open(ctx, sc); err != nil {
			return nil, err
		}
	}
	if refusal != "" {
		refuseAhead(sc, refusal)
		return outputs{"sideDoor": false}, nil
	}
	sc.Report(func(dm *migration) {
		if dm.Status.CopyAhead == nil || dm.Status.CopyAhead.State != migrationv1.CopyAheadOpen {
			dm.Status.CopyAhead = &migrationv1.CopyAhead{State: migrationv1.CopyAheadOpen}
		}
	})
	return outputs{"sideDoor": true}, nil
}

// refuseAhead says that what is not copied yet is copied under the lock.
func refuseAhead(sc *scope, why string) {
	sc.Report(func(dm *migration) {
		dm.Status.CopyAhead = &migrationv1.CopyAhead{State: migrationv1.CopyAheadRefused,
			Message: v1alpha1.Shorten("objects are copied under the lock, which takes longer: "+why, migrationv1.MaxMessageLength)}
	})
}

// open opens all doors and waits until every kind answers through its own. refusal is why that
// cannot be had.
func (s *door) open(ctx context.Context, sc *scope) (refusal string, err error) {
	for range doorTries {
		if refusal, err = s.openCRDs(ctx, sc.Object.UID); err != nil || refusal != "" {
			return refusal, err
		}
		if err = s.awaitDoor(ctx, sc); !isWait(err) {
			return "", err
		}
	}
	return fmt.Sprintf("version %s is taken out of the v3 CRDs, or not served, again and again", migrationv1.SideDoorVersion), nil
}

// openCRDs opens one door after the other, as they are closed: for each, the API
// server compiles all rules of a schema, and all at once would leave no CPU for anybody else.
// One that fails does not keep the others closed, so that a storm of errors is passed through.
// What it has opened when it is refused stays open: closeSideDoor is next.
func (s *door) openCRDs(ctx context.Context, by types.UID) (string, error) {
	var failed error
	for _, kind := range s.registry.All() {
		refusal := ""
		err := sidedoor.Change(ctx, s.client, kind.V3CRDName(), func(crd *apiextensionsv1.CustomResourceDefinition) (ops []sidedoor.Op) {
			ops, refusal = sidedoor.Open(crd, by)
			return ops
		})
		switch apierrors.Classify(err) {
		case apierrors.Forbidden, apierrors.Invalid, apierrors.NotFound, apierrors.Terminal:
			if ctx.Err() == nil {
				refusal, err = err.Error(), nil
			}
		}
		if refusal != "" {
			return fmt.Sprintf("CRD %s %s", kind.V3CRDName(), refusal), nil
		}
		failed = cmp.Or(failed, err)
	}
	return "", failed
}

// awaitDoor asks every kind, because the API server starts the storage of each at the first
// request for it. The error is that of a kind that has not answered in time, or whose door has
// been shut: waiting for that would be in vain.
func (s *door) awaitDoor(ctx context.Context, sc *scope) error {
	end := sc.Clock.Now().Add(doorServed)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(doorsAtATime)
	for _, kind := range s.registry.Through(migrationv1.SideDoorVersion).All() {
		group.Go(func() error { return s.awaitKind(ctx, sc, kind, end) })
	}
	return group.Wait()
}

func (s *door) awaitKind(ctx context.Context, sc *scope, kind *resources.Kind, end time.Time) error {
	for {
		err := served(ctx, s.client, kind)
		if err == nil || !isWait(err) || sc.Clock.Now().After(end) {
			return err
		}
		if shut, failed := s.isShut(ctx, kind); shut || failed != nil {
			return cmp.Or(failed, err)
		}
		if err := sleep(ctx, sc.Clock, doorPoll); err != nil {
			return err
		}
	}
}

func (s *door) isShut(ctx context.Context, kind *resources.Kind) (bool, error) {
	crd, err := s.crd(ctx, kind.V3CRDName())
	return err == nil && (crd == nil || !sidedoor.Has(crd)), err
}

func isWait(err error) bool {
	_, waits := errors.AsType[*fsm.WaitError](err)
	return waits
}

// closeSideDoor takes out of the CRDs what openSideDoor has put there for this migration. One
// that fails, again and again perhaps, does not keep the others open.
func (s *door) closeSideDoor(ctx context.Context, sc *scope) (outputs, error) {
	if err := s.retireDoor(ctx, sc); err != nil {
		return nil, err
	}
	var failed error
	for _, kind := range s.registry.All() {
		err := sidedoor.Change(ctx, s.client, kind.V3CRDName(), func(crd *apiextensionsv1.CustomResourceDefinition) []sidedoor.Op {
			return sidedoor.Close(crd, sc.Object.UID)
		})
		if err != nil && apierrors.Classify(err) != apierrors.NotFound {
			failed = cmp.Or(failed, fmt.Errorf("take version %s out of CRD %s: %w", migrationv1.SideDoorVersion, kind.V3CRDName(), err))
		}
	}
	return nil, failed
}

// overV3 lets do work with v3's storage through the version by which it can be reached now:
// v3 itself, or the side door, which it opens again where somebody has shut it. do may be
// called several times. blocked is why v3 cannot be reached; do has not come to its end then.
func (s *door) overV3(ctx context.Context, sc *scope, do func(version string) error) (blocked string, err error) {
	version, blocked, err := s.v3Version(ctx, sc.Machine, sc.Object)
	if err != nil || blocked != "" {
		return blocked, err
	}
	if version == resources.V3Version {
		return "", do(version)
	}
	for range doorTries {
		err := do(migrationv1.SideDoorVersion)
		if apierrors.Classify(err) != apierrors.NotFound {
			return "", err
		}
		if blocked, err = s.open(ctx, sc); err != nil || blocked != "" {
			return blocked, err
		}
	}
	return fmt.Sprintf("version %s is taken out of the v3 CRDs again and again", migrationv1.SideDoorVersion), nil
}

// v3Version is the version by which v3's storage can be reached now, or why it cannot be.
func (s *door) v3Version(ctx context.Context, m *fsm.Machine, dm *migration) (version, blocked string, err error) {
	svc, err := s.apiService(ctx)
	switch {
	case err != nil:
		return "", "", err
	case !isAggregated(svc):
		return resources.V3Version, "", nil
	case !m.Holds(&dm.Status.Machine, OpenDoorAction):
		return "", "the aggregated API server serves v3", nil
	}
	return migrationv1.SideDoorVersion, "", nil
}

// mustReachV3 is overV3 for what releases. Where v3 is out of reach it waits: while the
// APIService is disabled, for the CRDs to serve v3; else for a side door, because what was
// copied ahead hurts nobody, and the APIService is not to be touched while owners are in place.
func (s *door) mustReachV3(ctx context.Context, sc *scope, do func(version string) error) error {
	blocked, err := s.overV3(ctx, sc, do)
	if blocked == "" || err != nil {
		return err
	}
	return cmp.Or(s.takeover.staysDisabled(ctx, sc), fsm.Wait("what was copied ahead is still in v3 and out of reach: %s", blocked))
}

// CopyAheadCheck is the id of the check that finds why everything would be copied under the
// lock.
const CopyAheadCheck = "copy-ahead"

// canCopyAhead warns of what will make the lock last as long as the copy.
func (s *door) canCopyAhead(all []rbac.Need) check.Check {
	return check.Check{ID: CopyAheadCheck, Title: "objects can be copied before v1 is locked", Run: func(ctx context.Context) ([]check.Finding, error) {
		finding := func(why, remedy string) []check.Finding {
			return []check.Finding{{Level: check.Warning, Message: "v1 will stay locked while all objects are copied: " + why, Remedy: remedy}}
		}
		svc, err := s.apiService(ctx)
		if err != nil || !isAggregated(svc) {
			return nil, err // v3 itself is the way
		}
		needs, _ := rbac.Only(all, OpenDoorAction, CloseDoorAction)
		missing, err := rbac.Missing(ctx, s.client, needs)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			return finding(fmt.Sprintf("this account may not %s (needed by %s; %d of %d such rights are missing)", missing[0], strings.Join(missing[0].For, ", "), len(missing), len(needs)),
				"grant it (Helm: controllers.datastoremigration.copyAhead.enabled=true)"), nil
		}
		crds, err := s.crds(ctx, (*resources.Kind).V3CRDName) // another check says which are missing
		for _, crd := range crds {
			if why := sidedoor.Refusal(crd.CustomResourceDefinition); why != "" {
				return finding(fmt.Sprintf("CRD %s %s", crd.Name, why), "apply Calico's CRD as it is"), nil
			}
		}
		return nil, err
	}}
}

// copiesInSight warns that copies are seen before v3 is in use: nothing stands before v3's storage.
func (s *door) copiesInSight() check.Check {
	return check.Check{ID: "copies-in-sight", Title: "copies are out of sight until v3 is in use", Run: func(ctx context.Context) ([]check.Finding, error) {
		svc, err := s.apiService(ctx)
		if err != nil || svc == nil || isAggregated(svc) { // without an APIService v3 is not served at all
			return nil, err
		}
		return []check.Finding{{Level: check.Warning,
			Message: "v3 is served from its CRDs: until Converged, clients of projectcalico.org/v3 see the copies, which are not complete and not in use",
			Remedy:  "let no controller act on projectcalico.org/v3 until then; Calico's own programs wait while the v3 ClusterInformation has datastoreReady: false"}}, nil
	}}
}

// doorTraces looks for the side door.
func (s *door) doorTraces(ctx context.Context, dm *migration, t *traces) error {
	crds, err := s.crds(ctx, (*resources.Kind).V3CRDName)
	for _, crd := range crds {
		if crd.Annotations[migrationv1.AnnotationSideDoor] == string(dm.UID) {
			t.left = append(t.left, "the side door in CRD "+crd.Name)
		}
	}
	return err
}
