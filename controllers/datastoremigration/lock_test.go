package datastoremigration

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/controllers/runner"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources"
)

// The fence heeds the note of who has locked v1, and lets everybody pass where that is gone, or another one.
func TestALockWithoutItsNote(t *testing.T) {
	cases := map[string]struct {
		why  string
		mode migrationv1.LockMode
		note string
		want string
	}{
		"gone, cooperative": {why: "Calico's components drop the note when they write the object", mode: migrationv1.LockCooperative},
		"gone, enforced":    {why: "nobody else could write it, and now everybody can", mode: migrationv1.LockEnforced, want: "LockBroken"},
		"closing again":     {why: "the fence does not heed it", mode: migrationv1.LockEnforced, note: "me/closing", want: "LockBroken"},
		"as it was left":    {why: "the lock stands", mode: migrationv1.LockEnforced, note: "me"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			info := lockObject(false)
			if c.note != "" {
				info.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: c.note})
			}
			s := newEffects(newFake().WithObjects(info).Build(), Settings{Registry: resources.Default()})
			err := s.v1Lock.v1Closed(t.Context(), "me", c.mode == migrationv1.LockEnforced)
			if got := endedFor(t, err); got != c.want {
				t.Errorf("it ends for %q, want %q: %s", got, c.want, c.why)
			}
		})
	}
}

// Calico's components may end what they have begun before the fence refuses it: the fence asks for the UID alone. A crash in
// between leaves v1 closed by this migration, and the next try goes on from there.
func TestClosingV1(t *testing.T) {
	const grace = 200 * time.Millisecond
	cases := map[string]struct {
		why    string
		note   string // of v1, which is closed; empty: it is open
		mode   migrationv1.LockMode
		grace  time.Duration
		writes []string
		took   time.Duration
		want   string // the reason for which it ends
	}{
		"open":          {why: "two writes, apart", mode: migrationv1.LockEnforced, grace: grace, writes: []string{"me/closing", "me"}, took: grace},
		"no grace":      {why: "a machine may do without", mode: migrationv1.LockEnforced, writes: []string{"me"}},
		"no fence":      {why: "nobody is refused anyway", mode: migrationv1.LockCooperative, grace: grace, writes: []string{"me"}},
		"closing":       {why: "the manager died in between, nobody knows when", note: "me/closing", mode: migrationv1.LockEnforced, grace: grace, writes: []string{"me"}, took: grace},
		"closed":        {why: "it was called again", note: "me", mode: migrationv1.LockEnforced, grace: grace},
		"by another":    {why: "that lock is not ours", note: "other", mode: migrationv1.LockEnforced, grace: grace, want: "AlreadyLocked"},
		"other closing": {why: "nor that one", note: "other/closing", mode: migrationv1.LockEnforced, grace: grace, want: "AlreadyLocked"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				info := lockObject(c.note == "")
				if c.note != "" {
					info.SetAnnotations(map[string]string{migrationv1.AnnotationLockedBy: c.note})
				}
				var writes []string
				world := interceptor.NewClient(newFake().WithObjects(info).Build(), interceptor.Funcs{Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					err := cl.Patch(ctx, obj, patch, opts...)
					writes = append(writes, obj.GetAnnotations()[migrationv1.AnnotationLockedBy])
					return err
				}})
				s := newEffects(world, Settings{Registry: resources.Default()})
				live, err := s.v1Lock.v1Info(t.Context())
				must(t, err)
				sc := &scope{Object: &migration{ObjectMeta: metav1.ObjectMeta{UID: "me"}}, Clock: clock.RealClock{}, With: fsm.Params{}}
				if c.grace > 0 {
					sc.With["grace"] = c.grace.String()
				}
				began := time.Now()
				err = s.v1Lock.closeV1(t.Context(), sc, live, c.mode)
				if got := endedFor(t, err); got != c.want {
					t.Errorf("%s: it ends for %q, want %q", c.why, got, c.want)
				}
				if diff := cmp.Diff(c.writes, writes); diff != "" {
					t.Errorf("%s: notes that were written (-want +got):\n%s", c.why, diff)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("%s: it took %s, want %s", c.why, took, c.took)
				}
			})
		})
	}
}

