package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/phasegate/phasegate/api/migration/v1"
)

// DatastoreMigration asks for a migration of the Calico datastore and shows how
// far it has come. Any name will do; one migration is active at a time.
//
// +kubebuilder:resource:scope=Cluster,path=datastoremigrations,shortName=dsm,categories=phasegate
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="migration.projectcalico.org/v1beta1 DatastoreMigration is deprecated: use v1, which has the same fields"
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
	Spec v1.DatastoreMigrationSpec `json:"spec"`
	// Status is what was observed; written by the controller only.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status v1.DatastoreMigrationStatus `json:"status,omitempty"`
}
