package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// MigrationType says which way a migration goes.
// +kubebuilder:validation:Enum=APIServerToCRDs
// +kubebuilder:validation:MaxLength=64
type MigrationType string

// APIServerToCRDs moves the objects of crd.projectcalico.org/v1, which an
// aggregated API server serves as projectcalico.org/v3, to native v3 CRDs.
const APIServerToCRDs MigrationType = "APIServerToCRDs"

// DatastoreMigration asks for a migration of the Calico datastore and shows how
// far it has come. Any name will do; one migration is active at a time.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=datastoremigrations,shortName=dsm,categories=phasegate
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Progress,type=string,JSONPath=`.status.progress.objects`
// +kubebuilder:printcolumn:name=Locked,type=date,JSONPath=`.status.datastoreLockedAt`
// +kubebuilder:printcolumn:name=Conflicts,type=integer,JSONPath=`.status.progress.conflicts`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Step,type=string,JSONPath=`.status.machine.step`,priority=1
// +kubebuilder:printcolumn:name=Rate,type=integer,JSONPath=`.status.progress.objectsPerSecond`,priority=1
// +kubebuilder:printcolumn:name=Types,type=string,JSONPath=`.status.progress.typeProgress`,priority=1
// +kubebuilder:printcolumn:name=Current Type,type=string,JSONPath=`.status.progress.currentType`,priority=1
// +kubebuilder:printcolumn:name=Migrated,type=integer,JSONPath=`.status.progress.migrated`,priority=1
// +kubebuilder:printcolumn:name=Skipped,type=integer,JSONPath=`.status.progress.skipped`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`,priority=1
type DatastoreMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is wanted.
	Spec DatastoreMigrationSpec `json:"spec"`
	// Status is what was observed; written by the controller only.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status DatastoreMigrationStatus `json:"status,omitempty"`
}

// DatastoreMigrationList is a list of migrations.
//
// +kubebuilder:object:root=true
type DatastoreMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DatastoreMigration `json:"items"`
}

// DatastoreMigrationSpec is what a user asks for.
type DatastoreMigrationSpec struct {
	// Type of the migration. It is fixed at creation: turning round half way is
	// what deleting the object is for.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.type cannot be changed: delete this migration and create another one"
	Type MigrationType `json:"type"`
}

// DatastoreMigrationStatus is bounded in every part, so that an object never
// outgrows what the API server accepts.
//
// +kubebuilder:object:generate=true
type DatastoreMigrationStatus struct {
	// Phase for display. It has a pattern instead of a list of values, since an
	// operator may add phases (an approval gate, say) by editing the machine.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_-]*$`
	// +optional
	Phase string `json:"phase,omitempty"`
	// Message says in a sentence what is being done or waited for.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the metadata.generation that this status is about.
	// -1 until somebody has looked at it, so that who waits for it goes on waiting.
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:default:=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// DatastoreLockedAt is when the v1 datastore was locked.
	// +optional
	DatastoreLockedAt *metav1.Time `json:"datastoreLockedAt,omitempty"`
	// StartedAt is when the migration entered Migrating for the first time.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// CompletedAt is when the migration entered Complete.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`

	// Lock says how v1 is kept from being written, while it is locked and can still
	// be opened again. It is shown where the lock is cooperative; the end of an enforced one is
	// shown as machine.deadline, and the MachineState has all of it.
	// +optional
	Lock *Lock `json:"lock,omitempty"`

	// CopyAhead says how the copying that locks nothing has gone, until both sides are
	// verified or everything is released. The MachineState has it; the object does not show it.
	// +optional
	CopyAhead *CopyAhead `json:"copyAhead,omitempty"`
	// Progress counts kinds and objects.
	// +optional
	Progress *Progress `json:"progress,omitempty"`
	// Verified is what the last verification has proved that both sides hold.
	// Without it nothing is opened, completed or cleaned up. The MachineState has it; the object
	// does not show it.
	// +optional
	Verified *Verified `json:"verified,omitempty"`
	// LateWrites lists, as Conflicts does, what was written in v1 after both sides were compared and is
	// not in v3, because the object was written there, too: a person has to decide. Conflicts shows it. The
	// MachineState has it; the object does not show it.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=131072
	// +optional
	LateWrites Conflicts `json:"lateWrites,omitempty"`
	// Conflicts lists the v3 objects that are in the way, in one line of describe: "KIND
	// NAMESPACE/NAME: FIELD; FIELD | KIND NAME: FIELD". Progress.Conflicts counts all of them,
	// also those beyond the 32 that are listed here.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=131072
	// +optional
	Conflicts Conflicts `json:"conflicts,omitempty"`
	// Conditions, each type once: Ready, Reconciling and Stalled (kstatus), and
	// Conflict and Failed.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Machine is where the state machine stands, why it stands there, and how it
	// came there.
	// +optional
	Machine v1alpha1.MachineStatus `json:"machine,omitempty"`
}