// A step that takes long ends with the lock, and is not begun behind it.
func TestWhileLocked(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		why  string
		left time.Duration // 0: no deadline
		want string
	}{
		"no deadline": {why: "the machine file gives none", want: "goes on"},
		"in a moment": {why: "the step is cut off", left: time.Millisecond, want: "is cut off"},
		"over":        {why: "what is tried again would go on for ever", left: -time.Second, want: "LockDeadline"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newEffects(newFake().WithObjects(lockObject(false)).Build(), Settings{Registry: resources.Default()})
			lock := &migrationv1.Lock{Mode: migrationv1.LockCooperative}
			if c.left != 0 {
				lock.Deadline = &metav1.Time{Time: now.Add(c.left)}
			}
			sc := &scope{Object: &migration{Status: migrationv1.DatastoreMigrationStatus{Lock: lock}}, Clock: clocktesting.NewFakeClock(now)}
			got := "goes on"
			_, err := s.v1Lock.whileLocked(func(ctx context.Context, _ *scope) (outputs, error) {
				if _, ends := ctx.Deadline(); ends {
					<-ctx.Done()
					got = "is cut off"
				}
				return nil, nil
			})(t.Context(), sc)
			if reason := endedFor(t, err); reason != "" {
				got = reason
			}
			if got != c.want {
				t.Errorf("the step %s, want %s: %s", got, c.want, c.why)
			}
		})
	}
}

// Whatever grows with the number of objects, or waits for an API server, is not begun behind the end of the lock.
func TestLongStepsEndWithTheLock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newEffects(newFake().WithObjects(lockObject(false)).Build(), Settings{Registry: resources.Default()})
	lock := &migrationv1.Lock{Mode: migrationv1.LockCooperative, Deadline: &metav1.Time{Time: now}}
	actions := s.looking()
	maps.Copy(actions, s.switching())
	maps.Copy(actions, s.moving())
	for _, name := range []string{"Drain", "AwaitV3Served", "CopyResources", "RemapOwners", "Verify"} {
		sc := &scope{Object: &migration{Status: migrationv1.DatastoreMigrationStatus{Lock: lock}}, Clock: clocktesting.NewFakeClock(now)}
		_, err := actions[name].Do(t.Context(), sc)
		if endedFor(t, err) != "LockDeadline" {
			t.Errorf("%s answers %v, want LockDeadline: v1 would stay closed for as long as it takes", name, err)
		}
	}
}

