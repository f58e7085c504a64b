package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
)

// describeLimit is how many lines people read.
const describeLimit = 60

// described are the lines that kubectl describe prints of a custom resource without
// Events: a line for each field and for each text of a list. It follows
// printUnstructuredContent of k8s.io/kubectl, which is not a dependency for this alone.
func described(t *testing.T, o any) []string {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		t.Fatal(err)
	}
	metadata := content["metadata"].(map[string]any)
	lines := []string{"Name:", "Namespace:"}
	for _, key := range []string{"labels", "annotations"} { // one line each, and one for each further entry
		all, _ := metadata[key].(map[string]any)
		for range max(1, len(all)) {
			lines = append(lines, key)
		}
	}
	lines = append(lines, "API Version:", "Kind:")
	for _, key := range []string{"name", "namespace", "labels", "annotations", "managedFields"} {
		delete(metadata, key)
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	return append(append(lines, contentLines(content)...), "Events:")
}

func contentLines(content map[string]any) (lines []string) {
	text := func(label string, value any) {
		lines = append(lines, strings.Split(fmt.Sprintf("%s %v", label, value), "\n")...)
	}
	for _, field := range slices.Sorted(maps.Keys(content)) {
		switch value := content[field].(type) {
		case map[string]any:
			lines = append(append(lines, field+":"), contentLines(value)...)
		case []any:
			lines = append(lines, field+":")
			for _, child := range value {
				if fields, ok := child.(map[string]any); ok {
					lines = append(lines, contentLines(fields)...)
				} else {
					text("", child)
				}
			}
		default:
			text(field, value)
		}
	}
	return lines
}

// Everything that a migration under the lock can have is still read at a glance.
func TestDescribeFits(t *testing.T) {
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
				Name: "datastore-migration", Revision: "r", Phase: "Migrating", Step: "CopyResources", Cursor: 9, Since: &at, Generation: 1, Deadline: &at,
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
	if lines := described(t, state); len(lines) > describeLimit {
		t.Errorf("kubectl describe prints %d lines, more than %d:\n%s", len(lines), describeLimit, strings.Join(lines, "\n"))
	}
}