// LockMode says what the lock of v1 rests on.
// +kubebuilder:validation:Enum=Enforced;Cooperative
type LockMode string

const (
	// LockEnforced says that the API server refuses writes of v1.
	LockEnforced LockMode = "Enforced"
	// LockCooperative says that the API server serves no ValidatingAdmissionPolicy, so that
	// only Calico's own components heed datastoreReady.
	LockCooperative LockMode = "Cooperative"
)

// Lock is the lock of v1.
//
// +kubebuilder:object:generate=true
type Lock struct {
	// Mode says whether writes of others are refused, or only asked not to come.
	// +optional
	Mode LockMode `json:"mode,omitempty"`
	// Deadline is when the migration gives up and releases the lock, if it has not
	// passed the point of no return.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}

// CopyAheadState says whether objects are copied before v1 is locked.
// +kubebuilder:validation:Enum=Open;Refused
type CopyAheadState string

const (
	// CopyAheadOpen says that v3 can be written while the aggregated API server serves it.
	CopyAheadOpen CopyAheadState = "Open"
	// CopyAheadRefused says that everything, or what is left, is copied under the lock.
	CopyAheadRefused CopyAheadState = "Refused"
)

// CopyAhead is the copying that locks nothing: in rounds, while the cluster works as before.
type CopyAhead struct {
	// State says whether objects are copied before v1 is locked.
	State CopyAheadState `json:"state"`
	// Message says why not, or what the expected time rests on.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// Round is the one that has ended last.
	// +optional
	Round int32 `json:"round,omitempty"`
	// Changed is how many objects that round has created, updated or deleted.
	// +optional
	Changed int32 `json:"changed,omitempty"`
	// ExpectedLockSeconds is how long v1 will be locked, if all goes well.
	// +optional
	ExpectedLockSeconds int32 `json:"expectedLockSeconds,omitempty"`
}

// Verified is the result of a comparison of every object on both sides.
//
// +kubebuilder:object:generate=true
type Verified struct {
	// At is when both sides were found equal.
	At metav1.Time `json:"at"`
	// Revision is where the storage of v1 stood then, if nobody could write it: an object with a
	// newer resourceVersion was written since.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Digests holds, for each kind that has objects, their number and a digest of what
	// v1 held when v3 was found to hold the same: "IPPool=1:60303ae22b998861
	// Tier=3:9f86d081884c7d65", sorted by kind. A clean-up deletes only what is still so.
	// "Tier=3+1:..." says that one more is in v3 with other content, which a person has waived.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Digests string `json:"digests,omitempty"`
}

// Progress counts what was planned and what is done.
//
// +kubebuilder:object:generate=true
type Progress struct {
	// TotalTypes is the number of kinds to migrate.
	// +optional
	TotalTypes int32 `json:"totalTypes,omitempty"`
	// CompletedTypes is the number of kinds that are done.
	// +optional
	CompletedTypes int32 `json:"completedTypes,omitempty"`
	// TypeProgress is both numbers for people, such as "5 / 21".
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TypeProgress string `json:"typeProgress,omitempty"`
	// CurrentType is the kind worked on; empty when nothing is.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CurrentType string `json:"currentType,omitempty"`
	// Objects is how many of all objects are in v3 as they should be, for people, such
	// as "1234/5000". What was copied ahead counts.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Objects string `json:"objects,omitempty"`
	// ObjectsPerSecond is how many objects the present copy has copied or found equal in a
	// second; unset while nothing is copied.
	// +optional
	ObjectsPerSecond int32 `json:"objectsPerSecond,omitempty"`
	// Total is the number of objects of all kinds.
	// +optional
	Total int32 `json:"total,omitempty"`
	// Migrated is the number of objects copied to v3.
	// +optional
	Migrated int32 `json:"migrated,omitempty"`
	// Skipped is the number of objects that v3 had already with equal content.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// Terminating is the number of objects that are being deleted in v1, and that no other
	// object needs: v3 does not have them.
	// +optional
	Terminating int32 `json:"terminating,omitempty"`
	// NotCopied names the objects that Skipped and Terminating count, as many as fit: "Tier
	// web: being deleted in v1; NetworkSet a/b: in v3 already, with the same content". One
	// line. The MachineState has it; the object does not show it.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	NotCopied string `json:"notCopied,omitempty"`
	// OnlyInV3 names the objects that v3 has and v1 does not have, and that this migration
	// has not made, as many as fit: "NetworkSet a/b; Tier web; and 3 more". They are in
	// force as soon as v3 is open. One line. The MachineState has it; the object does not show
	// it.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	OnlyInV3 string `json:"onlyInV3,omitempty"`
	// Conflicts is the number of objects that v3 had already with other content.
	// +optional
	Conflicts int32 `json:"conflicts,omitempty"`
	// OwnersWithheld is the number of copied objects that lack owner references to
	// Calico objects: the owner is not copied yet, or does not exist. The MachineState has it;
	// the object does not show it.
	// +optional
	OwnersWithheld int32 `json:"ownersWithheld,omitempty"`
	// TypeDetails splits the counts by kind, for the kinds that are in work, and for
	// those that have conflicts where status.conflicts does not list all. A controller shows
	// it only on the CRD of Calico; on this one, Kinds has the counts.
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=kind
	// +optional
	TypeDetails []TypeProgress `json:"typeDetails,omitempty"`
	// Kinds holds, for each kind that has objects, how many of them are looked at and how
	// many there are, in the order of copying: "Tier=3/3 NetworkPolicy=10/200". A kind with
	// conflicts has their number, too: "Tier=3/3,conflicts=1". One line of describe.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	Kinds string `json:"kinds,omitempty"`
}

// TypeProgress counts the objects of one kind.
type TypeProgress struct {
	// Kind as v3 calls it.
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind"`
	// Migrated is the number of objects copied to v3.
	// +optional
	Migrated int32 `json:"migrated,omitempty"`
	// Skipped is the number of objects that v3 had already with equal content.
	// +optional
	Skipped int32 `json:"skipped,omitempty"`
	// Terminating is the number of objects that are being deleted in v1, and not in v3.
	// +optional
	Terminating int32 `json:"terminating,omitempty"`
	// Conflicts is the number of objects that v3 had already with other content.
	// +optional
	Conflicts int32 `json:"conflicts,omitempty"`
}

// Conflicts are at most MaxConflicts. On the wire they are one line of text (see conflict.go).
type Conflicts []Conflict

// Conflict is one v3 object that exists with other content than its v1 source.
//
// +kubebuilder:object:generate=true
type Conflict struct {
	// Kind as v3 calls it.
	Kind string `json:"kind"`
	// Namespace of the object; empty for a cluster-scoped one.
	Namespace string `json:"namespace,omitempty"`
	// Name of the object in v3.
	Name string `json:"name"`
	// Fields that differ, each with both values where they are short. They are at most
	// MaxConflictFields, of at most MaxConflictFieldLength characters.
	Fields []string `json:"fields,omitempty"`
}