// The lock of v3 is a copy of v1's, with all that components read from it, and without what is v1's alone. Whoever else has
// it keeps it, but for a migration that is gone.
func TestCloseV3(t *testing.T) {
	const me, other = types.UID("me"), types.UID("other")
	lock := resources.Default().Lock()
	side := func(gvk schema.GroupVersionKind, created, locked types.UID, spec map[string]any) *unstructured.Unstructured {
		info := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		info.SetGroupVersionKind(gvk)
		info.SetName(clusterInformationName)
		annotations := map[string]string{}
		for key, by := range map[string]types.UID{migrationv1.AnnotationMigratedBy: created, migrationv1.AnnotationLockedBy: locked} {
			if by != "" {
				annotations[key] = string(by)
			}
		}
		info.SetAnnotations(annotations)
		return info
	}
	closed := func(created, locked types.UID) *unstructured.Unstructured {
		return side(lock.V3GVK(), created, locked, map[string]any{"datastoreReady": false, "clusterGUID": "of v3"})
	}
	v1 := side(lock.V1GVK(), "", "", map[string]any{"datastoreReady": true, "clusterGUID": "of v1", "calicoVersion": "v3.32.0"})
	v1.SetLabels(map[string]string{"a": "b"})
	silent := side(lock.V1GVK(), "", "", map[string]any{})
	delete(silent.Object, "spec")
	whole := side(lock.V3GVK(), me, me, map[string]any{"datastoreReady": false, "clusterGUID": "of v1", "calicoVersion": "v3.32.0"})
	bare := side(lock.V3GVK(), me, me, map[string]any{"datastoreReady": false})
	cases := map[string]struct {
		why    string
		v1, v3 *unstructured.Unstructured
		want   *unstructured.Unstructured
		refuse string
	}{
		"none":                        {why: "it is created closed", v1: v1, want: whole},
		"nor v1":                      {why: "v3 must be closed all the same", want: bare},
		"v1 says nothing":             {why: "an empty one is closed, too", v1: silent, want: bare},
		"our own":                     {why: "v1 has changed since it was copied ahead", v1: v1, v3: closed(me, me), want: whole},
		"of a migration that is gone": {why: "nobody would ever open it, or delete it", v1: v1, v3: closed("gone", "gone"), want: whole},
		"of another migration":        {why: "it is at work", v1: v1, v3: closed(other, other), want: closed(other, other), refuse: "AlreadyLocked"},
		"of a person": {why: "a migration that is gone made it, and somebody closed it again", v1: v1,
			v3: closed("gone", "kubectl phasegate lock: admin"), want: closed("gone", "kubectl phasegate lock: admin"), refuse: "AlreadyLocked"},
		"of nobody": {why: "no note tells who closed it", v1: v1, v3: closed("", ""), want: closed("", ""), refuse: "AlreadyLocked"},
		"open": {why: "it was there before, and is to be there afterwards", v1: v1,
			v3:   side(lock.V3GVK(), "gone", "", map[string]any{"datastoreReady": true, "clusterGUID": "of v3"}),
			want: closed("gone", me)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{&migration{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: other}}}
			for _, info := range []*unstructured.Unstructured{c.v1, c.v3} {
				if info != nil {
					objects = append(objects, info.DeepCopy())
				}
			}
			s := newEffects(newFake().WithObjects(objects...).Build(), Settings{Registry: resources.Default()})
			err := s.v3Lock.closeV3(t.Context(), &scope{Object: &migration{ObjectMeta: metav1.ObjectMeta{UID: me}}}, lock.V3GVK())
			if refused := endedFor(t, err); refused != c.refuse {
				t.Errorf("%s: want reason %q, got %v", c.why, c.refuse, err)
			}
			got, err := s.clusterInformation(t.Context(), lock.V3GVK())
			if err != nil || got == nil {
				t.Fatalf("%v, %v", got, err)
			}
			got.SetResourceVersion("")
			if diff := cmp.Diff(c.want.Object, got.Object); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// endedFor is the reason of an error that ends a step for good, and empty where it succeeds.
func endedFor(t *testing.T, err error) string {
	t.Helper()
	terminal, is := errors.AsType[*fsm.TerminalError](err)
	if !is {
		must(t, err)
		return ""
	}
	return terminal.Reason
}

// v3 is open when UnlockV3 has succeeded at the point of no return; and nobody else's lock is taken off on the way back.
func TestOpenV3(t *testing.T) {
	const me = types.UID("me")
	cases := map[string]struct {
		why             string
		created, holder types.UID
		open, keep      bool
		want            unlockDecision
	}{
		"ours":                        {why: "it is opened", created: me, holder: me, keep: true, want: unlockOpens},
		"was there before":            {why: "this migration has closed it", holder: me, keep: true, want: unlockOpens},
		"note lost, made by us":       {why: "Calico's components rewrite the object, and may drop the note", created: me, keep: true, want: unlockOpens},
		"note lost, was there before": {why: "the lock of another would have been refused: it was open when it was closed", keep: true, want: unlockOpens},
		"open already":                {why: "a step is done twice", created: me, open: true, keep: true, want: unlockHasNothing},
		"closed by another":           {why: "Converged with a closed v3 is an outage that nobody would look for", created: me, holder: "admin", keep: true, want: unlockWaits},
		"back, made by us":            {why: "nothing is left", created: me, holder: me, want: unlockDeletes},
		"back, was there before":      {why: "it was open", holder: me, want: unlockOpens},
		"back, of another":            {why: "it is not ours to open", holder: "admin", want: unlockLeavesClosed},
		"back, of nobody":             {why: "this migration may have been refused for it", want: unlockLeavesClosed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			info := lockObject(c.open)
			info.SetAnnotations(map[string]string{migrationv1.AnnotationMigratedBy: string(c.created), migrationv1.AnnotationLockedBy: string(c.holder)})
			if got := decideUnlock(info, me, c.keep); got != c.want {
				t.Errorf("%s, want %s: %s", got, c.want, c.why)
			}
		})
	}
}

// A clock that was ahead does not keep v1 closed for longer than the deadline says.
func TestAJumpOfTheClockUnderTheLock(t *testing.T) {
	locked := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		why string
		now time.Time
		// left is how long v1 stays closed yet.
		left    time.Duration
		changed bool
	}{
		"no jump":         {why: "what is left is counted", now: locked.Add(time.Minute), left: 29 * time.Minute},
		"-1h":             {why: "the manager that locked it was an hour ahead: it is counted from now on", now: locked.Add(time.Minute - time.Hour), left: 30 * time.Minute, changed: true},
		"+1h":             {why: "it cannot be told from an old lock: v1 is opened, and nothing is lost", now: locked.Add(time.Minute + time.Hour), left: -31 * time.Minute},
		"within a second": {why: "the status knows whole seconds", now: locked.Add(500 * time.Millisecond), left: 30*time.Minute - 500*time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dm := &migration{}
			dm.Status.DatastoreLockedAt = new(metav1.NewTime(locked))
			dm.Status.Lock = &migrationv1.Lock{Mode: migrationv1.LockEnforced, Deadline: new(metav1.NewTime(locked.Add(30 * time.Minute)))}
			changed := believeLock(dm, c.now)
			if left := dm.Status.Lock.Deadline.Sub(c.now); left != c.left || changed != c.changed {
				t.Errorf("%s: %s left, changed %t; want %s, %t", c.why, left, changed, c.left, c.changed)
			}
			if believeLock(dm, c.now) {
				t.Errorf("%s: a second look changes it again", c.why)
			}
		})
	}
}

