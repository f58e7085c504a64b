package v1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"
)

// CRDName is the name of the CustomResourceDefinition of DatastoreMigration.
const CRDName = "datastoremigrations.migration.projectcalico.org"

// Finalizer keeps a DatastoreMigration until everything it holds is released
// or, after Complete, until the v1 CRDs are gone. The peer uses the same name,
// so either controller can finish what the other one left.
const Finalizer = "migration.projectcalico.org/v1-crd-cleanup"

// FenceName is the name of the ValidatingAdmissionPolicy, and of its binding, that
// refuse writes of v1 while a migration has it locked.
const FenceName = "v1-fence.migration.projectcalico.org"

// V3FenceName is that of the two that keep everybody from writing v3 until it is open.
const V3FenceName = "v3-fence.migration.projectcalico.org"

// SideDoorVersion is the version that a migration adds to the v3 CRDs while the aggregated
// API server owns v3: what is written through it is in the storage that v3 serves later.
// Lists of versions have it behind v3.
const SideDoorVersion = "v3precopy"

// Annotations. The values are compatible with the peer's.
const (
	// AnnotationSavedAPIService on the disabled APIService holds what it was, as JSON.
	AnnotationSavedAPIService = "migration.projectcalico.org/saved-apiservice"
	// AnnotationMigratedBy on a v3 object holds the UID of the migration that created it.
	AnnotationMigratedBy = "migration.projectcalico.org/migrated-by"
	// AnnotationLockedBy on a ClusterInformation, on the fence and on the disabled APIService holds
	// the UID of the migration that locked it.
	AnnotationLockedBy = "migration.projectcalico.org/locked-by"
	// AnnotationV3Open on the ClusterInformation of v1 holds the UID of the migration that has opened v3.
	AnnotationV3Open = "migration.projectcalico.org/v3-open"
	// AnnotationFenceProbe marks a dry run that asks whether the fence works. Nothing is
	// ever stored with it.
	AnnotationFenceProbe = "migration.projectcalico.org/fence-probe"
	// AnnotationDetachedOwners on an object that a Calico object owns holds the owner
	// references that were taken off while v1 and v3 change places, as JSON.
	AnnotationDetachedOwners = "migration.projectcalico.org/detached-owners"
	// AnnotationBarrier on one object of each large kind, on both sides, is written under the
	// lock to find out whether a watch has shown all that was written before.
	AnnotationBarrier = "migration.projectcalico.org/barrier"
	// AnnotationSideDoor on a v3 CRD holds the UID of the migration that has added
	// SideDoorVersion to it.
	AnnotationSideDoor = "migration.projectcalico.org/side-door"
	// AnnotationNudgedAt on a v1 CRD that is being deleted, and does not go, is the time when
	// kube-apiserver was last made to look at it again.
	AnnotationNudgedAt = "migration.projectcalico.org/nudged-at"
	// AnnotationWaive on the migration lists checks that must not keep it from starting, each as
	// Waiver writes it, separated by commas.
	AnnotationWaive = "migration.projectcalico.org/waive"
)

// Waiver is an entry of AnnotationWaive: it holds for the object with this UID alone, not for
// one that is created elsewhere, or anew, from the same manifest.
func Waiver(id string, uid types.UID) string { return id + "@" + string(uid) }

// WaiverAnnotation is AnnotationWaive with a Waiver, as a person sets it. Where there is no object yet, uid is empty,
// and the text names the place of it.
func WaiverAnnotation(id string, uid types.UID) string {
	return AnnotationWaive + "=" + Waiver(id, cmp.Or(uid, "UID"))
}

// Labels of the Secrets into which a clean-up puts v1 before it deletes it.
const (
	// LabelBackupOf is the name of the migration, as far as it is a label's value.
	LabelBackupOf = "migration.projectcalico.org/backup-of"
	// LabelBackupUID is its UID.
	LabelBackupUID = "migration.projectcalico.org/backup-of-uid"
)

// What status.phase shows of a migration as Calico's own controller does, whatever a machine
// file calls its phases.
const (
	PhasePending   = "Pending"
	PhaseMigrating = "Migrating"
	PhaseWaiting   = "WaitingForConflictResolution"
	PhaseConverged = "Converged"
	PhaseComplete  = "Complete"
	PhaseFailed    = "Failed"
)

// Domain conditions. Ready, Reconciling and Stalled are the runner's. Each type
// occurs once; status.conflicts names the objects in conflict.
const (
	// ConditionConflict is True while v3 objects with other content are in the way.
	ConditionConflict = "Conflict"
	// ConditionFailed is True once the migration has failed.
	ConditionFailed = "Failed"
)

// Reasons of the domain conditions.
const (
	// ReasonResourceMismatch goes with Conflict: the content of both sides differs.
	ReasonResourceMismatch = "ResourceMismatch"
	// ReasonConflictsOmitted goes with Conflict when there are more than
	// MaxConflicts of them; the message says how many are not listed.
	ReasonConflictsOmitted = "ConflictsOmitted"
	// ReasonLateWrites goes with Conflict when v1 was written after both sides were compared, by what had
	// been let in before, and v3 too.
	ReasonLateWrites = "LateWrites"
	// ReasonMigrationError goes with Failed.
	ReasonMigrationError = "MigrationError"
)

// Bounds of the status, in entries, characters (not bytes) for lengths. They
// repeat the markers in types.go for the code that must cut to fit.
const (
	// MaxConflicts is how many conflicts the status lists.
	MaxConflicts = 32
	// MaxNamed is how many objects Progress.NotCopied and Progress.OnlyInV3 name, a line that
	// counts the rest not counted.
	MaxNamed = 16
	// MaxConflictFields is how many differing fields are listed per conflict.
	MaxConflictFields = 8
	// MaxConflictFieldLength bounds one entry of Conflict.Fields.
	MaxConflictFieldLength = 400
	// MaxMessageLength bounds status.message.
	MaxMessageLength = 1024
)
