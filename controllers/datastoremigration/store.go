package datastoremigration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrs "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/phasegate/phasegate/controllers/check"
	"github.com/phasegate/phasegate/controllers/rbac"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/resources/apierrors"
)

// etcdQuota knows how much of etcd's quota is left.
type etcdQuota struct {
	copiers

	quota int64

	mu sync.Mutex
	// due is when the store is to be looked at again, by the last look.
	due time.Time
}

// Objects are stored twice until v1 goes. Where etcd's quota is used up, it takes no write of anybody: so what the
// copies add is judged before, and the store is watched while they are made.
const (
	// DefaultStoreQuota is etcd's own default (--quota-backend-bytes).
	DefaultStoreQuota = int64(2) << 30
	// storeLimit is how much of the quota may be used: releasing takes writes, too.
	storeLimit = 0.9
	// The store is looked at the sooner, the less room there is: as if it grew by so much in a second.
	storeGrowth = 20 * mebibyte
	storeSoon   = time.Second
	// storeFirst is when it is looked at first under a lock: a copy that has little left to do is over by then, and the
	// answer takes the API server a tenth of a second of work.
	storeFirst = 500 * time.Millisecond
	storeLate  = 10 * time.Second

	metricsPath = "/metrics"
	sizeMetric  = "apiserver_storage_size_bytes"
)

func storeRights() []rbacv1.PolicyRule { return []rbacv1.PolicyRule{rbac.URL("get", metricsPath)} }

// storeQuota is what the size of the store is judged against.
func (s *etcdQuota) storeQuota() int64 {
	if s.quota > 0 {
		return s.quota
	}
	return DefaultStoreQuota
}

// errNoSize says that the API server tells no size.
var errNoSize = errors.New("has no metric " + sizeMetric)

// storeSize asks the API server how large its store is.
func (s *etcdQuota) storeSize(ctx context.Context) (int64, error) {
	if s.discovery == nil {
		return 0, errNoSize
	}
	api, isReal := s.discovery.RESTClient().(*rest.RESTClient)
	if !isReal || api == nil {
		return 0, errNoSize
	}
	body, err := api.Get().AbsPath(metricsPath).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	return readSize(body)
}

// readSize finds the largest store in what /metrics says: there may be one of its own for Events. A parser of the format
// would make some ten thousand series of it, each second, beside a copy under the lock.
func readSize(metrics io.Reader) (size int64, err error) {
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, mebibyte)
	found := false
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name, _, _ = strings.Cut(name, "{"); name != sizeMetric {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", sizeMetric, err)
		}
		size, found = max(size, int64(n)), true
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	if !found {
		return 0, errNoSize
	}
	return size, nil
}

// StoreSpaceCheck is the id of the check that tells what the copies add to etcd.
const StoreSpaceCheck = "store-space"

// hasSpace finds a store that the copies would fill.
func (s *etcdQuota) hasSpace(dm *migration) check.Check {
	return check.Check{ID: StoreSpaceCheck, Title: "etcd has room for the copies", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		if dm != nil && dm.Status.DatastoreLockedAt != nil {
			return nil, nil // the copies are there
		}
		if dm == nil {
			dm = &migration{}
		}
		adds, err := s.copier(dm).Bytes(ctx)
		if err != nil {
			return nil, err
		}
		size, err := s.storeSize(ctx)
		if err != nil && !unknownSize(err) {
			return nil, fmt.Errorf("ask how large the store is: %w", err)
		}
		return judgeSpace(adds, size, s.storeQuota(), s.quota > 0, err), nil
	}}
}

// unknownSize tells that asking again brings no answer, either.
func unknownSize(err error) bool {
	return errors.Is(err, errNoSize) || apierrs.IsForbidden(err) || apierrs.IsUnauthorized(err) || apierrs.IsNotFound(err)
}

// judgeSpace says what the copies add, how large the store is, and against what that is judged. unknown is why the
// size is not known.
func judgeSpace(adds, size, quota int64, given bool, unknown error) []check.Finding {
	against := fmt.Sprintf("a quota of %d MiB", quota/mebibyte)
	if !given {
		against += " (etcd's default)"
	}
	const set = "say what --quota-backend-bytes of etcd is, where it is another one (Helm: controllers.datastoremigration.storeQuota; flag: --store-quota)"
	if unknown != nil {
		return []check.Finding{{Level: check.Warning,
			Message: fmt.Sprintf("the copies add some %d MiB to etcd, for which %s is assumed; how large it is now is not known, nor is it watched: the API server's %s: %v", inMiB(adds), against, metricsPath, unknown),
			Remedy:  "grant get of the path " + metricsPath + ", or look yourself; " + set}}
	}
	message := fmt.Sprintf("the copies add some %d MiB to etcd, which has %d MiB now, of %s", inMiB(adds), inMiB(size), against)
	if float64(size+adds) <= storeLimit*float64(quota) {
		return []check.Finding{{Level: check.Info, Message: message}}
	}
	return []check.Finding{{Level: check.Failure,
		Message: message + fmt.Sprintf(": more than %.0f %%, and a full etcd accepts no writes", storeLimit*100),
		Remedy:  "defragment it, or raise its quota; " + set}}
}

