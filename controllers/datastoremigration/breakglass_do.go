package datastoremigration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// BreakGlass opens and closes Calico's datastore for a person, without a manager. It releases
// with the same code as the manager does.
type BreakGlass struct {
	effects *effects
	machine *fsm.Machine
	locks   Locks
}

// NewBreakGlass speaks to a cluster as the client's account, whose scheme is NewScheme. The
// machine is the one that drives migrations there.
func NewBreakGlass(c client.Client, registry *resources.Registry, machine *fsm.Machine) *BreakGlass {
	return &BreakGlass{effects: newEffects(c, Settings{Registry: registry}), machine: machine}
}

// Look reads what keeps the datastore closed. It changes nothing, and may be called again;
// Do goes by what was seen last.
func (b *BreakGlass) Look(ctx context.Context) (*Locks, error) {
	s := b.effects
	svc, err := s.apiService(ctx)
	if err != nil {
		return nil, err
	}
	l := Locks{Machine: b.machine, SavedAPIService: !isRestored(svc)}
	if err := b.lookAtMigrations(ctx, &l); err != nil {
		return nil, err
	}
	if l.V1, err = s.v1Info(ctx); err != nil {
		return nil, err
	}
	if isAggregated(svc) {
		l.Behind, err = s.v3BehindDoor(ctx)
	} else {
		l.V3, err = s.clusterInformation(ctx, s.registry.Lock().V3GVK())
	}
	if err != nil {
		return nil, err
	}
	if l.SavedAPIService {
		saved, err := b.saved(ctx, &l, svc)
		if err != nil {
			return nil, err
		}
		l.SavedAPIService = saved != nil
	}
	part, err := s.fence.partOfFence(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: migrationv1.FenceName}})
	l.Fenced, b.locks = part != nil, l
	return &l, err
}

// lookAtMigrations reads the migrations, and then their states.
func (b *BreakGlass) lookAtMigrations(ctx context.Context, l *Locks) (err error) {
	if l.Migrations, err = b.effects.migrations(ctx); err != nil {
		return err
	}
	states, err := machinestate.List(ctx, b.effects.client, MachineName)
	if err != nil {
		return err
	}
	seen := map[types.UID]bool{}
	for i := range l.Migrations {
		dm := &l.Migrations[i]
		seen[dm.UID] = true
		if l.Note, err = states.Over(dm, dm.UID); err != nil {
			return err
		}
	}
	l.Note = cmp.Or(states.Unread(), l.Note)
	for _, state := range states.Orphans(seen) {
		of := state.Spec.Object
		orphan := migration{ObjectMeta: metav1.ObjectMeta{Name: of.Name, UID: of.UID}}
		if err := machinestate.Overlay(&orphan, state); err != nil {
			return err
		}
		l.Orphans = append(l.Orphans, orphan)
	}
	return nil
}

// holder is the migration that has closed v1. Of one that is gone with its state, all that
// is left is its UID, which is all that releasing needs.
func (b *BreakGlass) holder(l *Locks) *migration {
	uid := types.UID("")
	if l.V1 != nil {
		uid = lockedBy(l.V1)
	}
	if dm := l.taker(uid); dm != nil {
		return dm
	}
	return &migration{ObjectMeta: metav1.ObjectMeta{UID: uid}}
}

// Do carries out one deed of a verdict. Each is a write with a precondition on what was
// seen, and may be repeated; a conflict says that somebody else was faster: look again.
func (b *BreakGlass) Do(ctx context.Context, deed LockWrite) error {
	switch deed {
	case DeleteMigration:
		return b.deleteMigration(ctx)
	case OpenAPIService:
		return b.openAPIService(ctx)
	case DeleteV3Lock:
		return b.deleteV3Lock(ctx)
	case RemoveWriteBlock:
		return b.effects.fence.removeFence(ctx, b.holder(&b.locks))
	case OpenV1:
		return b.set(ctx, b.locks.V1, true)
	case OpenV3:
		return b.set(ctx, b.locks.V3, true)
	case CloseV1:
		return b.set(ctx, b.locks.V1, false)
	case CloseV3:
		return b.set(ctx, b.locks.V3, false)
	}
	return fmt.Errorf("%q is no deed of this program", deed)
}

func (b *BreakGlass) deleteMigration(ctx context.Context) error {
	dm := b.holder(&b.locks)
	if dm.DeletionTimestamp != nil {
		return nil
	}
	return remove(ctx, b.effects.client, dm.DeepCopy(), "DatastoreMigration "+dm.Name)
}

func (b *BreakGlass) openAPIService(ctx context.Context) error {
	svc, err := b.effects.apiService(ctx)
	if err != nil || isRestored(svc) {
		return err
	}
	saved, err := b.saved(ctx, &b.locks, svc)
	if err != nil || saved == nil {
		return err
	}
	return b.effects.takeover.putBack(ctx, svc, saved)
}

// saved is what the APIService was, from the state of the migration that holds the lock, or
// from what is disabled.
func (b *BreakGlass) saved(ctx context.Context, l *Locks, svc *apiregistrationv1.APIService) (*apiregistrationv1.APIService, error) {
	uid, text := b.holder(l).UID, ""
	states, err := machinestate.Get(ctx, b.effects.client, MachineName, uid)
	if err != nil {
		return nil, err
	}
	if state := states.Of(uid); state != nil {
		text = string(state.Status.Saved[savedAPIServiceKey])
	}
	return savedOf(text, svc, uid)
}

func (b *BreakGlass) deleteV3Lock(ctx context.Context) error {
	for _, info := range []*unstructured.Unstructured{b.locks.Behind, b.locks.V3} {
		if info == nil {
			continue
		}
		if err := remove(ctx, b.effects.client, info.DeepCopy(), info.GroupVersionKind().GroupKind().String()+" "+info.GetName()); err != nil {
			return err
		}
	}
	return nil
}

const (
	// forgets is how long an API server may go on refusing for a fence that is lifted.
	forgets  = 15 * time.Second
	tryAgain = 500 * time.Millisecond
)

// set opens or closes one side. What it writes over is what was seen, but for a manager
// that releases at the same time: it has done it then.
func (b *BreakGlass) set(ctx context.Context, seen *unstructured.Unstructured, ready bool) error {
	note, err := b.note(ctx, ready)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, tryAgain, forgets, true, func(ctx context.Context) (bool, error) {
		last = b.effects.setReady(ctx, seen.DeepCopy(), ready, note)
		switch {
		case apierrs.IsForbidden(last) || apierrs.IsInvalid(last): // the fence is not forgotten yet
			return false, nil
		case apierrs.IsConflict(last):
			now, err := b.effects.clusterInformation(ctx, seen.GroupVersionKind())
			if err != nil || now == nil {
				return true, last
			}
			if isReady(now) == ready {
				last = nil
				return true, nil
			}
			if lockedBy(now) == lockedBy(seen) && isReady(now) == isReady(seen) {
				seen = now // somebody changed something else
				return false, nil
			}
		}
		return true, last
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return last
	}
	return err
}

// note is what a side bears that is closed: who has done it, and when.
func (b *BreakGlass) note(ctx context.Context, ready bool) (types.UID, error) {
	if ready {
		return "", nil
	}
	user, err := b.effects.self(ctx)
	return handNote(user, time.Now()), err
}
