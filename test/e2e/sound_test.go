package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/test/support/crds"
)

// assertSound checks what holds for a migration at every moment.
func assertSound(t *testing.T, dm *migrationv1.DatastoreMigration) {
	t.Helper()
	for _, flaw := range flaws(dm) {
		t.Errorf("%s in phase %q: %s", dm.Name, dm.Status.Phase, flaw)
	}
}

func flaws(dm *migrationv1.DatastoreMigration) []string {
	return append(conditionFlaws(dm), historyFlaws(dm)...)
}

func conditionFlaws(dm *migrationv1.DatastoreMigration) []string {
	var found, summary []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	seen := map[string]bool{}
	for _, c := range dm.Status.Conditions {
		if seen[c.Type] && !mayRepeat(c.Type) {
			say("condition %s occurs twice", c.Type)
		}
		seen[c.Type] = true
		if isSummary(c.Type) && c.Status == metav1.ConditionTrue {
			summary = append(summary, c.Type)
		}
		found = append(found, conditionFlaw(dm, c)...)
	}
	// A conflict says more than Reconciling, and stands for it.
	if standsFor := !onPeersCRDs && seen["Conflict"]; dm.Status.Phase != "" && (!seen["Ready"] || len(summary) != 1 && !standsFor) {
		say("Ready must be there (%t), and one of Ready, Reconciling and Stalled be True: %v", seen["Ready"], summary)
	}
	return found
}

func conditionFlaw(dm *migrationv1.DatastoreMigration, c metav1.Condition) (found []string) {
	if c.ObservedGeneration != generationOf(dm, c) && (onPeersCRDs || c.ObservedGeneration != 0) { // on ours, the status says it
		found = append(found, fmt.Sprintf("condition %s is about generation %d, the status about %d", c.Type, c.ObservedGeneration, dm.Status.ObservedGeneration))
	}
	if c.Reason == "" || c.LastTransitionTime.IsZero() {
		found = append(found, fmt.Sprintf("condition %s has no reason or no time", c.Type))
	}
	return found
}

// mayRepeat: Calico's CRD has a condition for each conflict.
func mayRepeat(conditionType string) bool {
	return onPeersCRDs && conditionType == migrationv1.ConditionConflict
}

// generationOf is the generation that the status is about, for which Calico's CRD has no place.
func generationOf(dm *migrationv1.DatastoreMigration, c metav1.Condition) int64 {
	if onPeersCRDs && dm.Status.ObservedGeneration == 0 {
		return c.ObservedGeneration
	}
	return dm.Status.ObservedGeneration
}

func isSummary(conditionType string) bool {
	return slices.Contains([]string{"Ready", "Reconciling", "Stalled"}, conditionType)
}

func historyFlaws(dm *migrationv1.DatastoreMigration) []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	history := dm.Status.Machine.History
	for i, h := range history {
		if i > 0 && h.From != history[i-1].To {
			say("history[%d] begins in %s, but the one before ended in %s", i, h.From, history[i-1].To)
		}
		if i > 0 && h.At.Before(&history[i-1].At) {
			say("history[%d] is older than the one before", i)
		}
		if h.Reason == "" {
			say("history[%d] has no reason", i)
		}
	}
	if n := len(history); n > 0 && history[n-1].To != dm.Status.Machine.Phase {
		say("the history ends in %s, the machine is in %s", history[n-1].To, dm.Status.Machine.Phase)
	}
	return found
}

// assertAtRest checks what holds besides when the machine waits for nothing of its own.
func assertAtRest(t *testing.T, dm *migrationv1.DatastoreMigration, conditionTrue string) {
	t.Helper()
	assertSound(t, dm)
	if dm.Status.ObservedGeneration != dm.Generation {
		t.Errorf("%s in %s: the status is about generation %d of %d", dm.Name, dm.Status.Phase, dm.Status.ObservedGeneration, dm.Generation)
	}
	for _, c := range dm.Status.Conditions {
		isTrue := c.Status == metav1.ConditionTrue
		switch c.Type {
		case "Ready", "Reconciling", "Stalled":
			if isTrue != (c.Type == conditionTrue) {
				t.Errorf("%s in %s: condition %s is %s, only %s should be True", dm.Name, dm.Status.Phase, c.Type, c.Status, conditionTrue)
			}
		}
	}
}

// path are the phases that a migration came through.
func path(dm *migrationv1.DatastoreMigration) []string {
	var names []string
	for _, h := range dm.Status.Machine.History {
		names = append(names, h.To)
	}
	return names
}

// onPeersCRDs: the CRD of migrations is Calico's own, which has no place for much of a status
// and lets a condition repeat.
var onPeersCRDs = os.Getenv(crds.EnvPeers) != ""

// ofOurs is a text that is in our CRDs' statuses only; with those of others, nothing.
func ofOurs(text string) string {
	if onPeersCRDs {
		return ""
	}
	return text
}

// ofPeers is a text that is in the statuses on CRDs of others only; with ours, nothing.
func ofPeers(text string) string {
	if onPeersCRDs {
		return text
	}
	return ""
}