// inMiB rounds up.
func inMiB(bytes int64) int64 { return (bytes + mebibyte - 1) / mebibyte }

// storeFullError ends the writing of objects that the store has no room left for.
type storeFullError struct{ size, quota int64 }

func (e *storeFullError) Error() string {
	return fmt.Sprintf("etcd has %d MiB of a quota of %d MiB, and at most %.0f %% may be used, because a full etcd accepts no writes",
		inMiB(e.size), inMiB(e.quota), storeLimit*100)
}

// nearlyFull is why a context of whileQuotaLasts has ended; nil: for want of something else, or not at all.
func nearlyFull(writing context.Context) (near *storeFullError) {
	errors.As(context.Cause(writing), &near)
	return near
}

// whileQuotaLasts gives a context for writing objects that ends, with a storeFullError, before the store is full. Where its
// size is not known, it is not watched: Preflight has said so. Where that is due, it is looked at before anything is
// written, unless that would be under a lock: nothing waits for it there. The function that ends the context ends the
// watching, too.
func (s *etcdQuota) whileQuotaLasts(ctx context.Context, clk clock.Clock, lookFirst bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	next, watched := storeFirst, true
	if lookFirst {
		if next = s.dueIn(clk); next <= 0 {
			next, watched = s.lookAtQuota(ctx, clk, cancel)
		}
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		for watched && sleep(ctx, clk, next) == nil {
			next, watched = s.lookAtQuota(ctx, clk, cancel)
		}
	})
	return ctx, func() {
		cancel(nil)
		looking.Wait()
	}
}

// lookAtQuota tells when to look again, and whether that is of any use.
func (s *etcdQuota) lookAtQuota(ctx context.Context, clk clock.Clock, full context.CancelCauseFunc) (next time.Duration, again bool) {
	size, err := s.storeSize(ctx)
	if err != nil {
		return storeSoon, !unknownSize(err)
	}
	if float64(size) > storeLimit*float64(s.storeQuota()) {
		full(&storeFullError{size, s.storeQuota()})
	}
	next = nextLook(size, s.storeQuota())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = clk.Now().Add(next)
	return next, ctx.Err() == nil
}

// dueIn is in how long the store is to be looked at; not positive: now.
func (s *etcdQuota) dueIn(clk clock.Clock) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due.Sub(clk.Now())
}

// nextLook is in how long the store is looked at again.
func nextLook(size, quota int64) time.Duration {
	room := storeLimit*float64(quota) - float64(size)
	return min(max(time.Duration(room/storeGrowth*float64(time.Second)), storeSoon), storeLate)
}

// ReasonStoreFull is why a migration released everything whose copies had no room.
const ReasonStoreFull = "StoreFull"

// quotaExceeded makes of what ended a copy for want of room an end of the migration; nil: it was something else. A store
// that is full already takes deletes and nothing else, not even a note that it is full: so the copies go at once,
// before anything is written. What is written after that is tried again until somebody has made room.
func (s *etcdQuota) quotaExceeded(ctx, copying context.Context, sc *scope, version string, err error) error {
	if near := nearlyFull(copying); near != nil {
		return fsm.Terminal(ReasonStoreFull, "the copies need more room than there is: %w: defragment it or raise its quota, then retry", near)
	}
	if !apierrors.StoreFull(err) {
		return nil
	}
	s.caches.setFull(sc.Object, true)
	gone, failed := s.copierOver(sc.Object, version).FreeStore(ctx)
	return errors.Join(failed, storeFull(fmt.Sprintf("%d copies were deleted", gone), err))
}

// storeFull is the end of a migration that has filled the store. It is remembered until the copies are deleted: when
// somebody has made room, nothing is copied again before that.
func storeFull(done string, err error) error {
	return fsm.Terminal(ReasonStoreFull, "etcd is full and accepts no more writes; %s: make room (defragment it, raise its --quota-backend-bytes), then run `etcdctl alarm disarm`, and everything is released: %w", done, err)
}
