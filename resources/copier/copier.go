package copier

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

const (
	fieldManager = "phasegate"
	// workers is how many objects are worked on at a time; of a kind, where kinds go side by side. How many
	// requests are on their way is for the client to limit: more than these no longer fit into one HTTP/2
	// connection.
	workers = 90
)

// defaultBackoff bounds the tries of one request to about half a minute: an API server that restarts is
// back by then.
var defaultBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 14}

// longestPause bounds the pause between two tries: whoever waits holds the lock.
const longestPause = 3 * time.Second

// Owner is the migration that the copies belong to.
type Owner struct {
	Name string
	UID  types.UID
}

// Copier copies, compares and removes. Safe for concurrent use.
type Copier struct {
	reg     *resources.Registry
	c       client.Client
	owner   Owner
	backoff wait.Backoff
	retried func(kind, operation string)
	schemas *schemaCache
	cache   *EqualityCache // nil: nothing is remembered
	watches metadata.Interface
	ending  <-chan struct{}
	// snapshot: what ChangedSince has listed is still so.
	snapshot bool
	// askServer is AskServer.
	askServer bool
	// deferOwners leaves all owners in Calico to RemapOwners.
	deferOwners bool
}

// Option changes how a Copier works, never what it does.
type Option func(*Copier)

// WithBackoff sets how often and how late a request that failed on the way is tried again.
func WithBackoff(b wait.Backoff) Option { return func(c *Copier) { c.backoff = b } }

// WithRetried is told of each get and create that is sent again, with the kind of the object and the
// operation ("get", "create"). It is called from several goroutines.
func WithRetried(retried func(kind, operation string)) Option {
	return func(c *Copier) { c.retried = retried }
}

// DeferOwners leaves all owners in Calico to a later RemapOwners. It is for a version of v3 that the API
// server of Calico does not know: the garbage collector would look for the owners behind that server, find
// others there, and remember those of the copies as absent for ever.
func DeferOwners() Option { return func(c *Copier) { c.deferOwners = true } }

// AskServer lets Plan ask the API server about each object, by a dry run: only the server knows what admission does.
func AskServer() Option { return func(c *Copier) { c.askServer = true } }

// New returns a Copier on a live client, without a cache and without a rate limit. The client must be
// good for unstructured objects and for metadata; reads of CustomResourceDefinitions go through it too.
// Every write is validated strictly: the server refuses a field that it would drop.
func New(reg *resources.Registry, c client.Client, owner Owner, opts ...Option) *Copier {
	strict := client.WithFieldValidation(client.WithFieldOwner(c, fieldManager), metav1.FieldValidationStrict)
	copier := &Copier{reg: reg, c: strict, owner: owner, backoff: defaultBackoff,
		retried: func(string, string) {}, schemas: &schemaCache{}}
	for _, opt := range opts {
		opt(copier)
	}
	return copier
}

// Report receives progress. It is called often, from one goroutine at a time, and must not block.
type Report func(Progress)

// Progress is how far a call is. Total is known before the first object is done, and Done never goes
// back within a call.
type Progress struct {
	Counts
	Kinds []KindProgress // in copy order
	// Problem is the first of the Rejected; nil while there is none.
	Problem *resources.Problem
}

// KindProgress is the progress of one kind.
type KindProgress struct {
	Kind string
	Counts
}

// Counts adds up objects; every object that is done is in exactly one of the others.
type Counts struct {
	Total        int64
	Done         int64
	Created      int64
	AlreadyEqual int64 // was there already, is not ours and is equal
	Kept         int64 // was there from an earlier try of ours and is equal
	Updated      int64 // was there from an earlier try of ours and differed
	Deleted      int64
	Conflicts    int64
	Rejected     int64
	Planned      int64 // by Plan: nothing is wrong with it
	Terminating  int64 // is being deleted in v1, is needed by none, and is left behind; a copy of it is Deleted
}

// Conflict is a v3 object that differs from what v1 says.
type Conflict struct {
	Kind      string
	Namespace string
	Name      string // in v3
	Cause     Cause
	Fields    []resources.FieldDiff
}