// A lock is counted from the moment at which v1 was closed, also where the process that closed it has died before it
// could say so. A lock that never came about has no end yet.
func TestALockEndsAfterACrash(t *testing.T) {
	const limit, down = 30 * time.Minute, 20 * time.Minute
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		why    string
		closes bool // the write that the process dies at
		want   time.Time
	}{
		"right after the write":  {why: "v1 has been closed for 20 minutes by then", closes: true, want: begin.Add(limit)},
		"right before the write": {why: "v1 was open until now", want: begin.Add(down + limit)},
	} {
		t.Run(name, func(t *testing.T) {
			dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "me"}}
			world := newFake().WithStatusSubresource(dm).WithObjects(dm, lockObject(true)).Build()
			clock := clocktesting.NewFakeClock(begin)
			died := errors.New("died")
			dying := interceptor.NewClient(world, interceptor.Funcs{Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if obj.GetName() != clusterInformationName {
					return cl.Patch(ctx, obj, patch, opts...)
				}
				if c.closes {
					return errors.Join(died, cl.Patch(ctx, obj, patch, opts...))
				}
				return died
			}})
			with := fsm.Params{"deadline": limit.String()}
			lock := func(cl client.WithWatch) (*migration, error) {
				live := &migration{}
				must(t, cl.Get(t.Context(), types.NamespacedName{Name: dm.Name}, live))
				_, err := runner.Once(t.Context(), cl, live, actionOn(cl, "LockV1"), with, clock)
				return live, err
			}
			if _, err := lock(dying); !errors.Is(err, died) {
				t.Fatalf("%v, want it to die", err)
			}
			clock.Step(down)
			after, err := lock(world)
			must(t, err)
			if lock := after.Status.Lock; lock == nil || lock.Deadline == nil || !lock.Deadline.Time.Equal(c.want) {
				t.Errorf("lock %+v, want it to end at %s: %s", lock, c.want, c.why)
			}
			if at := after.Status.DatastoreLockedAt; at == nil || !at.Time.Equal(c.want.Add(-limit)) {
				t.Errorf("locked at %v, want %s: %s", at, c.want.Add(-limit), c.why)
			}
		})
	}
}

// The status says one moment: who subtracts the one from the other finds what the file says, however long the lock takes.
func TestALockBeginsWhereItsDeadlineCountsFrom(t *testing.T) {
	const limit = 30 * time.Minute
	dm := &migration{ObjectMeta: metav1.ObjectMeta{Name: "to-v3", UID: "me"}}
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, int(900*time.Millisecond), time.UTC))
	slow := interceptor.NewClient(newFake().WithStatusSubresource(dm).WithObjects(dm, lockObject(true)).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			clock.Step(300 * time.Millisecond)
			return cl.Patch(ctx, obj, patch, opts...)
		}})
	_, err := runner.Once(t.Context(), slow, dm, actionOn(slow, "LockV1"), fsm.Params{"deadline": limit.String()}, clock)
	must(t, err)
	if at, lock := dm.Status.DatastoreLockedAt, dm.Status.Lock; at == nil || lock == nil || lock.Deadline == nil || lock.Deadline.Sub(at.Time) != limit {
		t.Errorf("locked at %v until %+v, want %s", at, lock, limit)
	}
}
