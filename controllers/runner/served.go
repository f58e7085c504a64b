package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A kind may not be served for a while: its CRD was exchanged for one with other versions, or an API server has not read
// its CRDs yet. Nothing is known of any object of it then, so none is forgotten, and one pass at a time asks for all of
// them whether that is over. apierrors.NotServed tells such an error, of objects and of states alike.
const (
	// servedFirst is how soon it is asked again, twice as late each time, servedMost at most: so soon all objects are
	// driven again.
	servedFirst = time.Second
	servedMost  = 10 * time.Second
)

// again is how soon a pass follows one that made progress.
const again = time.Nanosecond

// unserved is the one backoff of a controller for kinds that are not served. The zero value is ready: all are.
type unserved struct {
	mu sync.Mutex
	// until is when it is asked again; zero while all is served. pause is how long the last wait was.
	until time.Time
	pause time.Duration
}

// wait tells how long a pass has to wait. It is 0 for all while everything is served, and then for one pass each time.
func (u *unserved) wait(now func() time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until.IsZero() {
		return 0
	}
	at := now()
	if left := u.until.Sub(at); left > 0 {
		return left
	}
	u.pause = min(2*u.pause, servedMost)
	u.until = at.Add(u.pause)
	return 0
}

// failed says that a pass has met a kind that is not served. It answers how long that pass waits, and whether this is new.
func (u *unserved) failed(now time.Time) (wait time.Duration, news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if news = u.until.IsZero(); news {
		u.pause = servedFirst
		u.until = now.Add(u.pause)
	}
	return max(u.until.Sub(now), again), news
}

// served says that everything was answered. It tells whether this is new.
func (u *unserved) served() (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news = !u.until.IsZero()
	u.until, u.pause = time.Time{}, 0
	return news
}

// restarts counts, by object, how often a pass ended at once because the object is another one by now. The zero value is
// ready.
type restarts struct {
	mu  sync.Mutex
	all map[types.NamespacedName]int
}

// maxRestarts is how many passes in a row start again at once. Whatever keeps one from its end after that is met with the
// backoff of errors.
const maxRestarts = 5

// again tells whether the pass may start again at once.
func (r *restarts) again(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[types.NamespacedName]int{}
	}
	r.all[key]++
	return r.all[key] <= maxRestarts
}

// over forgets an object, a pass over which has ended otherwise.
func (r *restarts) over(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, key)
}

// listed asks once more for an object of which a read has said that it is not there, before anything is concluded that
// cannot be taken back: what was released, or begun anew, in its name. A list is another question to the same store, and
// one that is answered says that the kind is served. It answers the UID of the object; empty where there is none.
func listed(ctx context.Context, c client.Client, kind schema.GroupVersionKind, key types.NamespacedName) (types.UID, error) {
	all := &unstructured.UnstructuredList{}
	kind.Kind += "List"
	all.SetGroupVersionKind(kind)
	if err := c.List(ctx, all, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}); err != nil {
		return "", fmt.Errorf("list %s %s, which was not found: %w", kind.Kind, key, err)
	}
	for i := range all.Items {
		if client.ObjectKeyFromObject(&all.Items[i]) == key {
			return all.Items[i].GetUID(), nil
		}
	}
	return "", nil
}