// Cause says how a v3 object came to differ, and so what ends it.
type Cause string

// The causes. A person ends the first two, Copy and RemapOwners the third, who owns the admission policy the fourth,
// time the last.
const (
	CauseUnmanaged   Cause = "Unmanaged"   // it is not ours
	CauseEdited      Cause = "Edited"      // it is our copy, and somebody has changed it since
	CauseStale       Cause = "Stale"       // it is our copy of what v1 was, or lacks a part
	CauseAltered     Cause = "Altered"     // it is our copy, and admission has made something else of it than v1 has
	CauseTerminating Cause = "Terminating" // it is our copy, and is being deleted; or it cannot come, since its namespace is
)

// ForPerson tells that neither another try nor time ends the conflict.
func (c Conflict) ForPerson() bool { return c.Cause == CauseUnmanaged || c.Cause == CauseEdited }

// Plan is what a copy would have to do.
type Plan struct {
	Kinds    []KindProgress
	Total    int64
	Problems []resources.Problem // what must be repaired before a copy can succeed
	Skipped  []Skipped           // those that are being deleted
	Unasked  string              // why the API server was not asked about some, where it was to be
}

// Result is what a Copy did.
type Result struct {
	Progress
	Conflicts []Conflict
	Rejected  []resources.Problem // objects that the server refused, or that are being deleted though others need them
	Skipped   []Skipped
	// Altered are copies that count as made, and hold something else than v1 does.
	Altered []Conflict
	// OnlyInV3 are v3 objects that are not ours and have no v1 object.
	OnlyInV3 []resources.Problem
	// Deferred counts the objects that lack owners in Calico; at 0 RemapOwners would find nothing to do.
	Deferred int64
}

// Changed is how many objects of v3 the Copy has written or removed.
func (r Result) Changed() int64 { return r.Created + r.Updated + r.Deleted }

// RemapResult is what a RemapOwners did.
type RemapResult struct {
	Patched int64
	Missing []resources.Problem // references to Calico owners that do not exist, and are left out
}

// Verification is the comparison of both sides.
type Verification struct {
	Kinds     []KindVerification
	Different []Conflict // content, owners, or a status that is missing
	Altered   []Conflict // by admission: another copy would be the same, and nothing is proved of them
	Missing   []resources.Problem
	Extra     []resources.Problem // copies of ours whose v1 object is gone, or is being deleted
	OnlyInV3  []resources.Problem // not ours, and without a v1 object: nothing is wrong with the copies
}

// KindVerification counts one kind on both sides.
type KindVerification struct {
	Kind string
	V1   int64 // without those that are being deleted
	V3   int64
	Same int64
	// Altered counts those in Verification.Altered.
	Altered int64
	// Digest is of what v1 holds, the Altered left out; see V1Kind.
	Digest string
}

// OK tells that every v1 object is in v3 with the same content, and that nothing of ours is there
// besides.
func (v Verification) OK() bool { return v.Accepted(false) }

// Accepted is OK; but where a person takes the altered copies as they are, they are no obstacle.
func (v Verification) Accepted(altered bool) bool {
	return len(v.Different) == 0 && len(v.Missing) == 0 && len(v.Extra) == 0 && (altered || len(v.Altered) == 0)
}

// Same is how many objects both sides have.
func (v Verification) Same() (same int64) {
	for _, k := range v.Kinds {
		same += k.Same
	}
	return same
}

// Verified is what the comparison has proved, by kind, to be kept for V1Digests. Nothing is proved
// unless Accepted.
func (v Verification) Verified() []migrationv1.VerifiedKind {
	out := make([]migrationv1.VerifiedKind, len(v.Kinds))
	for i, k := range v.Kinds {
		out[i] = migrationv1.VerifiedKind{Kind: k.Kind, Objects: k.V1 - k.Altered, Unproved: k.Altered, Digest: k.Digest}
	}
	return out
}

// Deletion is what a DeleteCopies did.
type Deletion struct {
	Deleted   int64
	Kept      []resources.Problem // may not be deleted; they lost their mark and stay
	Remaining []resources.Problem // still there: call again
}
