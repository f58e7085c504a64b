package copier

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/phasegate/phasegate/resources"
)

const (
	fieldManager = "phasegate"
	// workers is how many objects are worked on at a time; of a kind, where kinds go side by side. How many
	// requests are on their way is for the client to limit: more than these no longer fit into one HTTP/2
	// connection.
	workers = 90
	// maxListers bounds the pages in memory: one per kind that is being listed.
	maxListers = 4
	// maxRaces bounds how often one object may change or vanish under our hands.
	maxRaces = 5
)

// Copier copies and compares for one migration. Its parts read v1, watch, and change what is there. Safe for
// concurrent use.
type Copier struct {
	*Source
	*Snapshot
	*Watcher
	*Editor
	*Copies

	api   *api
	me    owner
	reg   *resources.Registry
	sides *sides
	// askServer and deferOwners are the options of these names.
	askServer, deferOwners bool
}

// Option changes how a Copier works, never what it does.
type Option func(*options)

type options struct {
	backoff     wait.Backoff
	retried     func(kind, operation string)
	cache       *EqualityCache
	watches     metadata.Interface
	ending      <-chan struct{}
	snapshot    bool
	askServer   bool
	deferOwners bool
}

// WithBackoff sets how often and how late a request that failed on the way is tried again.
func WithBackoff(b wait.Backoff) Option { return func(o *options) { o.backoff = b } }

// WithRetried reports each get and create that is sent again, with the kind of the object and the
// operation ("get", "create"). It is called from several goroutines.
func WithRetried(retried func(kind, operation string)) Option {
	return func(o *options) { o.retried = retried }
}

// WithEqualityCache lets a Copier rely on what earlier ones have proved, and write down what it proves itself. With
// nil, as without the option, it compares everything.
func WithEqualityCache(l *EqualityCache) Option { return func(o *options) { o.cache = l } }

// WithWatches lets a Copier Watch, by this client, until ending is closed. With a nil client
// everything is listed.
func WithWatches(c metadata.Interface, ending <-chan struct{}) Option {
	return func(o *options) { o.watches, o.ending = c, ending }
}

// UseSnapshot lets Copy, RemapOwners and OwnedV1 rely on the lists that ChangedSince has made, where it has: nobody
// writes v1 since. Compare and Verify read v1 all the same, by the watches where it is watched.
func UseSnapshot() Option { return func(o *options) { o.snapshot = true } }

// DeferOwners leaves all owners in Calico to a later RemapOwners. It is for a version of v3 that the API
// server of Calico does not know: the garbage collector would look for the owners behind that server, find
// others there, and remember those of the copies as absent for ever.
func DeferOwners() Option { return func(o *options) { o.deferOwners = true } }

// AskServer lets Plan ask the API server about each object, by a dry run: only the server knows what admission does.
func AskServer() Option { return func(o *options) { o.askServer = true } }

// New returns a Copier for the migration with this UID, which is empty where there is none yet. The client must be
// a live one, without a cache and without a rate limit, and good for unstructured objects and for metadata; reads of
// CustomResourceDefinitions go through it too. Every write is validated strictly: the server refuses a field that it
// would drop.
func New(reg *resources.Registry, c client.Client, migration types.UID, opts ...Option) *Copier {
	o := options{backoff: defaultBackoff, retried: func(string, string) {}}
	for _, opt := range opts {
		opt(&o)
	}
	if o.cache == nil {
		o.cache = NewEqualityCache()
		o.cache.forgetful = true
	}
	strict := client.WithFieldValidation(client.WithFieldOwner(c, fieldManager), metav1.FieldValidationStrict)
	server, me := &api{client: strict, backoff: o.backoff, retried: o.retried}, owner(migration)
	editor := &Editor{server}
	watcher := &Watcher{api: server, me: me, editor: editor, watches: o.watches, ending: o.ending, kinds: &o.cache.watched}
	now := Source{api: server, reg: reg, editor: editor, watcher: watcher}
	source := now
	if o.snapshot {
		source.snapshot = &o.cache.snapshots
	}
	return &Copier{
		Source: &source, Snapshot: &Snapshot{v1: &now, seen: &o.cache.snapshots}, Watcher: watcher, Editor: editor,
		Copies: &Copies{api: server, me: me, reg: reg},
		api:    server, me: me, reg: reg, sides: &sides{api: server, me: me, v1: &source, cache: o.cache},
		askServer: o.askServer, deferOwners: o.deferOwners,
	}
}
