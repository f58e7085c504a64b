package v1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/phasegate/phasegate/api/migration/v1"
)

// savedAt is a time as the wire has it: whole seconds.
func savedAt(minute int) *metav1.Time {
	return &metav1.Time{Time: time.Date(2026, 3, 4, 12, minute, 0, 0, time.UTC).Local()}
}

func TestSavedStatus(t *testing.T) {
	full := v1.DatastoreMigrationStatus{
		DatastoreLockedAt: savedAt(1), StartedAt: savedAt(0), CompletedAt: savedAt(2),
		Lock:       &v1.Lock{Mode: v1.LockEnforced, Deadline: savedAt(31)},
		CopyAhead:  &v1.CopyAhead{State: v1.CopyAheadOpen, Round: 2},
		Verified:   &v1.Verified{At: *savedAt(2), Digests: "Tier=3:9f86d081884c7d65"},
		LateWrites: v1.Conflicts{{Kind: "Tier", Name: "c", Fields: []string{"spec.order: 1 in v1, 2 in v3"}}},
		Progress:   &v1.Progress{NotCopied: "Tier a", OnlyInV3: "Tier b", OwnersWithheld: 4},
	}
	for name, c := range map[string]struct {
		why    string
		status v1.DatastoreMigrationStatus
		text   string
	}{
		"none": {"nothing to keep is no entry", v1.DatastoreMigrationStatus{Phase: "Pending", Message: "waits"}, ""},
		"one":  {"what is unset is not named", v1.DatastoreMigrationStatus{StartedAt: savedAt(0)}, `{"startedAt":"2026-03-04T12:00:00Z"}`},
		"all": {"these fields, and no other", full, `{"datastoreLockedAt":"2026-03-04T12:01:00Z","startedAt":"2026-03-04T12:00:00Z","completedAt":"2026-03-04T12:02:00Z",` +
			`"lock":{"mode":"Enforced","deadline":"2026-03-04T12:31:00Z"},"copyAhead":{"state":"Open","round":2},` +
			`"verified":{"at":"2026-03-04T12:02:00Z","digests":"Tier=3:9f86d081884c7d65"},"lateWrites":"Tier c: spec.order: 1 in v1, 2 in v3","notCopied":"Tier a","onlyInV3":"Tier b","ownersWithheld":4}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := v1.DatastoreMigration{Status: c.status}
			text, err := m.SavedStatus()
			if diff := cmp.Diff(c.text, text); diff != "" || err != nil {
				t.Fatalf("%s: %v (-want +got):\n%s", c.why, err, diff)
			}
			// A view that says otherwise loses.
			got := v1.DatastoreMigration{Status: full}
			got.Status.Phase, got.Status.Message, got.Status.Progress = c.status.Phase, c.status.Message, nil
			if err := got.SetSavedStatus(text); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.status, got.Status); diff != "" {
				t.Errorf("%s: read back (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestSetSavedStatusOfOtherTexts(t *testing.T) {
	before := v1.DatastoreMigrationStatus{Phase: "Migrating", StartedAt: savedAt(0)}
	for name, c := range map[string]struct {
		why, text string
		want      v1.DatastoreMigrationStatus
		fails     bool
	}{
		"newer":  {"a newer manager may keep more", `{"startedAt":"2026-03-04T12:05:00Z","more":{"a":1}}`, v1.DatastoreMigrationStatus{Phase: "Migrating", StartedAt: savedAt(5)}, false},
		"broken": {"half a change is worse than none", `{"lock":{"mode":"Enforced"},"startedAt":7}`, before, true},
		"text":   {"no JSON at all", `held`, before, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := v1.DatastoreMigration{Status: *before.DeepCopy()}
			if err := m.SetSavedStatus(c.text); (err != nil) != c.fails {
				t.Errorf("%s: error %v", c.why, err)
			}
			if diff := cmp.Diff(c.want, m.Status); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}
