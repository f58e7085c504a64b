package datastoremigration

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/fsm/program"
)

// A migration whose state is lost is recognized by what bears its UID in the cluster: the
// lock of v1, that of v3, the fence and the side door. The first of them is taken before
// anything else, and the last given back after everything else.

// wasLost tells whether the state of the migration was lost, and with it what was saved.
func wasLost(dm *migration) bool {
	return slices.ContainsFunc(dm.Status.Machine.History, func(t v1alpha1.Transition) bool { return t.From == "" && t.Reason != program.ReasonCreated })
}

// traces is what bears the UID of a migration.
type traces struct {
	// v1Locked: v1 is closed by it. v3Ours: v3's lock was created by it; v3Open: v3 is open.
	v1Locked, v3Ours, v3Open bool
	// left names what is in place.
	left []string
}

func (s *steps) traces(ctx context.Context, dm *migration) (traces, error) {
	t := traces{}
	for _, look := range []func(context.Context, *migration, *traces) error{s.notThePeers, s.lockTraces, s.fenceTraces, s.doorTraces} {
		if err := look(ctx, dm, &t); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (s *steps) lockTraces(ctx context.Context, dm *migration, t *traces) error {
	v1, err := s.clusterInformation(ctx, s.Registry.Lock().V1GVK())
	if err != nil && !gone(err) {
		return err
	}
	if t.v1Locked = v1 != nil && !isReady(v1) && lockedBy(v1) == dm.UID; t.v1Locked {
		t.left = append(t.left, "the lock of v1")
	}
	v3, err := s.v3Lock(ctx)
	if err != nil || v3 == nil {
		return err
	}
	t.v3Ours, t.v3Open = createdBy(v3) == dm.UID, isReady(v3)
	if t.v3Ours || lockedBy(v3) == dm.UID {
		t.left = append(t.left, "the lock of v3")
	}
	return nil
}

func (s *steps) fenceTraces(ctx context.Context, dm *migration, t *traces) error {
	var parts []client.Object
	for _, name := range fenceNames {
		named := metav1.ObjectMeta{Name: name}
		parts = append(parts, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named})
	}
	for _, part := range parts {
		have, err := s.partOfFence(ctx, part)
		if err != nil {
			return err
		}
		if have != nil && ofMigration(have, dm) {
			t.left = append(t.left, "the fence, "+s.nameOf(part))
		}
	}
	return nil
}

// doorTraces looks for the side door.
func (s *steps) doorTraces(ctx context.Context, dm *migration, t *traces) error {
	for _, kind := range s.Registry.All() {
		crd, err := s.crd(ctx, kind.V3CRDName())
		if err != nil {
			return err
		}
		if crd != nil && crd.Annotations[migrationv1.AnnotationSideDoor] == string(dm.UID) {
			t.left = append(t.left, "the side door in CRD "+crd.Name)
		}
	}
	return nil
}

// v3Lock reads the lock of v3 where it is within reach: from its CRD, or through a side door.
func (s *steps) v3Lock(ctx context.Context) (*unstructured.Unstructured, error) {
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	gvk := s.Registry.Lock().V3GVK()
	if isAggregated(svc) {
		gvk = s.Registry.Through(migrationv1.SideDoorVersion).Lock().V3GVK()
	}
	info, err := s.clusterInformation(ctx, gvk)
	if gone(err) {
		return nil, nil
	}
	return info, err
}

// earlier stands for the migration that has made v3's lock, and is gone: what bears its UID was left to this one. Nil
// where there is none. It can be told until ForgetCopies ends.
func (s *steps) earlier(ctx context.Context, dm *migration) (*migration, error) {
	v3, err := s.v3Lock(ctx)
	if err != nil || v3 == nil || createdBy(v3) == "" || createdBy(v3) == dm.UID {
		return nil, err
	}
	all, err := s.migrations(ctx)
	if err != nil || slices.ContainsFunc(all, func(other migration) bool { return other.UID == createdBy(v3) }) {
		return nil, err
	}
	return &migration{ObjectMeta: metav1.ObjectMeta{Name: dm.Name, UID: createdBy(v3)}}, nil
}

// notThePeers is an error where Calico's own controller may be at work on the object: its
// finalizer has the same name, and what it has left is not ours to give back.
func (s *steps) notThePeers(ctx context.Context, dm *migration, _ *traces) error {
	if dm.Name != peerName {
		return nil
	}
	acts, err := s.peerMayAct(ctx)
	if err != nil || !acts {
		return err
	}
	return fmt.Errorf("Calico's own controller (%s) acts on a DatastoreMigration with the name %s, and this one has no state of ours: let that controller finish, or take its rights away first", s.peerUser(), peerName) //nolint:staticcheck // a name begins with a capital
}

// v3OpenedByMigration tells whether the migration has passed the point of no return.
func (s *steps) v3OpenedByMigration(ctx context.Context, dm *migration) (bool, string, error) {
	t, err := s.traces(ctx, dm)
	if err != nil {
		return false, "", err
	}
	svc, err := s.apiService(ctx)
	if err != nil {
		return false, "", err
	}
	served := !isAggregated(svc)
	if t.v1Locked && served && t.v3Open && !t.v3Ours {
		return false, "", fmt.Errorf("v1 is closed by this migration and v3 is open, but its ClusterInformation %s was not made by it: whether v3 is in use already cannot be told; "+
			"restore MachineState %s.%s from a backup; or, if Calico's components use v3, annotate that object with %s=%s", clusterInformationName, MachineName, dm.UID, migrationv1.AnnotationMigratedBy, dm.UID)
	}
	return served && t.v3Open && t.v3Ours, fmt.Sprintf("v3 is served from its CRDs: %t, open: %t, its lock made by this migration: %t", served, t.v3Open, t.v3Ours), nil
}

// leftByMigration tells whether anything is in place that the migration has to give back.
func (s *steps) leftByMigration(ctx context.Context, dm *migration) (bool, string, error) {
	t, err := s.traces(ctx, dm)
	if err != nil {
		return false, "", err
	}
	return len(t.left) > 0, fmt.Sprintf("in place in its name: %v", t.left), nil
}

// withEarlier does something in the name of the earlier migration, if there is one, and then of this one.
func (s *steps) withEarlier(ctx context.Context, dm *migration, do func(context.Context, *migration) error) error {
	earlier, err := s.earlier(ctx, dm)
	if err != nil {
		return err
	}
	if earlier != nil {
		if err := do(ctx, earlier); err != nil {
			return err
		}
	}
	return do(ctx, dm)
}

func (s *steps) earlierRights() []rbacv1.PolicyRule {
	return grants(onAPIService("get"), s.onV3Lock("get"), rule("list", migrationv1.GroupVersion.Group, "datastoremigrations"))
}

func (s *steps) tracesRights() []rbacv1.PolicyRule {
	return grants(peerRights(), onAPIService("get"), onFence("get"), s.onV1Lock("get"), s.onV3Lock("get"), s.onV3CRDs("get"))
}
