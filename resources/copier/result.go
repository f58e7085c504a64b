package copier

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/resources"
)

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

// WaiveAltered is what a person waives who wants v3 to have what admission makes of the copies.
const WaiveAltered = "altered-copies"

// fieldsNamed is how many fields of an object a message names.
const fieldsNamed = 5

// Problem says of an altered copy what a person can do; by is the UID of the migration, empty where there is none yet.
func (c Conflict) Problem(by types.UID) resources.Problem {
	var fields []string
	for i, f := range c.Fields {
		if i == fieldsNamed {
			fields = append(fields, fmt.Sprintf("and %d more", len(c.Fields)-i))
			break
		}
		fields = append(fields, f.String())
	}
	return resources.Problem{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Reason: resources.ReasonAltered,
		Message: "an admission policy or a webhook makes something else of it in v3: " + strings.Join(fields, ", "),
		Remedy: fmt.Sprintf("change what does it, and delete the copy; or, if v3 is to have it so, waive it with the annotation %s on the migration",
			migrationv1.WaiverAnnotation(WaiveAltered, by))}
}

// Skipped is a v1 object that no copy is made of.
type Skipped struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"` // in v3
	Why       Why    `json:"why"`
}

// Why says why no copy of an object is made.
type Why string

// The reasons.
const (
	SkippedEqual       Why = "AlreadyInV3"  // v3 has it with the same content, and it is not ours
	SkippedTerminating Why = "BeingDeleted" // in v1, and no other object needs it
)

func compareSkipped(a, b Skipped) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name, string(a.Why)}, []string{b.Kind, b.Namespace, b.Name, string(b.Why)})
}

// Comparison is what both sides have.
type Comparison struct {
	Conflicts []Conflict // that a person has to look at
	Equal     []Skipped  // of no migration's making
	OnlyInV3  []resources.Problem
}

// Plan is what a copy would have to do.
type Plan struct {
	Kinds    []KindProgress
	Total    int64
	Problems []resources.Problem // what must be repaired before a copy can succeed
	Skipped  []Skipped           // those that are being deleted
	Filled   []Filled            // what copies will hold, and v1 does not say; sorted
	Unasked  string              // why the API server was not asked about some, where it was to be
}

// Filled counts the objects of a kind in which v1 leaves a field to others, who fill it in.
type Filled struct {
	Kind    string `json:"kind"`
	Field   string `json:"field"`
	Value   string `json:"value"` // as JSON
	Objects int64  `json:"objects"`
	By      string `json:"by,omitempty"` // ByAdmission, or nobody: the copy says what Calico's programs read in v1
}

// ByAdmission is a policy or a webhook of the cluster, as the API server has answered it.
const ByAdmission = "admission"

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
	Kind string `json:"kind"`
	V1   int64  `json:"v1"` // without those that are being deleted
	V3   int64  `json:"v3"`
	Same int64  `json:"same"`
	// Altered counts those in Verification.Altered.
	Altered int64 `json:"-"`
	// Digest is of what v1 holds, the Altered left out; see V1Kind.
	Digest string `json:"digest,omitempty"`
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

func compareConflicts(a, b Conflict) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name}, []string{b.Kind, b.Namespace, b.Name})
}

// problemOf is a problem of one object.
func problemOf(kind *resources.Kind, key client.ObjectKey, reason resources.Reason, message, remedy string) resources.Problem {
	return resources.Problem{Kind: kind.Name(), Namespace: key.Namespace, Name: key.Name, Reason: reason, Message: message, Remedy: remedy}
}

func compareProblems(a, b resources.Problem) int {
	return slices.Compare([]string{a.Kind, a.Namespace, a.Name}, []string{b.Kind, b.Namespace, b.Name})
}
