package describe

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// Everything that a migration under the lock can have is still read at a glance.
func TestState(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	created := metav1.NewTime(at.Time)
	state := &v1alpha1.MachineState{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "MachineState"},
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.MachineStateName("datastore-migration", "5c2d0c0e-6d0a-4a39-8d5c-7f3f2f1a0b9e"), UID: "u", ResourceVersion: "1", Generation: 42, CreationTimestamp: created,
			Labels:      map[string]string{v1alpha1.MachineLabel: "datastore-migration"},
			Annotations: map[string]string{v1alpha1.ObjectAnnotation: "/to-v3"}, Finalizers: []string{v1alpha1.HeldFinalizer},
		},
		Spec: v1alpha1.MachineStateSpec{Machine: "datastore-migration", Object: v1alpha1.ObjectReference{
			APIVersion: "migration.projectcalico.org/v1", Kind: "DatastoreMigration", Name: "to-v3", UID: "5c2d0c0e-6d0a-4a39-8d5c-7f3f2f1a0b9e"}},
		Status: v1alpha1.MachineStateStatus{
			MachineStatus: v1alpha1.MachineStatus{
				Name: "datastore-migration", Revision: "r", Phase: "Migrating", Step: "CopyResources", StepIndex: 9, EnteredAt: &at, Generation: 1, Deadline: &at,
				Result: `{"kinds":"Tier=3/3"}`,
			},
			Saved: map[string]v1alpha1.SavedText{v1alpha1.SavedStatus: `{"lock":{"mode":"Enforced"}}`, "apiService": `{"spec":{}}`},
		},
	}
	for _, name := range []string{"v1Fence", "sideDoor", "dependents", "v1Lock", "v1Owners", "apiService", "v3Lock", "v3Copies"} {
		state.Status.Held = append(state.Status.Held, v1alpha1.HeldEffect{Name: name, Release: "Release", With: `{"name":"default"}`, Acquired: `{"name":"default"}`})
	}
	for range v1alpha1.HistoryLimit {
		state.Status.History = append(state.Status.History, v1alpha1.Transition{From: "Pending", To: "Migrating", At: at, Reason: "ReadyToCutOver", Message: "all is ready"})
	}
	assertFits(t, state, 0, describeLimit)
}
